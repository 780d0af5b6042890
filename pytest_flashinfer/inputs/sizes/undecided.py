"""Axes that nothing gives a size: why, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import InputsError, Undecided, Unsatisfiable

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.inputs.contract import Contract


def undecided(contract: Contract, name: str) -> InputsError:
    """Return the error for an axis that neither the workload nor an equation decides; shapes may misspell one."""
    declared = contract.definition.axes
    if name not in declared:
        return InputsError(f"unknown axis {name!r}{did_you_mean(name, declared) or '; declare it under axes'}")
    state = "in the workload's axes"
    text = next((rule.text for rule in contract.equations if name in rule.names), None)
    if text is None:
        return Undecided(name, f"axis `{name}` has no size: state it {state}")
    return Unsatisfiable(text, f"nothing decides axis `{name}`", f"state `{name}` {state}")


def refuse_unknown(definition: Definition) -> None:
    """Raise InputsError for an axis of an input that is not declared, and that nothing decides by those that are.

    Any size could be drawn for it, and a kernel be blamed for a shape that nobody meant.
    """
    contract = contract_of(definition)
    rules = (*contract.equations, *contract.conventions)
    for name in contract.axis_names:
        if name in contract.input_axes and name not in definition.axes and not any(name in x.names for x in rules):
            raise undecided(contract, name)
