"""The shape of a workload file. docs: workloads/README.md.

A value `$name` (or `$name-1`) stands for the parameter of that name and is replaced before this is checked;
`{index}` in a name or lead becomes the agent's number, from 1.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from contract.ids import Name
from contract.workload import Sampling, SegmentTokens


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Parameter(_Part):
    """A knob that a run may set."""

    kind: Literal["integer", "number", "boolean", "string"]
    default: int | float | bool | str
    minimum: float | None = None
    maximum: float | None = None
    description: str


class Text(_Part):
    """Text given here, or the name of one that comes with dynofarm (workloads/texts)."""

    text: Annotated[str, Field(min_length=1)] | None = None
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

    text: str
    tokens: SegmentTokens | None = None
    lead: str = ""


class OutputUse(_Part):
    """What another agent wrote in one of its calls (from 0)."""

    agent: Name
    call: Annotated[int, Field(ge=0)] = 0


class Tool(_Part):
    """A tool that works before the call; its result is part of the prompt."""

    name: Name
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    result: TextUse


class CallTemplate(_Part):
    """One call, or `repeat` of them."""

    repeat: Annotated[int, Field(ge=1, le=1024)] = 1
    input: TextUse | None = None
    outputs_of: list[OutputUse] = []
    tool: Tool | None = None
    output_tokens: PositiveInt
    ignore_end: bool = False
    sampling: Sampling = Sampling()
    after: list[OutputUse] = []

    @model_validator(mode="after")
    def _has_a_prompt(self) -> "CallTemplate":
        if self.input is None and self.tool is None and not self.outputs_of:
            raise ValueError("a call needs `input`, `tool` or `outputs_of`")
        return self


class AgentTemplate(_Part):
    """One agent, or `count` of them that differ by {index}."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.{}-]{0,40}$")]
    count: Annotated[int, Field(ge=1, le=256)] = 1
    system: TextUse | None = None
    calls: Annotated[list[CallTemplate], Field(min_length=1, max_length=256)]
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    retries: Annotated[int, Field(ge=0, le=2)] = 0
    keep_last_rounds: PositiveInt | None = None

    @model_validator(mode="after")
    def _names_differ(self) -> "AgentTemplate":
        if self.count > 1 and "{index}" not in self.name:
            raise ValueError("with `count` over 1 the name needs {index}")
        return self


class WorkloadFile(_Part):
    """A whole file."""

    workload: Name
    version: PositiveInt
    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    parameters: dict[Name, Parameter] = {}
    sweep: dict[Name, Annotated[list[int | float | bool | str], Field(min_length=1, max_length=64)]] = {}
    chat: Literal["chatml", "plain"] = "chatml"
    repeat_for_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    texts: Annotated[dict[Name, Text | list[Text]], Field(min_length=1)]
    agents: Annotated[list[AgentTemplate], Field(min_length=1, max_length=256)]


class Header(BaseModel):
    """The part of a file that is read before its parameters have values."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    workload: Name
    version: PositiveInt
    title: str
    description: str
    parameters: dict[Name, Parameter] = {}
    sweep: dict[Name, list[Any]] = {}
