"""The inputs that nobody has overridden: what the contract asks for, or the definition's own code makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.data.constants import shown
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.selection.scope import elements
from pytest_flashinfer.worker.device import host_memory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.cases.own_inputs import OwnInputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe

_NO_CARD_HOLDS, _MOST_SHOWN = 1 << 48, 1 << 63  # elements
HOST_ELEMENTS = 1 << 15  # of all tensors of a case whose inputs are made, kept and compared on the host


@dataclass(frozen=True)
class DefaultInputs:
    """The maker that follows the contract; `roots` are the folders below which workloads' stored tensors lie, by uuid.

    `own` makes those that the definition has code for; what it makes decides sizes. Small inputs are made on the host,
    whatever the device, so that they are the same everywhere, and stay there: they reach a card when a call does.
    """

    definition: Definition
    device: str
    roots: Mapping[str, Path] | None
    own: OwnInputs | None = None

    def __call__(self, axes: Mapping[str, int], recipe: Recipe, workload: Workload | None = None) -> Mapping[str, Any]:
        """Return the inputs by name. Raises the errors of inputs/errors.py."""
        given = {} if self.own is None else self.own(axes, recipe, workload)
        if given and workload is None:
            axes = {**axes, **shown(self.definition, tensor_shapes(given))}
        many = elements(self.definition, axes)
        at = "cpu" if many <= HOST_ELEMENTS else self.device
        if many // 2 > (host_memory() if at == "cpu" else _NO_CARD_HOLDS):  # two of packed ones take a byte
            number = f"{many:,}" if many < _MOST_SHOWN else "2**63 and more"
            raise InputsError(f"no memory here holds inputs and outputs of {number} elements: take smaller sizes")
        given = {name: moved(value, at) for name, value in given.items()}
        root = self.roots.get(workload.uuid) if self.roots and workload is not None else None
        return make_inputs(self.definition, axes, recipe, device=at, workload=workload, root=root, given=given)


def tensor_shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of those inputs that are tensors."""
    return {name: tuple(value.shape) for name, value in values.items() if isinstance(value, torch.Tensor)}


def moved(value: Any, device: str) -> Any:
    """Return an input on a device."""
    return value.to(device) if isinstance(value, torch.Tensor) else value
