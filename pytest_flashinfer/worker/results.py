"""What a solution returned, matched with what was declared: count, type, shape, dtype, device, aliasing.

Everything here runs beside foreign code and decides nothing: the judge reads its own buffers. The functions of torch
are bound at import, before a solution can replace them.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_flashinfer.worker.memory import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Problem = list[str]  # kind, output ("" for all), message: what travels to the judge

_TENSOR = torch.Tensor
_PARAMETER = torch.nn.Parameter
_SHAPE = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
type_of = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_DEVICE = torch.Tensor.device.__get__
_LAYOUT = torch.Tensor.layout.__get__  # type: ignore[attr-defined]
_STORAGE = torch.Tensor.untyped_storage
_STRIDE = torch.Tensor.stride
_IS_CONJ = torch.Tensor.is_conj
_IS_NEG = torch.Tensor.is_neg
_NUMEL = torch.Tensor.numel
_ITEM_BYTES = torch.Tensor.element_size
_DATA_PTR = torch.Tensor.data_ptr
_STORAGE_PTR = torch.UntypedStorage.data_ptr
_ATTRIBUTES = object.__getattribute__
# never those of a subclass, which may compute only now
_ITEMS: Any = dict.items
_IN_LIST: Any = list.__iter__
_IN_TUPLE: Any = tuple.__iter__
_TEXT: Any = str.__str__
_FLOAT: Any = float.__float__
_INT: Any = int.__int__
_CLOSE: Any = CoroutineType.close
_MOST_LISTED = 4
_COMPILER = "_dynamo_"  # what torch.compile notes on its results (propagated dynamic sizes)


def pair(result: object, outputs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[Problem]]:
    """Give every declared output its returned value, by name or by order; left out are those that are missing.

    As many values as there are outputs that are not written into an input are those, as of a reference.
    """
    names = [str(output["name"]) for output in outputs]
    if result is None:
        return {}, [["count", "", "returned None: did you mean destination style?"]]
    kind = type(result)  # its `__class__` may be a property
    if issubclass(kind, dict):
        given = {_TEXT(key) if issubclass(type(key), str) else key: value for key, value in _ITEMS(result)}
        unknown = [str(key)[:80] for key in given if key not in names]
        if unknown:
            text = f"returned unknown outputs {', '.join(unknown)}; declared are {', '.join(names)}"
            return {}, [["count", "", text]]
        found = {name: given[name] for name in names if name in given}
    else:
        read = _IN_LIST if issubclass(kind, list) else _IN_TUPLE if issubclass(kind, tuple) else None
        if kind is CoroutineType:
            _CLOSE(result)  # nobody awaits it, of which Python would warn in a line of this package
        if read is None and len(names) > 1 and not issubclass(kind, (_TENSOR, int, float)):
            text = f"returned {_called(kind)}, not the {len(names)} outputs {', '.join(names)}"
            return {}, [["object", "", text]]
        values = [result] if read is None else list(read(result))
        if len(values) > len(names):
            declared = f"{len(names)} output{'s' * (len(names) != 1)}"
            return {}, [["count", "", f"{len(values)} values returned for {declared}: {', '.join(names)}"]]
        own = [str(output["name"]) for output in outputs if output["inplace"] is None]
        found = dict(zip(own if len(values) == len(own) else names, values, strict=False))
    found = {name: _plain_number(value) for name, value in found.items() if value is not None}
    missing = [str(output["name"]) for output in outputs if output["name"] not in found and not output["optional"]]
    if missing:
        have = f"{len(found)} of {len(names)} outputs returned"
        return found, [["count", "", f"{have}: missing {', '.join(missing)}"]]
    return found, []


def _plain_number(value: object) -> object:
    """Return a float or int in place of one of a subclass, such as NumPy's, without asking the subclass."""
    kind = type(value)
    if issubclass(kind, float):
        return cast("float", _FLOAT(value))
    return cast("int", _INT(value)) if issubclass(kind, int) and kind is not bool else value


def check(found: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]], device: str) -> list[Problem]:
    """Compare each value with its declaration; a result in another order is told from a wrong one."""
    specs = [output for output in outputs if output["name"] in found]
    problems = [problem for spec in specs for problem in _check_one(found[spec["name"]], spec, device)]
    if any(kind in {"shape", "dtype", "type", "object"} for kind, _, _ in problems) and len(specs) > 1:
        values = list(found.values())
        fits = [[not list(_check_one(value, spec, device)) for value in values] for spec in specs]
        if _permutation(fits):
            problems[0][2] += f"; order is {', '.join(str(output['name']) for output in outputs)}"
    return problems


def _permutation(fits: list[list[bool]]) -> bool:
    """Whether every declared output can be given a returned value of its own that fits it."""
    taken: list[int] = []
    for row in fits:
        free = next((index for index, fit in enumerate(row) if fit and index not in taken), None)
        if free is None:
            return False
        taken.append(free)
    return True


def _check_one(value: object, spec: Mapping[str, Any], device: str) -> Iterator[Problem]:
    name, size, dtype = str(spec["name"]), list(spec["live"]["size"]), DTYPES[spec["live"]["dtype"]]
    if type(value) in (bool, int, float):
        if size:
            yield ["shape", name, f"{name}: a Python {type(value).__name__} instead of a tensor of shape {size}"]
        elif type(value) is float and not dtype.is_floating_point:
            yield ["dtype", name, f"{name}: a Python float instead of {_plain(dtype)}"]
        return
    other = _other(value)
    problem = other or _disguised(value)
    if problem:
        yield ["object" if other else "type", name, f"{name}: {problem}"]
        return
    assert isinstance(value, _TENSOR)
    shape = list(_SHAPE(value))
    if shape != size:
        yield ["shape", name, f"{name}: shape {shape} instead of {size}"]
    if type_of(value) is not dtype and str(type_of(value)) not in spec["also"]:
        yield ["dtype", name, f"{name}: dtype {_plain(type_of(value))} instead of {_plain(dtype)}"]
    where = str(_DEVICE(value))
    if where != device and not (spec["scalar"] and where == "cpu"):
        yield ["device", name, f"{name}: on {where} instead of {device}"]


def _other(value: object) -> str:
    """Say which other thing than a dense tensor `value` openly is, or return the empty string."""
    if not isinstance(value, _TENSOR) or type(value) is _PARAMETER:
        return f"returned {_called(type(value))}, not a plain torch.Tensor"
    if type(value) is _TENSOR and _LAYOUT(value) is not torch.strided:
        return f"layout {_LAYOUT(value)} instead of torch.strided"
    return ""


def _called(kind: type) -> str:
    return f"{kind.__name__}{' (of an async function)' if kind is CoroutineType else ''}"


def _disguised(value: object) -> str:
    """Say how a tensor differs from a plain one, which may compute when it is looked at, or return the empty string."""
    if type(value) is not _TENSOR:
        return f"returned a subclass of torch.Tensor, {type(value).__name__}, not a plain torch.Tensor"
    attributes = sorted(name for name in map(str, _ATTRIBUTES(value, "__dict__")) if not name.startswith(_COMPILER))
    if attributes:
        listed = ", ".join(attributes[:_MOST_LISTED])
        return f"the returned tensor carries attributes of its own ({listed}); return a plain tensor"
    return ""


def storage_of(value: object) -> int:
    """Return the address of a tensor's storage, 0 for an empty one or a Python number."""
    return _STORAGE_PTR(_STORAGE(value)) if isinstance(value, _TENSOR) and _NUMEL(value) else 0


def span_of(value: object) -> range:
    """Return the addresses of the bytes from a tensor's first element to its last, none for a Python number."""
    if not isinstance(value, _TENSOR) or not _NUMEL(value):
        return range(0)
    reach = sum((size - 1) * step for size, step in zip(_SHAPE(value), _STRIDE(value), strict=True))
    return range(_DATA_PTR(value), _DATA_PTR(value) + (reach + 1) * _ITEM_BYTES(value))


def lies_in(value: object, slot: Mapping[str, Any], address: int) -> bool:
    """Say whether a value is the tensor of a slot at `address`, just as it lies there."""
    return (
        isinstance(value, _TENSOR)
        and _DATA_PTR(value) == address
        and (list(_SHAPE(value)), list(_STRIDE(value))) == (slot["size"], slot["stride"])
        and type_of(value) is DTYPES[slot["dtype"]]
        and not (_IS_CONJ(value) or _IS_NEG(value))
    )


def address_of(value: torch.Tensor) -> int:
    """Return the address of a tensor's first element."""
    return _DATA_PTR(value)


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
