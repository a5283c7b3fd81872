"""Answers at the wire, one after the other: an exception is raised, and the last one stays."""

import json
from dataclasses import dataclass, field

import httpx

from contract.problems import PROBLEMS, ProblemCode


@dataclass
class ScriptedWire:
    """For httpx.MockTransport; remembers what was asked."""

    answers: list[httpx.Response | Exception]
    asked: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


def problem(code: ProblemCode, **more: object) -> httpx.Response:
    """The answer that a controller gives with this code."""
    kind = PROBLEMS[code]
    body = {
        "type": f"urn:dynofarm:problem:{code}",
        "title": code,
        "status": kind.status,
        "detail": f"the detail of {code}",
        "code": code,
        "fault": kind.fault,
        "retryable": kind.retryable,
        **more,
    }
    headers = {"content-type": "application/problem+json"}
    return httpx.Response(kind.status, content=json.dumps(body), headers=headers)
