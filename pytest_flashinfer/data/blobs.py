"""Tensors stored in safetensors files: found, and checked by their header alone, without loading torch."""

from __future__ import annotations

import math
import os
import posixpath
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.dtypes import FOUR_BITS, PACKED, PAIRS, stored_shape
from pytest_flashinfer.data.files import decode, reason_of, refuse
from pytest_flashinfer.data.jsontext import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_flashinfer.data.faults import FaultKind
    from pytest_flashinfer.data.model import Definition, InputSpec, TensorSpec

MAX_HEADER = 16 << 20
MAX_RANK = 64  # of torch's tensors
_POINTER = b"version https://git-lfs"
_DTYPES = {
    "F64": ("float64", 64), "F32": ("float32", 32), "F16": ("float16", 16), "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8), "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F4": ("float4_e2m1", 4), "I64": ("int64", 64), "I32": ("int32", 32), "I16": ("int16", 16), "I8": ("int8", 8),
    "U64": ("uint64", 64), "U32": ("uint32", 32), "U16": ("uint16", 16), "U8": ("uint8", 8), "BOOL": ("bool", 8),
}  # fmt: skip
_BYTES = ("uint8", "int8")


class BlobError(Exception):
    """Why a stored tensor cannot be used, in one line; kind `skip` where only the download is missing."""

    def __init__(self, message: str, kind: FaultKind = "fault") -> None:
        super().__init__(message)
        self.message, self.kind = message, kind


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file; its bytes are `start` to `end` of the file, row-major and little-endian.

    `dtype` is named as in definitions. `note` tells of a file that was found elsewhere than its path says.
    """

    path: Path
    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    note: str | None = None


def candidates(root: Path, relative: str, definition: str) -> list[Path]:
    """List where a blob may be: where its path says, and with the definition's own folder left out or put in.

    The path is judged as it is written, links are followed: people keep large files on another disk.
    Raises BlobError for a path that leaves the data set.
    """
    plain = posixpath.normpath(relative.replace("\\", "/"))
    if "\0" in relative or plain.startswith(("/", "../")) or plain in (".", "..") or plain[1:2] == ":":
        raise BlobError(f"path {relative!r} leaves the data set: refused; blobs lie below its root")
    folder, name = posixpath.split(plain)
    other = posixpath.dirname(folder) if posixpath.basename(folder) == definition else f"{folder}/{definition}"
    return [root / plain, root / other.lstrip("/") / name]


def locate(root: Path, relative: str, definition: str) -> tuple[Path, str | None]:
    """Find a blob; the note names both places where it is at the second. Raises BlobError."""
    tried = candidates(root, relative, definition)
    for number, path in enumerate(tried):
        if os.path.lexists(path):
            return path, None if number == 0 else f"not at {tried[0]}; found at {path}"
    top = root / posixpath.normpath(relative).split("/")[0]
    downloaded = os.path.isdir(top)  # noqa: PTH112 - of a name that is too long, Path raises
    hint = "" if downloaded else "; the data set's blobs are not here: download them too"
    raise BlobError(f"no file at {tried[0]}, nor at {tried[1]}{hint}", "fault" if downloaded else "skip")


def read_header(path: Path, root: Path | None = None) -> dict[str, StoredTensor]:
    """Read what tensors a file holds; `root` is the data set's, for the message. Raises BlobError."""
    reason = refuse(path)
    if reason:
        raise BlobError(f"{path.name}: {reason}")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(max(8, len(_POINTER)))
            if start.startswith(_POINTER):
                raise BlobError(f'Git LFS pointer; run git lfs pull --include "{_below(path, root)}"', "skip")
            length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else size + 1  # noqa: PLR2004
            if length + 8 > size or length > MAX_HEADER or length < 2:  # noqa: PLR2004 - "{}"
                raise BlobError(f"{path.name}: not a safetensors file ({size} bytes)")
            file.seek(8)
            header = file.read(length)
    except OSError as error:
        raise BlobError(f"{path.name}: cannot be read: {reason_of(error)}") from error
    text, _ = decode(header)
    document = parse_json(text, path)
    if document.faults or not isinstance(document.value, dict):
        reason = document.faults[0].message if document.faults and text.strip() else "its header is not JSON"
        raise BlobError(f"{path.name}: not a safetensors file: {reason}")
    tensors = dict(_tensors(path, document.value, 8 + length, size))
    in_order = sorted((each for each in tensors.values() if each.end > each.start), key=lambda each: each.start)
    for one, two in pairwise(in_order):
        if two.start < one.end:
            raise BlobError(f"{path.name}: damaged: tensors {one.key!r} and {two.key!r} overlap")
    return tensors


def _below(path: Path, root: Path | None) -> str:
    return path.relative_to(root).as_posix() if root is not None and path.is_relative_to(root) else path.name


def _tensors(path: Path, header: Mapping[str, Any], data: int, size: int) -> Iterator[tuple[str, StoredTensor]]:
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        try:
            dtype, bits = _DTYPES[entry["dtype"]]
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            sound = len(shape) <= MAX_RANK and all(type(part) is int and part >= 0 for part in (*shape, begin, end))
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise BlobError(f"{path.name}: not a safetensors file: tensor {key!r} is not described as one")
        if (end - begin) * 8 != math.prod(shape) * bits or data + end > size:
            raise BlobError(f"{path.name}: truncated or damaged: tensor {key!r} does not fit the file")
        yield key, StoredTensor(path, key, dtype, shape, data + begin, data + end)


def find_tensor(
    root: Path, spec: InputSpec, definition: Definition, name: str, sizes: Mapping[str, int]
) -> StoredTensor:
    """Find the stored tensor for an input and check its dtype and shape. Raises BlobError."""
    path, note = locate(root, spec.path or "", definition.name)
    tensors = read_header(path, root)
    stored = tensors.get(spec.tensor_key or "")
    if stored is None:
        have = ", ".join(sorted(tensors)) or "nothing"
        raise BlobError(f"{path.name}: want tensor {spec.tensor_key!r}, got {have}")
    wanted = definition.inputs[name]
    if not _fits(stored.dtype, wanted.dtype):
        raise BlobError(f"{path.name}: tensor {stored.key!r}: want dtype {wanted.dtype}, got {stored.dtype}")
    shape = concrete_shape(wanted, sizes)
    if shape is not None:
        due, why = _stored_shape(wanted, stored.dtype, shape)
        if stored.shape != due and not (wanted.shape is None and stored.shape == (1,)):
            said = f"want shape {_show(due)}{why}, got {_show(stored.shape)}"
            raise BlobError(f"{path.name}: tensor {stored.key!r}: {said}")
    return StoredTensor(path, stored.key, stored.dtype, stored.shape, stored.start, stored.end, note)


def concrete_shape(tensor: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Put sizes for the axes of a shape; `None` where an axis has no size yet. A scalar has the shape ()."""
    shape = [int(size) if size.isdecimal() else sizes.get(size) for size in tensor.shape or ()]
    return None if None in shape else tuple(size for size in shape if size is not None)


def _fits(stored: str, wanted: str) -> bool:
    return (
        wanted in ("unknown", stored)
        or (wanted in FOUR_BITS and stored in _BYTES)
        or (wanted == PAIRS and stored == "float4_e2m1")
    )


def _stored_shape(wanted: TensorSpec, stored: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Give the shape that a file has for a declared one, and why it is another: it may count bytes, or halves of them.

    Raises BlobError where an odd last axis cannot be packed.
    """
    if shape and wanted.dtype in PACKED and stored in _BYTES:
        try:
            return stored_shape(shape, wanted.dtype), f" ({_show(shape)} with two elements a byte)"
        except ValueError as error:
            raise BlobError(str(error)) from None
    if shape and wanted.dtype == PAIRS and stored == "float4_e2m1":
        return (*shape[:-1], 2 * shape[-1]), f" ({_show(shape)} of pairs)"
    return shape, ""


def _show(shape: Sequence[int]) -> str:
    return str(list(shape))
