"""The address of a controller as a person gives it: names, IPv6, the path of a proxy, slashes at the end."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from rest.errors import SettingError

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A checked address. `url` ends without a slash; a path, as behind a proxy, stays before each route."""

    url: str
    is_loopback: bool
    is_encrypted: bool
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """SettingError for anything but http(s)://HOST[:PORT][/PATH]; an IPv6 host stands in brackets."""
        try:
            parts = urlsplit(text)
            port = parts.port
            is_good = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and port != 0
        except ValueError:
            is_good = False
        if not is_good or parts.username or parts.query or parts.fragment or not text.isprintable():
            raise SettingError("bad-address", f"{text!r:.200} is not the address of a controller")
        return cls(
            url=text.rstrip("/"),
            is_loopback=parts.hostname in LOOPBACK_HOSTS,
            is_encrypted=parts.scheme == "https",
            port=port or _DEFAULT_PORTS[parts.scheme],
        )

    def __str__(self) -> str:
        return self.url


def check_token(token: SecretStr) -> None:
    """Return for what can be a token, or for none; SettingError otherwise, without its text."""
    text = token.get_secret_value()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise SettingError("bad-token", "the token has characters that no token has")
