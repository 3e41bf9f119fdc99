"""The header of a file, and files that are none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import locate, read_gguf

Write = Callable[..., Path]


@pytest.fixture
def varied(write_gguf: Write) -> Path:
    """Every kind of metadata, and tensors of two types."""
    metadata = {
        "general.name": "Ünï 🙂",
        "a.bool": True,
        "a.int": 7,
        "a.float": 0.5,
        "a.strings": ["", "a", "日本", "x" * 40],
        "a.ints": [1, -2, 3],
        "a.floats": [0.5, -1.25],
        "a.bools": [True, False],
    }
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    quantised = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    tensors = {"one": values, "two": (quantised, gguf.GGMLQuantizationType.Q8_0), "three": values.astype(np.float16)}
    return write_gguf(metadata, tensors)


def test_reads_as_the_gguf_package_does(varied: Path) -> None:
    file, reader = read_gguf(varied), gguf.GGUFReader(varied)
    expected = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert dict(file.metadata) == expected
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        info = file.tensors[tensor.name]
        assert info.type == tensor.tensor_type
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.offset, info.num_bytes) == (tensor.data_offset, tensor.n_bytes)


def test_another_alignment_is_honoured(write_gguf: Write) -> None:
    values = np.arange(3, dtype=np.float32)
    path = write_gguf({"general.alignment": 256}, {"one": values})
    # The writer knows alignment only by its own setting, so the data are moved to where the header says.
    data = path.read_bytes()
    start = data.rindex(values.tobytes())
    path.write_bytes(data[:start].ljust(-(-start // 256) * 256, b"\0") + values.tobytes())
    assert read_gguf(path).tensors["one"].offset % 256 == 0


def test_a_file_that_is_cut_anywhere_is_refused(varied: Path) -> None:
    whole = varied.read_bytes()
    end = max(info.offset + info.num_bytes for info in read_gguf(varied).tensors.values())
    for length in range(end):
        varied.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"ends inside|not a GGUF"):
            read_gguf(varied)
    varied.write_bytes(whole[:end])
    read_gguf(varied)


def patched(path: Path, at: int, data: bytes) -> Path:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(bytes(whole))
    return path


def test_another_kind_of_file_is_refused(varied: Path) -> None:
    with pytest.raises(ModelError, match="not a GGUF file"):
        read_gguf(patched(varied, 0, b"PK\3\4"))


@pytest.mark.parametrize(
    ("version", "hint"), [(struct.pack("<I", 1), "version 1"), (struct.pack(">I", 3), "big-endian")]
)
def test_another_version_is_refused(varied: Path, version: bytes, hint: str) -> None:
    with pytest.raises(ModelError, match=hint):
        read_gguf(patched(varied, 4, version))


def test_an_unknown_tensor_type_is_refused_by_name(write_gguf: Write) -> None:
    path = write_gguf({}, {"some.weight": np.zeros(32, dtype=np.float32)})
    at = path.read_bytes().index(b"some.weight") + len("some.weight") + 4 + 8
    with pytest.raises(ModelError, match=r"some\.weight is of ggml type 4711"):
        read_gguf(patched(path, at, struct.pack("<I", 4711)))


def test_text_that_is_not_utf8_is_refused(write_gguf: Write) -> None:
    path = write_gguf({"general.name": "plain"})
    with pytest.raises(ModelError, match="not UTF-8"):
        read_gguf(patched(path, path.read_bytes().index(b"plain"), b"\xff"))


def test_a_part_of_a_split_model_is_refused(write_gguf: Write) -> None:
    with pytest.raises(ModelError, match="one of 3 parts"):
        read_gguf(write_gguf({"split.count": 3}))


def test_a_zero_alignment_is_refused(write_gguf: Write) -> None:
    path = write_gguf({"general.alignment": 32})
    at = path.read_bytes().index(b"general.alignment") + len("general.alignment") + 4
    with pytest.raises(ModelError, match=r"general\.alignment 0"):
        read_gguf(patched(path, at, struct.pack("<I", 0)))


def test_a_folder_must_have_exactly_one_file(write_gguf: Write, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelError, match=r"has no \.gguf file"):
        locate(folder)
    one = folder / "one.GGUF"
    write_gguf({}).rename(one)
    assert locate(folder) == locate(one) == one
    (folder / "two.gguf").write_bytes(one.read_bytes())
    with pytest.raises(ModelError, match=r"2 \.gguf files \(one\.GGUF, two\.gguf\)"):
        locate(folder)
    with pytest.raises(ModelError, match="There is no file"):
        locate(tmp_path / "absent.gguf")
