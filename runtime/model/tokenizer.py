"""Text to token ids and back: what the runtime needs of the `tokenizers` package."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tokenizers
import tokenizers.models

from runtime.errors import (
    ModelFileCorruptError,
    ModelFileMissingError,
    RuntimeFault,
    TokenizerMismatchError,
)

END_TOKENS: Final = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "</s>")
"""Names under which the supported families end a turn or a text."""


class Tokenizer:
    """Encodes without adding anything, but knows the special tokens when the text contains them.

    eos_ids: every id after which a turn is over. vocab_size: highest id + 1. decode(encode(text)) is the text
    itself, special tokens included, where the family does not normalise and the vocabulary has every byte;
    a byte it lacks is dropped, as in transformers.
    """

    def __init__(self, inner: tokenizers.Tokenizer, declared_eos_ids: Iterable[int]) -> None:
        self._inner = inner
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        specials = (
            token_id
            for token_id, token in inner.get_added_tokens_decoder().items()
            if token.content in END_TOKENS
        )
        self.eos_ids = frozenset(declared_eos_ids) | frozenset(specials)

    def encode(self, text: str) -> list[int]:
        """TokenizerMismatchError for a text that the vocabulary has no tokens for and no way around."""
        with _named(lambda error: TokenizerMismatchError(f"the tokenizer cannot encode a text: {error}")):
            ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def check_fits(self, vocab_tokens: int, path: Path) -> None:
        """TokenizerMismatchError, which names `path`, unless all ids are below `vocab_tokens`."""
        if self.vocab_size > vocab_tokens:
            raise TokenizerMismatchError(
                f"{path}: the tokenizer has {self.vocab_size} tokens, the model {vocab_tokens}"
            )
        absent = sorted(token_id for token_id in self.eos_ids if not 0 <= token_id < vocab_tokens)
        if absent:
            raise TokenizerMismatchError(
                f"{path}: the end token {absent[0]} is not among the model's {vocab_tokens} tokens"
            )

    def decode(self, token_ids: Sequence[int]) -> str:
        """Bytes that do not form a character (a token list cut inside one) become U+FFFD."""
        with _named(lambda error: TokenizerMismatchError(f"the tokenizer cannot decode its ids: {error}")):
            return self._inner.decode(list(token_ids), skip_special_tokens=False)

    def save(self, path: Path) -> None:
        """As tokenizer.json of a Hugging Face folder."""
        self._inner.save(str(path))


@contextmanager
def _named(refusal: Callable[[BaseException], RuntimeFault]) -> Iterator[None]:
    """As `refusal`: bare Exception of the package, and panics of its Rust code, which are none."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise refusal(error) from error


def folder_tokenizer(folder: Path) -> Tokenizer:
    """From tokenizer.json of a Hugging Face folder; eos ids from generation_config.json and config.json."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileMissingError(path, "the folder has no tokenizer.json")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileMissingError(path, f"cannot be read: {error.strerror or error}") from error
    with _named(lambda error: ModelFileCorruptError(path, f"not a tokenizer: {error}")):
        inner = tokenizers.Tokenizer.from_buffer(content)
    # A file may ask for truncation, padding or random merges, which would silently change prompts.
    inner.no_truncation()
    inner.no_padding()
    if isinstance(inner.model, tokenizers.models.BPE):
        inner.model.dropout = None
    eos_ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        eos_ids |= _declared_eos(folder / name)
    return Tokenizer(inner, eos_ids)


def _declared_eos(path: Path) -> set[int]:
    if not path.is_file():
        return set()
    try:
        settings: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileMissingError(path, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileCorruptError(path, f"not JSON: {error}") from error
    declared = settings.get("eos_token_id") if isinstance(settings, Mapping) else None
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    if not all(type(token_id) is int for token_id in ids):
        raise ModelFileCorruptError(path, f"eos_token_id is {declared!r}")
    return set(ids)
