"""Standard output for results, standard error for everything else. The only module that writes to either.

With --json exactly one JSON object goes to standard output, whatever happens.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pydantic import BaseModel
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from client.errors import ClientError, InfrastructureError, error_report
from client.field_words import field_in_words
from contract.model import printable_text

# Enough for a report where nobody can say how wide the reader's window is.
_WIDTH_WITHOUT_TERMINAL = 120
_TERMINAL_CONTROLS = re.compile("[\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]")


class _Console(Console):
    """Whatever is printed, a character that would act on the terminal is shown as U+FFFD instead: what a
    model, a device or a server wrote must not steer it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """rich calls this for each part, of what it draws again and again, too."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_text(text), style, control)

    def on_broken_pipe(self) -> None:
        """rich would leave with 1, and 1 means a regression; options.py decides instead."""
        raise BrokenPipeError


class Output:
    """Where a command writes. Both consoles are plain text unless they are terminals."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._results = _console(is_error=False)
        self.messages = _console(is_error=True)

    def result(self, data: BaseModel | Sequence[BaseModel], shown: RenderableType) -> None:
        """One result: `data` with --json, else `shown`."""
        with self.writing():
            if self.as_json:
                sys.stdout.write(_json_line(data) + "\n")
                sys.stdout.flush()
            else:
                self._results.print(shown)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """For what goes to standard output: InfrastructureError where it cannot be, as on a full disk."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is left in the buffer would fail again when the interpreter ends, with another exit code.
            self.reader_left()
            raise InfrastructureError(
                "result-not-written",
                f"cannot write to standard output: {error.strerror}",
                "free disk space, or write elsewhere",
            ) from error

    def say(self, text: str) -> None:
        """A line for the person, on standard error."""
        self.messages.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, shown: RenderableType) -> None:
        """Tables for the person beside a JSON result, on standard error."""
        self.messages.print(shown)

    def failure(self, error: ClientError) -> None:
        """What went wrong and what to do, on standard error; with --json also as the JSON result."""
        self.say(f"error: {error.detail}")
        for problem in error.errors:
            if problem.detail in error.detail and problem.pointer in error.detail:
                continue
            self.say(f"  {field_in_words(problem.pointer)}: {problem.detail}")
        if error.next_step:
            self.say(f"what to do: {error.next_step}")
        self.refuse(error)

    def refuse(self, error: ClientError) -> None:
        """With --json the error as the one result; nothing without."""
        if self.as_json:
            sys.stdout.write(_json_line(error_report(error)) + "\n")
            sys.stdout.flush()

    def reader_left(self) -> None:
        """Nobody reads standard output any more: what is still in its buffer goes nowhere, without a word."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _console(*, is_error: bool) -> _Console:
    stream = sys.stderr if is_error else sys.stdout
    is_terminal = stream.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    # Said outright: rich would otherwise be talked into colours by variables that CI services set.
    return _Console(
        stderr=is_error,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal else None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _json_line(data: BaseModel | Sequence[BaseModel]) -> str:
    if isinstance(data, BaseModel):
        line = data.model_dump_json()
    else:
        line = json.dumps([each.model_dump(mode="json") for each in data], ensure_ascii=False)
    # JSON escapes only those below 32; a terminal acts on these, too.
    return _TERMINAL_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
