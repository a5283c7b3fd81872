"""Identifiers out, pseudonyms in: the same for the same secret, of the same length, in order of appearance.

A pseudonym is not a digest: serials and IMEIs are few enough to be guessed. Equal length keeps binary
framing valid. What was learned in one place is removed everywhere, also where it had passed before.
"""

import base64
import plistlib
import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, Final

from device_agent.floor.property_list import PropertyListError, parse_property_list
from device_agent.floor.secrets import GENERIC_NAMES, PATTERNS, PEM, WORD, SecretKind, kind_of_key

MAX_SECRETS: Final = 20_000
MAX_NESTING: Final = 64
_MIN_TEXT_BYTES: Final = 4
_MIN_DATA_BYTES: Final = 6
_COUNTER_DIGITS: Final = 6
_PEM_MARK: Final = b"-----BEGIN"
_SUSPICIOUS: Final = re.compile(rb"[0-9@]")
_HEX_TEXT: Final = re.compile(r"[0-9A-Fa-f]+")
_ALNUM: Final = re.compile(rb"[0-9A-Za-z\x80-\xff]")


class Redactor:
    """Learns secrets and replaces them. Not shared between threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: what only a person knows to be one, such as the name of the network."""
        self._pseudonyms: dict[bytes, bytes] = {}
        self._given: set[bytes] = set()
        """Pseudonyms, and what in one of them looks like an identifier by itself."""
        self._numbers: dict[bytes, int] = {}
        self._sorted: tuple[bytes, ...] = ()
        self.overflow = 0
        """Secrets that were not remembered, since MAX_SECRETS were; they went only where they stood."""
        for secret in secrets:
            if secret.strip():
                self.learn(secret.strip())

    @property
    def learned(self) -> tuple[bytes, ...]:
        """Every form of every secret, for a search of what was written."""
        return tuple(self._pseudonyms)

    def learn(self, secret: str | bytes | int) -> None:
        """Remember a secret in all forms in which it may turn up."""
        for form in _forms(secret):
            self._remember(form)

    def redact_bytes(self, data: bytes) -> bytes:
        """The same bytes with pseudonyms; the same length."""
        if _PEM_MARK in data:
            data = PEM.sub(lambda found: _filled_pem(found.group()), data)
        data = WORD.sub(lambda found: self._word(found.group()), data)
        # One search per form is far quicker than one pattern of thousands of alternatives.
        for form in self._by_length():
            if form in data:
                data = data.replace(form, self._pseudonyms[form])
        return data

    def redact_text(self, text: str) -> str:
        """The same for text; as many bytes in UTF-8."""
        return self.redact_bytes(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def redact_value(self, value: Any, key: str = "") -> Any:
        """The same for a parsed property list or JSON value; what stands under a secret key goes whole."""
        self.learn_value(value, key)
        return self._redacted(value, kind_of_key(key), 0)

    def learn_value(self, value: Any, key: str = "") -> None:
        """Remember every secret in a parsed value, and in property lists that are packed inside it."""
        for secret in _secrets_in(value, kind_of_key(key), 0):
            self.learn(secret)

    def _redacted(self, value: Any, kind: SecretKind | None, depth: int) -> Any:
        if depth > MAX_NESTING:
            return None
        if isinstance(value, dict):
            return {
                self.redact_text(str(key)): self._redacted(each, kind or kind_of_key(str(key)), depth + 1)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._redacted(each, kind, depth + 1) for each in value]
        if isinstance(value, str):
            return self._hidden_text(value) if kind else self.redact_text(value)
        if isinstance(value, bytes | bytearray):
            return bytes(len(value)) if kind else self._redacted_data(bytes(value))
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return self._hidden_number(value) if kind else self._shown_number(value)
        return value

    def _redacted_data(self, data: bytes) -> bytes:
        packed = _unpacked(data)
        if packed is None:
            return self.redact_bytes(data)
        try:
            return _packed_like(data, self.redact_value(packed))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Nested too deep to be looked through, so it goes whole rather than out.
            return bytes(len(data))

    def _hidden_text(self, text: str) -> str:
        form = text.encode("utf-8", "replace")
        shown = self._pseudonyms.get(form) or _shaped(form, self._number(form))
        return shown.decode("utf-8", "replace")

    def _hidden_number(self, number: float) -> int:
        text = str(abs(int(number)) if isfinite(number) else 0).encode()
        return int(self._pseudonyms.get(text) or _shaped(text, self._number(text)))

    def _shown_number(self, number: float) -> float:
        """A number that was learned elsewhere is the same secret here."""
        found = self._pseudonyms.get(str(number).encode()) if isinstance(number, int) else None
        return int(found) if found is not None else number

    def _by_length(self) -> tuple[bytes, ...]:
        """The longest form first: one secret may be a part of another."""
        if len(self._sorted) != len(self._pseudonyms):
            self._sorted = tuple(sorted(self._pseudonyms, key=len, reverse=True))
        return self._sorted

    def _word(self, word: bytes) -> bytes:
        if _SUSPICIOUS.search(word) is None:
            return word
        for pattern in PATTERNS:
            word = pattern.sub(lambda found: self._of_pattern(found.group()), word)
        return word

    def _of_pattern(self, found: bytes) -> bytes:
        if found in self._given or _says_nothing(found):
            return found
        self.learn(found.decode("ascii", "replace"))
        return self._pseudonyms.get(found) or _shaped(found, self._number(found))

    def _remember(self, form: bytes) -> None:
        if form in self._pseudonyms or form in self._given or _says_nothing(form):
            return
        if len(self._pseudonyms) >= MAX_SECRETS:
            self.overflow += 1
            return
        pseudonym = self._pseudonyms[form] = _pseudonym(form, self._number(form))
        self._given.add(pseudonym)
        self._given.update(found.group() for pattern in PATTERNS for found in pattern.finditer(pseudonym))

    def _number(self, form: bytes) -> int:
        """Equal for forms that differ in case, dashes or encoding only."""
        plain = bytes(byte for byte in form.lower() if byte not in b"\0-: ")
        return self._numbers.setdefault(plain, len(self._numbers) + 1)


def _forms(secret: str | bytes | int) -> Iterator[bytes]:
    if isinstance(secret, bytes):
        if len(secret) >= _MIN_DATA_BYTES:
            yield secret
            yield secret.hex().encode()
            yield secret.hex().upper().encode()
            yield base64.b64encode(secret)
        return
    text = str(secret)
    if len(text.encode("utf-8", "replace")) < _MIN_TEXT_BYTES or text.lower() in GENERIC_NAMES:
        return
    texts = {text, text.lower(), text.upper(), text.replace("-", ""), text.replace("-", "").lower()}
    plain = text.replace("-", "").replace(":", "")
    if len(plain) % 2 == 0 and len(plain) >= 2 * _MIN_DATA_BYTES and _HEX_TEXT.fullmatch(plain):
        yield bytes.fromhex(plain)
    if text.isdecimal() and text.isascii() and _MIN_DATA_BYTES <= len(text) < 20:
        number = int(text)
        texts |= {f"{number:x}", f"{number:X}"}
        yield number.to_bytes(9, "big")[1:]
        yield number.to_bytes(9, "little")[:8]
    for each in texts:
        yield each.encode("utf-8", "replace")
        yield each.encode("utf-16-be", "replace")
        yield each.encode("utf-16-le", "replace")
        yield base64.b64encode(each.encode("utf-8", "replace"))


def _pseudonym(form: bytes, number: int) -> bytes:
    """Text is shaped; bytes that are not text become a counter."""
    wide = form[1::2].count(0) == len(form) // 2 or form[::2].count(0) == len(form) // 2
    if wide and len(form) % 2 == 0:
        low = 1 if form[0] == 0 else 0
        narrow = _shaped(form[low::2], number)
        return b"".join(bytes((0, byte)) if low else bytes((byte, 0)) for byte in narrow)
    if all(32 <= byte < 127 or byte >= 128 for byte in form) and _is_utf8(form):
        return _shaped(form, number)
    return number.to_bytes(len(form), "big") if len(form) >= _MIN_TEXT_BYTES else bytes(len(form))


def _says_nothing(form: bytes) -> bool:
    return not form.strip(b"\0") or set(_ALNUM.findall(form)) <= {b"0"}


def _is_utf8(form: bytes) -> bool:
    try:
        form.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shaped(form: bytes, number: int) -> bytes:
    """Zeros for letters and digits, the counter in the last of them; everything else stays."""
    digits = iter(reversed(f"{number % 10**_COUNTER_DIGITS:0{_COUNTER_DIGITS}d}".encode()))
    shaped = bytearray(form)
    for place in range(len(shaped) - 1, -1, -1):
        if _ALNUM.match(shaped[place : place + 1]):
            shaped[place] = next(digits, ord("0"))
    return bytes(shaped)


def _filled_pem(found: bytes) -> bytes:
    head, tail = found.index(b"-----", 5) + 5, found.rindex(b"-----END")
    body = re.sub(rb"[^\r\n]", b"A", found[head:tail])
    return found[:head] + body + found[tail:]


def _secrets_in(value: Any, kind: SecretKind | None, depth: int) -> Iterator[str | bytes | int]:
    if depth > MAX_NESTING:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secrets_in(each, kind or kind_of_key(str(key)), depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets_in(each, kind, depth + 1)
    elif isinstance(value, bytes | bytearray):
        packed = _unpacked(bytes(value))
        if packed is not None:
            yield from _secrets_in(packed, kind, depth + 1)
        elif kind:
            yield bytes(value)
    elif kind and isinstance(value, str | int) and not isinstance(value, bool):
        yield value


def _unpacked(data: bytes) -> Any:
    """The property list in these bytes; None for others."""
    if not data.startswith((b"bplist00", b"<?xml")):
        return None
    try:
        return parse_property_list(data)
    except PropertyListError:
        return None


def _packed_like(data: bytes, value: Any) -> bytes:
    form = plistlib.FMT_BINARY if data.startswith(b"bplist00") else plistlib.FMT_XML
    return plistlib.dumps(value, fmt=form, sort_keys=False)
