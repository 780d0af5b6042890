"""What the reference is asked for: a case's outputs with their sizes filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.dtypes import is_packed
from pytest_flashinfer.judge.oracle.truth import OutputSpec

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.worker.case import Case


def specs_of(case: Case) -> dict[str, OutputSpec]:
    """Return the outputs of a case; shapes are in elements."""
    specs = {}
    for name, declared in case.definition.outputs.items():
        shape = case.shape(name)
        if is_packed(declared.dtype) and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        elements = None if declared.shape is None else shape
        specs[name] = OutputSpec(declared.dtype, elements, declared.optional, _param(case.definition, declared.param))
    return specs


def open_specs(definition: Definition) -> dict[str, OutputSpec]:
    """Return outputs whose sizes and dtypes only the reference knows."""
    return {
        name: OutputSpec("float32", (), spec.optional, _param(definition, spec.param))
        for name, spec in definition.outputs.items()
    }


def _param(definition: Definition, param: str | None) -> str | None:
    return param if param in definition.inputs else None
