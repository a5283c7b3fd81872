"""The device's own key and its side of TLS. The certificate was made by the host when it paired."""

import os
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from device_agent.floor.atomic_file import write_atomically
from device_agent.virtual.device.record import KEY_FILE

_KEY_BITS: Final = 2048


class DeviceKey:
    """Made once per device, kept in its folder, never sent."""

    def __init__(self, folder: Path) -> None:
        """Reads or makes the key; making one takes a good part of a second."""
        path = folder / KEY_FILE
        if not path.exists():
            made = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
            write_atomically(
                path,
                made.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                ),
            )
        self._pem = path.read_bytes()
        key = serialization.load_pem_private_key(self._pem, password=None)
        self.public_pem = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.PKCS1
        )

    def tls_context(self, device_certificate: str) -> ssl.SSLContext:
        """The server side of TLS with this key and the certificate that a host made for it."""
        return _context(self._pem, device_certificate)


@lru_cache(maxsize=256)
def _context(key_pem: bytes, certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A context reads its chain from a file only; this one lives for a moment and is its owner's alone.
    handle, name = tempfile.mkstemp(prefix="dynofarm-virtual-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate.encode() + b"\n" + key_pem)
        context.load_cert_chain(name)
    finally:
        os.unlink(name)
    return context
