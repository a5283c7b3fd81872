"""A GGUF from an unknown hand gives a model or one typed refusal, and never more memory than it has bytes."""

import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from runtime.errors import (
    ModelFileCorruptError,
    ModelFileMissingError,
    RuntimeFault,
    UnsupportedModelFeatureError,
)
from runtime.model.gguf_file import GGUFFile
from runtime.model.gguf_loader import GGUFSource
from tests.runtime.model.tiny_models import gguf_recipe


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tensors of three types and a bit of every kind of metadata."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_string("text", "grüße")
    writer.add_bool("flag", True)
    writer.add_float64("real", 0.25)
    writer.add_array("words", ["a", "bc"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("plain", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("half", np.arange(6, dtype=np.float16).reshape(3, 2))
    matrix = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    packed = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_are_read_as_written(small: Path) -> None:
    file = GGUFFile(small)
    assert file.metadata["text"] == "grüße"
    assert file.metadata["flag"] is True
    assert file.metadata["real"] == 0.25
    assert file.metadata["words"] == ["a", "bc"]
    assert file.metadata["numbers"] == [1, 2, 3]
    np.testing.assert_array_equal(file.read(file.tensors["plain"]), np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(file.read(file.tensors["half"]), np.arange(6).reshape(3, 2))
    packed = file.read(file.tensors["packed"])
    np.testing.assert_allclose(packed, np.linspace(-1, 1, 128).reshape(2, 64), atol=0.005)
    file.close()


def test_our_reader_agrees_with_the_gguf_packages_reader(small: Path) -> None:
    file = GGUFFile(small)
    for theirs in gguf.GGUFReader(small).tensors:
        ours = file.tensors[theirs.name]
        assert (ours.kind, ours.start, ours.size_bytes) == (
            theirs.tensor_type,
            theirs.data_offset,
            theirs.n_bytes,
        )
    file.close()


def test_every_possible_cut_is_named_with_expected_and_actual_bytes(small: Path, tmp_path: Path) -> None:
    whole = small.read_bytes()
    file = GGUFFile(small)
    end = max(entry.start + entry.size_bytes for entry in file.tensors.values())
    file.close()
    cut = tmp_path / "cut.gguf"
    for size in range(end):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelFileCorruptError) as caught:
            GGUFFile(cut)
        if size >= 4:
            assert caught.value.actual_bytes == size
            assert caught.value.expected_bytes is not None
            assert size < caught.value.expected_bytes <= len(whole)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 255)), min_size=1, max_size=3))
def test_flipped_bytes_give_a_file_or_a_typed_fault(
    small: Path, tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(small.read_bytes())
    for position, mask in flips:
        data[position % len(data)] ^= mask
    path = tmp_path / "flipped.gguf"
    path.write_bytes(data)
    try:
        source = GGUFSource(path)
    except RuntimeFault:
        return
    source.close()


def header(*parts: bytes, tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes = b"t", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


HOSTILE: dict[str, tuple[bytes, type[RuntimeFault], str]] = {
    "another format": (b"PK\x03\x04" + bytes(64), ModelFileCorruptError, "not a GGUF file"),
    "empty": (b"", ModelFileCorruptError, "not a GGUF file"),
    "unknown version": (header(version=9), UnsupportedModelFeatureError, "GGUF version 9"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), UnsupportedModelFeatureError, "GGUF version"),
    "2^60 keys": (header(keys=1 << 60), ModelFileCorruptError, "cut short in its header"),
    "2^60 tensors": (header(tensors=1 << 60), ModelFileCorruptError, "cut short in its header"),
    "a key of 2^62 bytes": (
        header(struct.pack("<Q", 1 << 62), keys=1),
        ModelFileCorruptError,
        "cut short in its header",
    ),
    "an array of 2^61 numbers": (
        header(text(b"k"), struct.pack("<IIQ", 9, 4, 1 << 61), keys=1),
        ModelFileCorruptError,
        "cut short in its header",
    ),
    "an array of 2^59 texts": (
        header(text(b"k"), struct.pack("<IIQ", 9, 8, 1 << 59), keys=1),
        ModelFileCorruptError,
        "cut short in its header",
    ),
    "arrays of arrays": (
        header(text(b"k"), struct.pack("<IIQ", 9, 9, 1), bytes(16), keys=1),
        ModelFileCorruptError,
        "array of arrays",
    ),
    "unknown metadata type": (
        header(text(b"k"), struct.pack("<I", 77), keys=1),
        ModelFileCorruptError,
        "unknown metadata type 77",
    ),
    "a key that is not text": (
        header(text(b"\xff\xfe"), bytes(16), keys=1),
        ModelFileCorruptError,
        "not UTF-8",
    ),
    "a tensor of 2^60 values": (
        header(tensor(dims=(1 << 60,)), tensors=1),
        ModelFileCorruptError,
        "cut short in its tensors",
    ),
    "sizes whose product overflows 64 bits": (
        header(tensor(dims=(1 << 33, 1 << 33)), tensors=1),
        ModelFileCorruptError,
        "cut short in its tensors",
    ),
    "an offset behind the end": (
        header(tensor(offset=1 << 63), tensors=1),
        ModelFileCorruptError,
        "cut short in its tensors",
    ),
    "no dimensions": (header(tensor(dims=()), tensors=1), ModelFileCorruptError, "has 0 dimensions"),
    "2^31 dimensions": (
        header(text(b"t"), struct.pack("<I", 1 << 31), bytes(64), tensors=1),
        ModelFileCorruptError,
        "dimensions",
    ),
    "an empty tensor": (header(tensor(dims=(0,)), tensors=1), ModelFileCorruptError, "cannot be of type"),
    "half a quantised block": (
        header(tensor(dims=(33,), kind=8), bytes(64), tensors=1),
        ModelFileCorruptError,
        "cannot be of type Q8_0",
    ),
    "unknown tensor type": (header(tensor(kind=999), tensors=1), ModelFileCorruptError, "unknown type 999"),
    "the same tensor twice": (
        header(tensor(), tensor(), bytes(300), tensors=2),
        ModelFileCorruptError,
        "the same name",
    ),
    "tensors over each other": (
        header(tensor(), tensor(name=b"u", offset=4), bytes(300), tensors=2),
        ModelFileCorruptError,
        "tensor u lies over tensor",
    ),
    "alignment 0": (
        header(text(b"general.alignment"), struct.pack("<II", 4, 0), keys=1),
        ModelFileCorruptError,
        "general.alignment is 0",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    data, error, message = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(error, match=message):
        GGUFFile(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissingError, match=r"absent\.gguf"):
        GGUFFile(tmp_path / "absent.gguf")


def test_a_file_cut_after_it_was_opened_is_refused(tiny_hf: PreTrainedModel, tmp_path: Path) -> None:
    path = gguf_recipe(tiny_hf).write(tmp_path / "shrinking.gguf")
    file = GGUFFile(path)
    entry = file.tensors["token_embd.weight"]
    os.truncate(path, entry.start + 40_000)
    with pytest.raises(ModelFileCorruptError, match=r"token_embd\.weight ends early") as caught:
        file.read(entry)
    assert (caught.value.expected_bytes, caught.value.actual_bytes) == (entry.size_bytes, 40_000)
    file.close()
