"""The byte-level BPE that a GGUF carries: tokens, their types, merges and the name of a pre-tokeniser."""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from runtime.errors import ModelFileCorruptError, TokenizerMismatchError, UnsupportedModelFeatureError
from runtime.model.gguf_file import GGUFFile
from runtime.model.tokenizer import Tokenizer

Item = TypeVar("Item", str, int)


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` of the GGUF specification; the types that are not ordinary text."""

    CONTROL = 3
    USER_DEFINED = 4


_GPT2_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_QWEN2_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _qwen2() -> PreTokenizer:
    return _by_patterns(_QWEN2_WORDS)


def _default() -> PreTokenizer:
    # What llama.cpp falls back to for files that do not know their pre-tokeniser: its patterns in its order.
    return _by_patterns(r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")


def _by_patterns(*patterns: str) -> PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


PRE_TOKENIZERS: Final[dict[str, Callable[[], PreTokenizer]]] = {
    "default": _default,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": _qwen2,
}
_NORMALISED: Final = ("qwen2",)


def gguf_tokenizer(file: GGUFFile) -> Tokenizer:
    """Build it; UnsupportedModelFeatureError for another model or pre-tokeniser than those above."""
    model = _text(file, "tokenizer.ggml.model")
    if model != "gpt2":
        raise UnsupportedModelFeatureError(f"tokenizer.ggml.model = {model}", f"{file.path}: supported: gpt2")
    pre = _text(file, "tokenizer.ggml.pre") if "tokenizer.ggml.pre" in file.metadata else "default"
    if pre not in PRE_TOKENIZERS:
        raise UnsupportedModelFeatureError(
            f"tokenizer.ggml.pre = {pre}", f"{file.path}: supported: {', '.join(PRE_TOKENIZERS)}"
        )
    tokens = _list(file, "tokenizer.ggml.tokens", str)
    types = _list(file, "tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise TokenizerMismatchError(f"{file.path}: {len(tokens)} tokens, {len(types)} token types")
    inner = tokenizers.Tokenizer(_bpe(file, tokens))
    inner.pre_tokenizer = PRE_TOKENIZERS[pre]()
    inner.decoder = decoders.ByteLevel()
    if pre in _NORMALISED:
        inner.normalizer = normalizers.NFC()
    inner.add_special_tokens(_added(tokens, types, TokenType.CONTROL))
    inner.add_tokens(_added(tokens, types, TokenType.USER_DEFINED))
    return Tokenizer(inner, _eos_ids(file, len(tokens)))


def _bpe(file: GGUFFile, tokens: list[str]) -> models.BPE:
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise TokenizerMismatchError(f"{file.path}: two tokens have the same text")
    merges = []
    for merge in _list(file, "tokenizer.ggml.merges", str):
        left, space, right = merge.partition(" ")
        if not space:
            raise ModelFileCorruptError(file.path, f"merge {merge!r} is not two tokens")
        merges.append((left, right))
    try:
        return models.BPE(vocabulary, merges)
    except Exception as error:  # the package raises bare Exception
        raise TokenizerMismatchError(f"{file.path}: merges and tokens do not fit: {error}") from error


def _added(tokens: list[str], types: list[int], wanted: TokenType) -> list[AddedToken]:
    return [
        AddedToken(token, special=wanted is TokenType.CONTROL, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind == wanted
    ]


def _eos_ids(file: GGUFFile, token_count: int) -> list[int]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ids = [file.metadata[key] for key in keys if key in file.metadata]
    known = [token_id for token_id in ids if isinstance(token_id, int) and 0 <= token_id < token_count]
    if len(known) != len(ids):
        raise TokenizerMismatchError(f"{file.path}: the end tokens {ids} are not among {token_count} tokens")
    return known


def _text(file: GGUFFile, key: str) -> str:
    value = file.metadata.get(key)
    if not isinstance(value, str):
        raise ModelFileCorruptError(file.path, f"metadata {key} is not a text but {value!r}")
    return value


def _list(file: GGUFFile, key: str, item: type[Item]) -> list[Item]:
    value = file.metadata.get(key)
    if not isinstance(value, list) or not all(type(entry) is item for entry in value):
        raise ModelFileCorruptError(file.path, f"metadata {key} is not a list of {item.__name__}")
    return [entry for entry in value if isinstance(entry, item)]
