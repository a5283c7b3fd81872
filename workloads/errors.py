"""The one error of this package."""


class WorkloadError(ValueError):
    """A workload file or its parameters are wrong; says where and what to do.

    source_name: the file as the person knows it. line: from 1, None for an error without a place
    (a parameter given beside the file). field: dotted path, "" for the file itself.
    """

    def __init__(self, source_name: str, field: str, problem: str, line: int | None = None) -> None:
        field, problem = _shortened(field, 200), _shortened(problem, 1000)
        place = source_name if line is None else f"{source_name}:{line}"
        super().__init__(f"{place}: {field}: {problem}" if field else f"{place}: {problem}")
        self.source_name = source_name
        self.line = line
        self.field = field
        self.problem = problem


def _shortened(text: str, characters: int) -> str:
    """What a file says may be a million characters long, and stands in messages."""
    return text if len(text) <= characters else f"{text[:characters]}…"
