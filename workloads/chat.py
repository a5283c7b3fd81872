"""Chat formats as data: the marks around each message, so that no target needs a template engine."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """opens[role] stands before a message, `close` after it; `answer` makes the model speak.

    An answer's own end mark is not among its tokens, so `close` also ends each answer.
    """

    opens: MappingProxyType[str, str]
    close: str
    answer: str


_CHATML_ROLES: Final = ("system", "user", "tool")

CHAT_FORMATS: Final = MappingProxyType(
    {
        # Source: the chat template of SmolLM2 and Qwen2 (model metadata).
        "chatml": ChatFormat(
            opens=MappingProxyType({role: f"<|im_start|>{role}\n" for role in _CHATML_ROLES}),
            close="<|im_end|>\n",
            answer="<|im_start|>assistant\n",
        ),
        # No marks at all: what is measured is then exactly the text that the file gives.
        "plain": ChatFormat(
            opens=MappingProxyType(dict.fromkeys(_CHATML_ROLES, "")),
            close="",
            answer="",
        ),
    }
)
