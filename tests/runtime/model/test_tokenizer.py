"""Token ids are those of transformers' own tokenizers with the same vocabulary and merges."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, pre_tokenizers
from transformers import (
    GPT2Tokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)

from runtime.errors import ModelFileCorruptError, TokenizerMismatchError
from runtime.model.gguf_file import GGUFFile
from runtime.model.gguf_tokenizer import PRE_TOKENIZERS, gguf_tokenizer
from runtime.model.tokenizer import Tokenizer, folder_tokenizer
from tests.runtime.model.tiny_models import TEXT, gguf_recipe

TEXTS = {
    "empty": "",
    "words": "The quick brown fox, it's over the lazy dog's back; we'll see they've gone.",
    "digits": "In 2024, 3.14159 and 1234567890; x86_64 v2 ١٢٣ ½",
    "spaces": "  two  three   four\tTab\n\nblank lines \n  indented\r\n end  ",
    "code": 'def f(x: int) -> str:\n    return f"{x!r:>10}"  # ok\n\tif (a<=b) && c|d { y+=1; }',
    "unicode": "Grüße aus Köln – naïve café, Привет, 你好世界, こんにちは, שלום, e\u0301",
    "emoji": "🙂👩‍👩‍👧‍👦🇩🇪 end",
    "control": "null\x00 bell\x07 \u200b zero width \ufeff",
    "special": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|endoftext|>",
    "nearly special": "<|im_start |> <|im_ending|> <|im_end|",
    "special glued": "a<|im_end|>b<|im_end|><|im_end|> c",
    "long": "ab" * 500 + " " * 40 + "\n" * 5,
}


@pytest.fixture(scope="module")
def real(real_gguf: Path) -> Tokenizer:
    file = GGUFFile(real_gguf)
    tokenizer = gguf_tokenizer(file)
    file.close()
    return tokenizer


@pytest.fixture(scope="module")
def byte_pairs(real_gguf: Path) -> "BytePairs":
    file = GGUFFile(real_gguf)
    file.close()
    return BytePairs(file)


class BytePairs:
    """Byte-level BPE as the papers state it: split, map bytes to letters, merge the earliest pair. Slow."""

    def __init__(self, file: GGUFFile) -> None:
        tokens, merges = file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.merges"]
        types = file.metadata["tokenizer.ggml.token_type"]
        assert isinstance(tokens, list)
        assert isinstance(merges, list)
        assert isinstance(types, list)
        self.ids = {str(token): token_id for token_id, token in enumerate(tokens)}
        self.ranks = {tuple(str(merge).split(" ")): rank for rank, merge in enumerate(merges)}
        special = [str(token) for token, kind in zip(tokens, types, strict=True) if kind == 3]
        self.special = regex.compile("(" + "|".join(map(regex.escape, sorted(special, key=len)[::-1])) + ")")
        self.words = regex.compile(
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        )
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        self.letters = {byte: chr(byte) for byte in printable}
        others = [byte for byte in range(256) if byte not in self.letters]
        self.letters |= {byte: chr(256 + index) for index, byte in enumerate(others)}

    def can_spell(self, text: str) -> bool:
        return all(self.letters[byte] in self.ids for byte in text.encode())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in filter(None, self.special.split(text)):
            if self.special.fullmatch(part):
                ids.append(self.ids[part])
                continue
            for piece in filter(None, regex.split(r"(\p{N})", part)):  # SmolLM: each digit alone
                for word in self.words.findall(piece):
                    # A vocabulary may lack rare bytes (SmolLM's does); they are dropped, as in transformers.
                    ids += [self.ids[token] for token in self.merge(word) if token in self.ids]
        return ids

    def merge(self, word: str) -> list[str]:
        parts = [self.letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            at = pairs.index(best)
            parts[at : at + 2] = ["".join(best)]
        return parts


@pytest.mark.parametrize("name", TEXTS)
def test_ids_of_the_real_vocabulary_are_those_of_plain_byte_pair_encoding(
    name: str, real: Tokenizer, byte_pairs: BytePairs
) -> None:
    assert real.encode(TEXTS[name]) == byte_pairs.encode(TEXTS[name])


@settings(max_examples=150)
@given(text=st.text(max_size=60))
def test_any_text_encodes_as_plain_byte_pair_encoding_and_decodes_to_itself(
    real: Tokenizer, byte_pairs: BytePairs, text: str
) -> None:
    ids = real.encode(text)
    assert ids == byte_pairs.encode(text)
    if byte_pairs.can_spell(text):
        assert real.decode(ids) == text


@pytest.fixture(scope="module")
def real_in_transformers(real_gguf: Path) -> PreTrainedTokenizerBase:
    """transformers' GPT-2 tokenizer with these merges; SmolLM's is that one behind single digits."""
    theirs = in_transformers(GPT2Tokenizer, real_gguf)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), theirs.backend_tokenizer.pre_tokenizer]
    )
    return theirs


def in_transformers(kind: type[PreTrainedTokenizerBase], path: Path) -> PreTrainedTokenizerBase:
    file = GGUFFile(path)
    file.close()
    tokens, merges = file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.merges"]
    types = file.metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(merges, list)
    assert isinstance(types, list)
    theirs = kind(
        vocab={token: token_id for token_id, token in enumerate(tokens)},
        merges=[tuple(str(merge).split(" ")) for merge in merges],
    )
    special = [
        AddedToken(token, special=True, normalized=False)
        for token, token_type in zip(tokens, types, strict=True)
        if token_type == 3
    ]
    theirs.add_tokens(special, special_tokens=True)
    return theirs


@pytest.mark.parametrize("name", TEXTS)
def test_ids_of_the_real_vocabulary_are_those_of_transformers(
    name: str, real: Tokenizer, real_in_transformers: PreTrainedTokenizerBase
) -> None:
    expected = real_in_transformers(TEXTS[name], add_special_tokens=False)["input_ids"]
    assert real.encode(TEXTS[name]) == expected


@pytest.mark.parametrize(("pre", "kind"), [("gpt-2", GPT2Tokenizer), ("qwen2", Qwen2Tokenizer)])
def test_each_pre_tokeniser_splits_as_its_family_does_in_transformers(
    pre: str, kind: type[PreTrainedTokenizerBase], tiny_hf: PreTrainedModel, tmp_path: Path
) -> None:
    path = gguf_recipe(tiny_hf, pre).write(tmp_path / "tiny.gguf")
    ours, theirs = load_gguf_tokenizer(path), in_transformers(kind, path)
    for text in [*TEXTS.values(), TEXT]:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


def test_the_default_pre_tokeniser_splits_punctuation_and_digits_by_three(
    tiny_hf: PreTrainedModel, tmp_path: Path
) -> None:
    """llama.cpp's patterns for files without a name: the words between are visible in the splits."""
    splits = PRE_TOKENIZERS["default"]().pre_tokenize_str("a b12345 c==d, it's")
    assert [piece for piece, _ in splits] == [
        "a", "Ġb", "123", "45", "Ġc", "==", "d", ",", "Ġit", "'", "s",
    ]  # fmt: skip
    recipe = gguf_recipe(tiny_hf)
    del recipe.metadata["tokenizer.ggml.pre"]
    ours = load_gguf_tokenizer(recipe.write(tmp_path / "tiny.gguf"))
    assert ours.decode(ours.encode(TEXT)) == TEXT


def load_gguf_tokenizer(path: Path) -> Tokenizer:
    file = GGUFFile(path)
    tokenizer = gguf_tokenizer(file)
    file.close()
    return tokenizer


def test_end_of_turn_and_end_of_text_both_end_a_turn(real: Tokenizer) -> None:
    assert real.eos_ids == {*real.encode("<|im_end|>"), *real.encode("<|endoftext|>")}
    assert len(real.eos_ids) == 2


def test_bytes_cut_inside_a_character_decode_to_the_replacement(real: Tokenizer) -> None:
    ids = real.encode("🙂")
    assert len(ids) > 1
    assert "\ufffd" in real.decode(ids[:1])


def test_a_folders_tokenizer_is_that_of_its_json(tiny_folder: Path) -> None:
    tokenizer = folder_tokenizer(tiny_folder)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tiny_folder / "tokenizer.json"))
    for text in [*TEXTS.values(), TEXT]:
        assert tokenizer.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.vocab_size == len(theirs)


def test_a_folder_may_declare_several_end_tokens(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_folder / "tokenizer.json", tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [40, 41]}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 42}))
    specials = folder_tokenizer(tiny_folder).encode("<|im_end|><|endoftext|>")
    assert folder_tokenizer(tmp_path).eos_ids == {40, 41, 42, *specials}


def test_truncation_asked_for_by_the_file_is_not_done(tiny_folder: Path, tmp_path: Path) -> None:
    settings = json.loads((tiny_folder / "tokenizer.json").read_text())
    settings["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    assert folder_tokenizer(tmp_path).encode(TEXT) == folder_tokenizer(tiny_folder).encode(TEXT)


def spoilt(folder: Path, tmp_path: Path, **changes: object) -> Path:
    settings = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings | changes))
    return tmp_path


def test_random_merges_asked_for_by_the_file_are_not_made(tiny_folder: Path, tmp_path: Path) -> None:
    model = json.loads((tiny_folder / "tokenizer.json").read_text())["model"]
    random = folder_tokenizer(spoilt(tiny_folder, tmp_path, model=model | {"dropout": 0.9}))
    assert random.encode(TEXT) == folder_tokenizer(tiny_folder).encode(TEXT)


def test_a_file_at_which_the_package_panics_is_refused(
    tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    with pytest.raises(ModelFileCorruptError, match="not a tokenizer"):
        folder_tokenizer(spoilt(tiny_folder, tmp_path, normalizer=broken))
    assert "panicked" in capfd.readouterr().err, "the package says it itself, beside our error"


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"},
        {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None, "byte_fallback": False},
    ],
    ids=lambda model: str(model["type"]),
)
def test_a_text_that_the_vocabulary_cannot_say_is_a_mismatch(
    model: dict[str, object], tiny_folder: Path, tmp_path: Path
) -> None:
    tokenizer = folder_tokenizer(spoilt(tiny_folder, tmp_path, model=model, added_tokens=[]))
    with pytest.raises(TokenizerMismatchError, match="cannot encode"):
        tokenizer.encode("words")


def test_a_text_at_which_the_package_panics_is_a_mismatch(
    tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nothing = {"type": "Replace", "pattern": {"String": ""}, "content": "y"}
    tokenizer = folder_tokenizer(spoilt(tiny_folder, tmp_path, normalizer=nothing))
    with pytest.raises(TokenizerMismatchError, match="cannot encode"):
        tokenizer.encode("é and more")
    assert "panicked" in capfd.readouterr().err


@pytest.mark.parametrize("end_token", [-1, 300, 10**30])
def test_an_end_token_that_the_model_cannot_make_is_a_mismatch(
    end_token: int, tiny_folder: Path, tmp_path: Path
) -> None:
    shutil.copy(tiny_folder / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": end_token}))
    tokenizer = folder_tokenizer(tmp_path)
    with pytest.raises(TokenizerMismatchError, match=f"end token {end_token} "):
        tokenizer.check_fits(300, tmp_path)
