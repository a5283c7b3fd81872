"""A workload file and parameter values to task graphs, one for each cell of the sweep."""

import hashlib
import json
from typing import Any, Final

from pydantic import ValidationError

from contract.rest import WorkloadRequest
from contract.workload import (
    MAX_PARTS,
    MAX_SEGMENT_CHARACTERS,
    MAX_SEGMENTS,
    MAX_WORKLOAD_CALLS,
    MAX_WORKLOAD_CHARACTERS,
    MAX_WORKLOAD_PARTS,
    AgentPlan,
    Call,
    CallRef,
    CompiledWorkload,
    OutputPart,
    Part,
    Segment,
    SegmentPart,
    ToolWait,
)
from workloads.catalogue import built_in_text, first_problem, named_source, read_header
from workloads.chat import CHAT_FORMATS
from workloads.errors import WorkloadError
from workloads.located import LocatedData, Path, Source, load_located
from workloads.parameters import resolve, substitute, variant_name
from workloads.template import MAX_OUTPUTS, AgentTemplate, CallTemplate, Text, TextUse, WorkloadFile

_TOTALS: Final = {
    "characters": MAX_WORKLOAD_CHARACTERS,
    "calls": MAX_WORKLOAD_CALLS,
    "parts of calls": MAX_WORKLOAD_PARTS,
}


def compile_request(request: WorkloadRequest) -> list[CompiledWorkload]:
    """Task graphs of a request's workload; raises WorkloadError."""
    if (request.name is None) == (request.source is None):
        raise WorkloadError("workload", "workload", "give exactly one of `name` and `source`")
    if request.name is not None:
        return compile_source(named_source(request.name), request.params)
    return compile_source(Source(request.source_name, request.source or ""), request.params)


def compile_source(source: Source, params: dict[str, Any]) -> list[CompiledWorkload]:
    """Task graphs of a file, in the order of its sweep; raises WorkloadError with file and line."""
    data = load_located(source)
    header = read_header(data)
    compiled = []
    tally = _Tally(data)
    for values in resolve(header, params, data):
        variant = variant_name(header, params, values, data)
        filled = substitute(data, values)
        try:
            file = WorkloadFile.model_validate(filled.value)
        except ValidationError as error:
            raise first_problem(filled, error) from error
        compiled.append(_Compiler(file, filled, tally).compile(values, variant))
    return compiled


class _Tally:
    """What all cells of a file come to, counted before it is built: a short file can name gigabytes."""

    def __init__(self, data: LocatedData) -> None:
        self._data = data
        self._counts = {"characters": 0, "calls": 0, "parts of calls": 0}

    def add_calls(self, template: AgentTemplate, where: Path) -> None:
        for call in template.calls:
            times = template.count * call.repeat
            self.add("calls", times, where)
            parts = MAX_PARTS - MAX_OUTPUTS + len(call.outputs_of) + len(call.after)
            self.add("parts of calls", times * parts, where)

    def add(self, what: str, count: int, where: Path) -> None:
        self._counts[what] += count
        if self._counts[what] > _TOTALS[what]:
            problem = f"the file comes to over {_TOTALS[what]} {what}, its sweep included; ask for less"
            raise self._data.error(where, problem)


class _Compiler:
    """Compiles one file with all values in place."""

    def __init__(self, file: WorkloadFile, data: LocatedData, tally: _Tally) -> None:
        self._file = file
        self._tally = tally
        self._data = data
        self._chat = CHAT_FORMATS[file.chat]
        self._segments: dict[tuple[str, int | None], Segment] = {}
        self._used: dict[tuple[str, int, str, int | None], SegmentPart] = {}

    def compile(self, values: dict[str, Any], variant: str) -> CompiledWorkload:
        for position, template in enumerate(self._file.agents):
            self._tally.add_calls(template, ("agents", position))
        agents = [
            self._agent(position, template, index)
            for position, template in enumerate(self._file.agents)
            for index in range(1, template.count + 1)
        ]
        body = {
            "segments": [segment.model_dump() for segment in self._segments.values()],
            "agents": [plan.model_dump() for plan in agents],
            "repeat_for_s": self._file.repeat_for_s,
        }
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        try:
            return CompiledWorkload(
                name=self._file.workload,
                version=self._file.version,
                digest=f"sha256:{hashlib.sha256(canonical).hexdigest()}",
                params=values,
                variant=variant,
                segments=list(self._segments.values()),
                agents=agents,
                repeat_for_s=self._file.repeat_for_s,
            )
        except ValidationError as error:
            problem = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
            raise self._data.error(("agents",), problem) from error

    def _agent(self, position: int, template: AgentTemplate, index: int) -> AgentPlan:
        agent: Path = ("agents", position)
        opening: list[Part | None] = []
        if template.system is not None:
            opening = self._message("system", [self._text(template.system, index, (*agent, "system"))])
        calls: list[Call] = []
        for number, call in enumerate(template.calls):
            where = (*agent, "calls", number)
            for _ in range(call.repeat):
                before: list[Part | None] = [self._mark(self._chat.close)] if calls else opening
                calls.append(self._call(call, index, before, where))
        return AgentPlan(
            agent=_numbered(template.name, index),
            calls=calls,
            priority=template.priority,
            retries=template.retries,
            keep_last_rounds=template.keep_last_rounds,
        )

    def _call(self, template: CallTemplate, index: int, before: list[Part | None], where: Path) -> Call:
        parts = list(before)
        if template.tool is not None:
            result = self._text(template.tool.result, index, (*where, "tool", "result"))
            parts += self._message("tool", [result])
        message: list[Part | None] = [
            OutputPart(agent=_numbered(use.agent, index), call=use.call) for use in template.outputs_of
        ]
        if template.input is not None:
            message.append(self._text(template.input, index, (*where, "input")))
        if message:
            parts += self._message("user", message)
        parts.append(self._mark(self._chat.answer))
        tool = template.tool
        wait = None if tool is None else ToolWait(tool=tool.name, wait_s=tool.wait_s)
        return Call(
            parts=[part for part in parts if part is not None],
            max_output_tokens=template.output_tokens,
            ignore_end=template.ignore_end,
            sampling=template.sampling,
            tool_wait=wait,
            after=[CallRef(agent=_numbered(use.agent, index), call=use.call) for use in template.after],
        )

    def _message(self, role: str, content: list[Part | None]) -> list[Part | None]:
        return [self._mark(self._chat.opens[role]), *content, self._mark(self._chat.close)]

    def _mark(self, text: str) -> SegmentPart | None:
        return self._segment(text, None, "mark", ()) if text else None

    def _text(self, use: TextUse, index: int, where: Path) -> SegmentPart:
        named = self._file.texts.get(use.text)
        if named is None:
            known = ", ".join(sorted(self._file.texts))
            raise self._data.error((*where, "text"), f"no text is named {use.text!r}; known: {known}")
        choices = named if isinstance(named, list) else [named]
        choice = (index - 1) % len(choices)
        lead = _numbered(use.lead, index)
        key = (use.text, choice, lead, use.tokens)
        # A call that is repeated a thousand times must not join and hash a megabyte each time.
        if key not in self._used:
            text = lead + self._body(choices[choice], ("texts", use.text))
            self._used[key] = self._segment(text, use.tokens, use.text, where)
        return self._used[key]

    def _body(self, text: Text, where: Path) -> str:
        if text.text is not None:
            return text.text
        built_in = built_in_text(text.file or "")
        if built_in is None:
            raise self._data.error((*where, "file"), f"no text named {text.file!r} comes with dynofarm")
        return built_in

    def _segment(self, text: str, tokens: int | None, stem: str, where: Path) -> SegmentPart:
        # Equal content is one segment, so that equal prefixes are equal by construction.
        if (text, tokens) not in self._segments:
            self._tally.add("characters", len(text), where)
            if len(text) > MAX_SEGMENT_CHARACTERS:
                problem = f"with its lead the text has over {MAX_SEGMENT_CHARACTERS} characters"
                raise self._data.error(where, problem)
            if len(self._segments) == MAX_SEGMENTS:
                raise self._data.error(where, f"the workload has over {MAX_SEGMENTS} different texts")
            segment_id = f"{stem[:48]}-{len(self._segments) + 1}"
            self._segments[text, tokens] = Segment(segment_id=segment_id, text=text, tokens=tokens)
        return SegmentPart(segment_id=self._segments[text, tokens].segment_id)


def _numbered(text: str, index: int) -> str:
    return text.replace("{index}", str(index))
