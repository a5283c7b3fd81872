"""Whose certificates are believed, and through which proxy a call goes. The same for every role.

Certificates: those of DYNOFARM_CA_FILE alone where it is set; else of OpenSSL's own SSL_CERT_FILE and
SSL_CERT_DIR alone; else the system's and certifi's. Proxies: those of the environment (HTTPS_PROXY, NO_PROXY
and so on), and never for a loopback address, which a proxy cannot reach.
"""

import os
import ssl
from functools import cache
from pathlib import Path

import certifi

from rest.errors import SettingError


@cache
def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a call. SettingError for a file that has none."""
    chosen = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise SettingError(
            "bad-certificates",
            f"DYNOFARM_CA_FILE names {ca_file}, which has no certificates that can be read: {error.strerror}",
        ) from error
    if ca_file is None and not chosen:
        context.load_verify_locations(certifi.where())
    return context


def trusting_nobody() -> ssl.SSLContext:
    """For http addresses: no certificate is read, and none would be believed."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
