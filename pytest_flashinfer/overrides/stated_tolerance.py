"""The tolerance in force for an item, with what its fixture says, and where that or a workload says it in vain."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.judge.tolerance import ToleranceError
from pytest_flashinfer.overrides.override_faults import fixture_of, position, unusable
from pytest_flashinfer.settings.tolerances import checked, faults, of_workload

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.run.session import FibSession


def tolerance_in_force(
    request: pytest.FixtureRequest,
    session: FibSession,
    definition: Definition,
    workload: Workload | None,
    tolerance: Tolerance,
) -> Tolerance:
    """Return the tolerance in force. Fails where the fixture says something in vain; warns of a workload that does."""
    at = position(fixture_of(request.node, "tolerance"), session.config.invocation_params.dir)
    where = f"{at}: fixture tolerance"
    try:
        fixture = checked(tolerance, where)
        in_vain = next(faults(fixture, definition, session.catalogue.definitions), None)
        listed = of_workload(workload)
        found = session.tolerances.in_force(definition, workload, fixture)
    except ToleranceError as error:
        raise unusable(str(error)) from None
    if in_vain is not None:
        raise unusable(f"{where}: {in_vain}")
    for fault in () if listed is None else faults(listed, definition):
        assert workload is not None
        file, line = session.catalogue.location(request.path, workload.uuid)
        number = 1 + (line or 0)
        text = f"{file}:{number}: workload.tolerance: {fault}"
        warnings.warn_explicit(pytest.PytestWarning(text), None, str(file), number)
    return found
