"""The tolerances that a run states, and which of all stated ones is in force for a definition and a workload."""

from __future__ import annotations

from dataclasses import asdict
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.judge.tolerance import Tolerance, ToleranceError, from_mapping, layered, parse_lines

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.options import Options


class Tolerances:
    """What the ini file and the command line tolerate, by name or pattern. Raises pytest.UsageError for other text."""

    def __init__(self, options: Options) -> None:
        try:
            self.ini = parse_lines(options.ini_tolerance, "fib_tolerance")
            self.line = parse_lines(options.tolerance, "--fib-tolerance")
        except ToleranceError as error:
            raise pytest.UsageError(str(error)) from error

    def in_force(self, definition: Definition, workload: Workload | None, fixture: Tolerance) -> Tolerance:
        """Return the tolerance in force: ini, workload, fixture, command line, the last the strongest."""
        stated = workload.tolerance if workload is not None else None
        ini, line = (
            [own for key, own in table.items() if fnmatch(definition.op_type, key) or fnmatch(definition.name, key)]
            for table in (self.ini, self.line)
        )
        return layered(*ini, from_mapping(asdict(stated)) if stated is not None else None, fixture, *line)
