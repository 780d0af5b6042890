"""How this repository's own definitions are run, and the pattern for a conftest.py beside yours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.cases.contents import Inputs
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe

MLA_SCALE = (128 + 64) ** -0.5  # of the heads before compression, which no shape of these definitions shows


def pytest_configure(config: pytest.Config) -> None:
    """Search the sizes of each shipped kernel for a moment: there are more than a hundred, and CI has two cores.

    Kernels of anybody else's, and runs elsewhere over these definitions, are searched as long as usual.
    """
    given = getattr(config.option, "fib_solutions", None) or []
    shipped = Path(__file__).parent / "solutions"
    here = config.rootpath == Path(__file__).parent
    if here and given and all(Path(each).resolve() == shipped for each in given) and config.option.fib_seconds is None:
        config.option.fib_seconds = 0.2


@pytest.fixture
def inputs(inputs: Inputs, definition: Definition) -> Inputs:
    """Give latent attention the softmax scale that its models use, where neither workload nor draw gives another."""
    if not definition.op_type.startswith("mla"):
        return inputs

    def make(axes: Mapping[str, int], recipe: Recipe, workload: Workload | None = None) -> Mapping[str, Any]:
        values = inputs(axes, recipe, workload)
        return values if workload is not None or recipe.scalars else {**values, "sm_scale": MLA_SCALE}

    return make
