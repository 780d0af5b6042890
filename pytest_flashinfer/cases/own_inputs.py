"""Inputs that a definition makes itself, through `init` or a custom entry point, asked of the reference's worker."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_flashinfer.inputs.dtypes import NOT_TENSORS, torch_dtype
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.judge.reference.origin import ModuleAbsent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition, TensorSpec, Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.judge.oracle.answers import Answers


class OwnInputs:
    """What a definition's own code makes; `made` are the names of the inputs that it has made so far."""

    def __init__(self, definition: Definition, reference: Answers) -> None:
        self.definition = definition
        self.reference = reference
        self.made: set[str] = set()
        self._absent = ""
        self._told = False

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None) -> dict[str, Any]:
        """Return inputs by name, on the reference's device; none where the code needs a module that is not installed.

        Of a listed workload, those that it leaves to chance, or marks as custom. Raises InputsError.
        """
        definition = self.definition
        what = "custom" if definition.custom_inputs else "init"
        kinds = ("custom", "random") if what == "init" else ("custom",)
        wanted = [
            name
            for name in definition.inputs
            if name not in recipe.absent
            and (workload is None or (name in workload.inputs and workload.inputs[name].kind in kinds))
        ]
        if not wanted or self._absent:
            return {}
        sizes = {**definition.const_axes, **axes}
        try:
            made, unused = self.reference.make(what, sizes, recipe.short_seed, _scalars(workload, recipe))
        except ModuleAbsent as error:
            self._warn(str(error))
            self._absent = str(error)
            return {}
        found = {name: as_declared(name, made[name], definition.inputs[name]) for name in wanted if name in made}
        lacking = [name for name in wanted if name not in made and _is_custom(workload, name)]
        if lacking:
            raise InputsError(f"{definition.name}: `{definition.custom_inputs or 'init'}` makes no `{lacking[0]}`")
        if not found:
            instead = f"; it makes {', '.join(unused)}" if unused else ""
            self._warn(f"`{definition.custom_inputs or 'init'}` makes none of {', '.join(wanted)}{instead}")
        self.made.update(found)
        return found

    def _warn(self, reason: str) -> None:
        if not self._told:
            text = f"{self.definition.name}: inputs follow from the contract alone, for {reason}"
            warnings.warn(pytest.PytestWarning(text), stacklevel=3)
        self._told = True


def _is_custom(workload: Workload | None, name: str) -> bool:
    return workload is not None and workload.inputs[name].kind == "custom"


def _scalars(workload: Workload | None, recipe: Recipe) -> dict[str, Any]:
    return {**recipe.scalars, **(workload.scalars if workload is not None else {})}


def as_declared(name: str, value: Any, spec: TensorSpec) -> Any:
    """Return a value in the declared form: a number for a scalar, a 0-d tensor for shape []. Raises InputsError."""
    if spec.shape is None:
        return _plain(name, value)
    if value is None and spec.optional:
        return None
    known = spec.dtype not in NOT_TENSORS
    if not isinstance(value, torch.Tensor):
        number = None if spec.shape else _single(value)
        if isinstance(number, (bool, int, float)):
            return torch.tensor(number, dtype=torch_dtype(spec.dtype) if known else None)
        made = type(value).__name__
        raise InputsError(f"input {name} is made as {made}, not as a tensor of shape [{', '.join(spec.shape)}]")
    if known and value.dtype is not torch_dtype(spec.dtype):
        raise InputsError(f"input {name} is made with dtype {value.dtype}, declared is {spec.dtype}")
    if value.dim() != len(spec.shape):
        raise InputsError(f"input {name} is made with shape {list(value.shape)}, declared is [{', '.join(spec.shape)}]")
    return value


def _plain(name: str, value: Any) -> Any:
    """Return a scalar as workers can be sent it. Raises InputsError."""
    found = _single(value)
    if found is None or isinstance(found, (bool, int, float, str)):
        return found
    raise InputsError(f"input {name} is made as {type(value).__name__}, not as a number: give a Python scalar")


def _single(value: Any) -> Any:
    """Return what a tensor, an array or a scalar of NumPy holds, where that is one element."""
    return value.item() if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1 else value
