"""Inputs in the making: what has come from outside, what has been drawn so far, and what constraints see of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.inputs.constraints.limits import readable
from pytest_flashinfer.inputs.dtypes import is_float, storage_shape, torch_dtype
from pytest_flashinfer.inputs.errors import UnknownDtype, Unsatisfiable
from pytest_flashinfer.inputs.floats.values import Source, Want, float_tensor
from pytest_flashinfer.inputs.roles.stated_values import powers_of_two
from pytest_flashinfer.inputs.sizes.axes import shape_of

if TYPE_CHECKING:
    import torch

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.inputs.recipe import Recipe

Inputs = dict[str, Any]  # Tensor, int, float, bool, str or None, in the order of the definition


@dataclass(slots=True)
class Draft:
    """`fixed` came from outside, `env` knows all sizes and scalars, `made` is the result."""

    contract: Contract
    plan: Plan
    recipe: Recipe
    device: torch.device
    fixed: Inputs = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    made: Inputs = field(default_factory=dict)
    stated: frozenset[str] = frozenset()  # the inputs that a workload has an entry for

    @property
    def definition(self) -> Definition:
        """The definition that the inputs are of."""
        return self.contract.definition

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape in which an input is stored. Raises Unsatisfiable where an axis has no size."""
        shape = shape_of(self.contract.dims[name] or (), self.env)
        if None in shape:
            axis = self.definition.inputs[name].shape or ()
            raise Unsatisfiable(f"shape of {name}", f"no size for {axis[shape.index(None)]}")
        return storage_shape([n for n in shape if n is not None], self.contract.dtype(name))


def fills_floats(draft: Draft, name: str) -> bool:
    """Say whether an input holds floats."""
    return is_float(draft.contract.dtype(name))


def float_of(draft: Draft, name: str, source: Source, family: str) -> torch.Tensor:
    """Draw a float input. Raises UnknownDtype where its dtype is none of a tensor's."""
    spec = draft.definition.inputs[name]
    if name not in draft.plan.roles:
        raise UnknownDtype(f"input `{name}` has dtype `{spec.dtype}`, which is none of a tensor's")
    role = draft.plan.roles[name]
    fan_in = shape_of((role.axis,), draft.env)[0] if role.axis is not None else None
    powers = powers_of_two(draft.definition, name)
    want = Want(name, role.kind, draft.shape(name), torch_dtype(draft.contract.dtype(name)), fan_in, role.base, powers)
    return float_tensor(want, family, source)


def env_of(draft: Draft) -> dict[str, Any]:
    """Return what constraints are evaluated on: sizes, scalars and tensors."""
    draft.env.update(readable(draft.made))
    return draft.env
