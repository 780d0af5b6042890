"""Who makes which inputs of a case: this package, an override in a conftest.py, or the definition's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.cases.cache import bits_of
from pytest_flashinfer.cases.default_inputs import moved, tensor_shapes
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.recipe import Recipe

if TYPE_CHECKING:
    from pytest_flashinfer.cases.own_inputs import OwnInputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.worker.case import Case

Inputs = Callable[[Mapping[str, int], Recipe, "Workload | None"], Mapping[str, Any]]


@dataclass(frozen=True)
class Makers:
    """`inputs` makes all inputs of one definition; `default` is what would, had nobody overridden it."""

    definition: Definition
    inputs: Inputs
    default: Inputs
    _owned: dict[str, frozenset[str]] = field(default_factory=dict)  # of this item, by workload

    @property
    def code(self) -> OwnInputs | None:
        """The definition's own code that makes inputs."""
        return getattr(self.default, "own", None)

    @property
    def by_others(self) -> bool:
        """Whether others than this package make inputs, which need not follow from a recipe alone."""
        return self.inputs != self.default or self.code is not None

    @property
    def by_definition(self) -> frozenset[str]:
        """The inputs that the definition's own code has made."""
        return frozenset() if self.code is None else frozenset(self.code.made)

    def by_override(self, case: Case) -> frozenset[str]:
        """Return the inputs that an override made: only it knows what else they could hold."""
        if self.inputs == self.default:
            return frozenset()
        if case.workload is None:
            return self._made_by_override(case)
        uuid = case.workload.uuid
        if uuid not in self._owned:
            self._owned[uuid] = self._made_by_override(case)
        return self._owned[uuid]

    def _made_by_override(self, case: Case) -> frozenset[str]:
        try:
            usual = self.default(case.axes, case.recipe, case.workload)
        except InputsError:
            return frozenset(case.values)
        return frozenset(name for name, value in case.values.items() if not _same(value, usual[name]))

    def made_again(self, case: Case, seed: int) -> dict[str, Any]:
        """Return what the definition's own code makes with another seed, where that has the same shapes."""
        code = self.code
        if not self.by_definition or code is None or self.inputs != self.default:
            return {}
        made = code(case.axes, replace(case.recipe, seed=seed), case.workload)
        known = {key: case.values[key] for key in made}
        made = {key: moved(value, getattr(known[key], "device", "cpu")) for key, value in made.items()}
        return made if tensor_shapes(made) == tensor_shapes(known) else {}


def _same(value: Any, other: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(value) is type(other) and bool(value == other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    return torch.equal(bits_of(value), bits_of(other.to(value.device)))
