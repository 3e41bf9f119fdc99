"""Reads the header of a GGUF file: metadata and the table of tensors, whose data stay in the mapped file.

The format is documented in ggml's `docs/gguf.md`. `gguf.GGUFReader` reads it too, but makes several numpy arrays of
each string, which takes seconds for a vocabulary; a start reads a header several times.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from core.errors import ModelError

SUPPORTED_VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32: Final = _SCALARS[4]
_U64: Final = _SCALARS[10]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` is in torch's order, `offset` counts bytes from the start of the file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A mapped file. The mapping is private: what is written to it never reaches the disk.

    It is unmapped when neither this object nor a tensor that was made over it is left.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    data: mmap.mmap

    @property
    def architecture(self) -> str:
        """`general.architecture`, which prefixes the model's own keys. Raises `ModelError` if there is none."""
        architecture = self.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise ModelError(f"{self.path} has no general.architecture; it is not the file of a whole model")
        return architecture

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key of the model's architecture, `key` without its prefix."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def require(self, key: str) -> Any:
        """As `get`; raises `ModelError` if the file lacks the key."""
        value = self.get(key)
        if value is None:
            raise ModelError(f"{self.path} lacks the metadata {self.architecture}.{key}; convert the model again")
        return value


def locate(path: Path) -> Path:
    """The file that `path` is, or the only GGUF file in the folder `path`. Raises `ModelError` if there is none."""
    if not path.is_dir():
        if not path.exists():
            raise ModelError(f"There is no file {path}")
        return path
    found = sorted(item for item in path.iterdir() if item.suffix.lower() == ".gguf")
    if len(found) == 1:
        return found[0]
    if not found:
        raise ModelError(f"The folder {path} has no .gguf file")
    names = ", ".join(item.name for item in found)
    raise ModelError(f"The folder {path} has {len(found)} .gguf files ({names}); name one of them as the model")


def read_gguf(path: Path) -> GGUFFile:
    """Read the header of the file at `path`, as `locate` finds it. Raises `ModelError` if it is not a whole GGUF."""
    path = locate(path)
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file: it does not begin with the four bytes GGUF")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    try:
        return _read(path, data)
    except struct.error as error:
        raise ModelError(f"{path} ends inside its header: {error}. Fetch the file again") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} has a header with text that is not UTF-8: {error}") from error


def _read(path: Path, data: mmap.mmap) -> GGUFFile:
    cursor = _Cursor(data, 4)
    version = cursor.scalar(_U32)
    if version not in SUPPORTED_VERSIONS:
        hint = "it is in big-endian byte order" if version & 0xFFFF == 0 else "convert the model again"
        raise ModelError(f"{path} is GGUF version {version}; supported are 2 and 3 in little-endian order ({hint})")
    num_tensors, num_keys = cursor.scalar(_U64), cursor.scalar(_U64)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string()
        metadata[key] = cursor.value(path, cursor.scalar(_U32))
    if (num_parts := metadata.get("split.count", 1)) > 1:
        raise ModelError(f"{path} is one of {num_parts} parts of a model; join them with llama-gguf-split --merge")
    rows = [cursor.tensor_row() for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ModelError(f"{path} has general.alignment {alignment!r}, expected a power of two")
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, raw_type, dims, offset in rows:
        info = _tensor_info(path, name, raw_type, dims, start + offset)
        if name in tensors:
            raise ModelError(f"{path} has two tensors named {name}; convert the model again")
        if info.offset + info.num_bytes > len(data):
            raise ModelError(f"{path} ends inside its tensor {name}; fetch the file again")
        tensors[name] = info
    return GGUFFile(path, metadata, tensors, data)


def _tensor_info(path: Path, name: str, raw_type: int, dims: tuple[int, ...], offset: int) -> TensorInfo:
    try:
        kind = GGMLQuantizationType(raw_type)
    except ValueError:
        raise ModelError(
            f"{path}: the tensor {name} is of ggml type {raw_type}, which the installed gguf package does not know"
        ) from None
    row_block, block_bytes = GGML_QUANT_SIZES[kind]
    shape = tuple(reversed(dims))
    if shape and shape[-1] % row_block:
        raise ModelError(f"{path}: the tensor {name} has rows of {shape[-1]}, no multiple of {row_block} ({kind.name})")
    return TensorInfo(name, kind, shape, offset, math.prod(shape) // row_block * block_bytes)


class _Cursor:
    """A place in the header that moves on as values are read."""

    __slots__ = ("data", "position")

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self.data = data
        self.position = position

    def scalar(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.data, self.position)
        self.position += form.size
        return value

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        data, position, length_at = self.data, self.position, _U64.unpack_from
        texts = []
        for _ in range(count):
            start = position + 8
            position = start + length_at(data, position)[0]
            if position > len(data):
                raise struct.error(f"a text of {position - start} bytes at {start}")
            texts.append(data[start:position].decode())
        self.position = position
        return texts

    def value(self, path: Path, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ModelError(f"{path} has metadata of the unknown type {kind}")
        item_kind, count = self.scalar(_U32), self.scalar(_U64)
        if item_kind == _STRING:
            return self.strings(count)
        if item_kind in _SCALARS:
            form = struct.Struct(f"<{count}{_SCALARS[item_kind].format[1:]}")
            values = list(form.unpack_from(self.data, self.position))
            self.position += form.size
            return values
        return [self.value(path, item_kind) for _ in range(count)]

    def tensor_row(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self.string()
        dims = tuple(self.scalar(_U64) for _ in range(self.scalar(_U32)))
        return name, self.scalar(_U32), dims, self.scalar(_U64)
