"""The shape of a workload file. docs: workloads/README.md.

A value `$name` (or `$name-1`) stands for the parameter of that name and is replaced before this is checked;
`{index}` in a name or lead becomes the agent's number, from 1. Bounds are those of contract/workload.py, so
that what passes here can be compiled; those of all agents together are counted while compiling.
"""

from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from contract.ids import Name
from contract.workload import (
    MAX_AGENTS,
    MAX_CALLS,
    MAX_PARTS,
    MAX_SEGMENT_CHARACTERS,
    MAX_SEGMENTS,
    CallNumber,
    KeptRounds,
    OutputTokens,
    RepeatForSeconds,
    Sampling,
    SegmentTokens,
    Version,
)

MAX_PARAMETERS: Final = 64
MAX_SWEPT_VALUES: Final = 64
# Beside outputs of others a prompt has at most the system message (3), a tool's result (3), the marks around
# the user's message (2), its text and the mark of the answer.
MAX_OUTPUTS: Final = MAX_PARTS - 10

_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)


def _is_name_with_index(text: str) -> str:
    try:
        _NAME.validate_python(text.replace("{index}", str(MAX_AGENTS)))
    except ValidationError:
        raise ValueError(
            f"{text!r} is not a name: use lower-case letters, digits, `_`, `.`, `-`, and {{index}} for the "
            "agent's number; at most 64 characters"
        ) from None
    return text


IndexedName = Annotated[str, AfterValidator(_is_name_with_index)]
Value = int | float | bool | Annotated[str, Field(max_length=4000)]


class _Part(BaseModel):
    # Strict: `true` is not a number and "3" is text, as they are in the file.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Parameter(_Part):
    """A knob that a run may set."""

    kind: Literal["integer", "number", "boolean", "string"]
    default: Value
    minimum: float | None = None
    maximum: float | None = None
    description: Annotated[str, Field(max_length=2000)]


class Text(_Part):
    """Text given here, or the name of one that comes with dynofarm (workloads/texts)."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_SEGMENT_CHARACTERS)] | None = None
    file: Name | None = None

    @model_validator(mode="after")
    def _one_of(self) -> "Text":
        if (self.text is None) == (self.file is None):
            raise ValueError("give exactly one of `text` and `file`")
        return self


class TextUse(_Part):
    """A text at a place: which, at how many tokens (exactly), after which lead.

    A text that is a list gives agent i its i-th entry, round and round.
    """

    text: Annotated[str, Field(max_length=64)]
    tokens: SegmentTokens | None = None
    lead: Annotated[str, Field(max_length=10_000)] = ""


class OutputUse(_Part):
    """What another agent wrote in one of its calls (from 0)."""

    agent: IndexedName
    call: CallNumber = 0


class Tool(_Part):
    """A tool that works before the call; its result is part of the prompt."""

    name: Name
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    result: TextUse


class CallTemplate(_Part):
    """One call, or `repeat` of them."""

    repeat: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 1
    input: TextUse | None = None
    outputs_of: Annotated[list[OutputUse], Field(max_length=MAX_OUTPUTS)] = []
    tool: Tool | None = None
    output_tokens: OutputTokens
    ignore_end: bool = False
    sampling: Sampling = Sampling()
    after: Annotated[list[OutputUse], Field(max_length=MAX_PARTS)] = []

    @model_validator(mode="after")
    def _has_a_prompt(self) -> "CallTemplate":
        if self.input is None and self.tool is None and not self.outputs_of:
            raise ValueError("a call needs `input`, `tool` or `outputs_of`")
        return self


class AgentTemplate(_Part):
    """One agent, or `count` of them that differ by {index}."""

    name: IndexedName
    count: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1
    system: TextUse | None = None
    calls: Annotated[list[CallTemplate], Field(min_length=1, max_length=256)]
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    retries: Annotated[int, Field(ge=0, le=2)] = 0
    keep_last_rounds: KeptRounds | None = None

    @field_validator("calls")
    @classmethod
    def _calls_fit(cls, calls: list[CallTemplate]) -> list[CallTemplate]:
        count = sum(call.repeat for call in calls)
        if count > MAX_CALLS:
            raise ValueError(f"an agent makes at most {MAX_CALLS} calls; with `repeat` these are {count}")
        return calls

    @model_validator(mode="after")
    def _names_differ(self) -> "AgentTemplate":
        if self.count > 1 and "{index}" not in self.name:
            raise ValueError("with `count` over 1 the name needs {index}")
        return self


class Header(_Part):
    """The part of a file that is read before its parameters have values."""

    model_config = ConfigDict(extra="ignore")

    workload: Name
    version: Version
    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    parameters: Annotated[dict[Name, Parameter], Field(max_length=MAX_PARAMETERS)] = {}
    sweep: dict[Name, Annotated[list[Value], Field(min_length=1, max_length=MAX_SWEPT_VALUES)]] = {}


class WorkloadFile(Header):
    """A whole file."""

    model_config = ConfigDict(extra="forbid")

    chat: Literal["chatml", "plain"] = "chatml"
    repeat_for_s: RepeatForSeconds | None = None
    texts: Annotated[
        dict[Name, Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_SEGMENTS)]],
        Field(min_length=1),
    ]
    agents: Annotated[list[AgentTemplate], Field(min_length=1, max_length=MAX_AGENTS)]

    @field_validator("agents")
    @classmethod
    def _agents_fit(cls, agents: list[AgentTemplate]) -> list[AgentTemplate]:
        count = sum(agent.count for agent in agents)
        if count > MAX_AGENTS:
            raise ValueError(f"a workload has at most {MAX_AGENTS} agents; with `count` these are {count}")
        return agents
