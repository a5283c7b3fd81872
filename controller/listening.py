"""The address to listen on, bound before anything else is started: a taken port is told at once."""

import errno
import socket


class AddressError(OSError):
    """The address cannot be listened on; the text says what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes any free one. AddressError when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        problem = f"{host!r} is not an address of this machine ({error.strerror})"
        raise AddressError(f"{problem}; choose another with --host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            advice = "choose another with --port, or stop what listens there"
            raise AddressError(f"port {port} is in use on {host}; {advice}") from error
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock
