"""Bytes to lines, without I/O. A line that is too long is counted, not kept: memory stays bounded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line of size_bytes (without its newline) was thrown away."""

    size_bytes: int


class LineFramer:
    """`feed(chunk)` gives the lines that ended in it, without newline; what has no newline yet waits.

    At most max_line_bytes wait. The end of a file without newline is a torn line, not a line: ask
    `pending_bytes`.
    """

    def __init__(self, max_line_bytes: int) -> None:
        """A line of exactly max_line_bytes is still a line."""
        self._max_line_bytes = max_line_bytes
        self._waiting = bytearray()
        self._discarded_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes since the last newline."""
        return len(self._waiting) + self._discarded_bytes

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Lines in order; the same for every way of cutting the input into chunks."""
        lines: list[bytes | TooLong] = []
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            if self._discarded_bytes:
                lines.append(TooLong(self.pending_bytes))
            else:
                lines.append(bytes(self._waiting))
            self._waiting.clear()
            self._discarded_bytes = 0
        self._keep(rest)
        return lines

    def _keep(self, part: bytes) -> None:
        if self._discarded_bytes or len(self._waiting) + len(part) > self._max_line_bytes:
            self._discarded_bytes += len(self._waiting) + len(part)
            self._waiting.clear()
        else:
            self._waiting += part
