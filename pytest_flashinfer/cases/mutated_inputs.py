"""What shows during a run of the inputs that references write into, and the warning about them."""

from __future__ import annotations

import warnings

import pytest

from pytest_flashinfer.judge.oracle.mutated_inputs import MutatedInputs


class Scribbling(dict[str, MutatedInputs]):
    """It by the name of a definition, for its solutions as for its reference."""

    def __missing__(self, definition: str) -> MutatedInputs:
        """Begin with nothing known."""
        return self.setdefault(definition, MutatedInputs(definition, _warn))


def _warn(text: str) -> None:
    warnings.warn(pytest.PytestWarning(text), stacklevel=2)
