"""What the `huge` fixture returns: sizes beyond 2**31 elements, one call each, where the card has the memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_flashinfer.data.constants import open_constants, pinned
from pytest_flashinfer.inputs.errors import InputsError, Unsatisfiable
from pytest_flashinfer.inputs.sizes.beyond_int32 import crossings
from pytest_flashinfer.inputs.sizes.undecided import refuse_unknown
from pytest_flashinfer.judge.reference.origin import ReferenceFailed
from pytest_flashinfer.outputs.properties import Record
from pytest_flashinfer.worker.memory import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Recipe
    from pytest_flashinfer.inputs.sizes.beyond_int32 import Crossing
    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.solution_call import Call
    from pytest_flashinfer.testing import UnderTest
    from pytest_flashinfer.worker.case import Case
    from pytest_flashinfer.worker.device import Device

SHARE = 0.9  # of the card's memory: contexts and kernels take some
_GIB = 1 << 30


class OutOfRoom(Exception):  # noqa: N818 - says what happened
    """The memory did not suffice, which says nothing about the solution."""


class HugeSizes:
    """Runs a check on one solution at huge sizes; solution and reference are not there at the same time."""

    def __init__(self, item: pytest.Item, session: FibSession, listed: Sequence[Workload], reference: Answers) -> None:
        self.item = item
        self.session = session
        self.listed = [workload.axes for workload in listed]
        self.reference = reference

    def run(self, check: Callable[[Mapping[str, int], Recipe], None]) -> None:
        """Check each case for which there is room; skips with the reason where no case was judged.

        The first failure ends it: `check` raises Failed.
        """
        cases, undecided = self._cases(self.reference.definition), ""
        for number, case in enumerate(cases):
            self.session.progress.step(f"huge case {number + 1} of {len(cases)}: {_named(case)}")
            try:
                check(case.axes, case.recipe)
            except (InputsError, ReferenceFailed, OutOfRoom, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                    raise
                undecided = f"{_named(case)} could not be judged: {error}"
                cases = [each for each in cases if each is not case]
            finally:
                self.session.progress.clear()
                self._release()
        Record(self.item).set("tried", len(cases))
        if not cases:
            pytest.skip(undecided)

    @staticmethod
    def calls(solution: UnderTest, cases: Sequence[Case]) -> list[Call]:
        """Call the solution, then end its process: the reference needs the memory. Raises OutOfRoom."""
        torch.cuda.empty_cache()  # what making the inputs took
        try:
            calls = solution.run(cases)
        finally:
            solution.close()
        short = next((call.error for call in calls if call.error and _is_shortage(call.error.detail)), None)
        if short is not None:
            raise OutOfRoom(short.detail)
        return calls

    def _release(self) -> None:
        """Leave nothing of a case behind."""
        self.reference.close()
        gc.collect()
        torch.cuda.empty_cache()

    def _cases(self, definition: Definition) -> list[Crossing]:
        """Return the cases for which there is room; skips with the reason where there is none."""
        definition = pinned(definition, self.listed)
        if self.session.device.kind != "cuda" and not room_on(self.session.device):
            pytest.skip("not tried on the CPU: --fib-huge needs a card")
        waiting = open_constants(definition)
        if waiting:
            pytest.skip(f"axis `{waiting[0]}` is a constant without a value: state it in a workload")
        refuse_unknown(definition)
        try:
            found = crossings(definition)
        except Unsatisfiable as error:
            pytest.skip(str(error))
        if not found:
            pytest.skip("no size takes a tensor of this definition beyond 2**31 elements")
        room = room_on(self.session.device)
        fitting = [case for case in found if case.nbytes <= room]
        if not fitting:
            least = f"{_named(found[0])} needs some {found[0].nbytes / _GIB:.0f} GiB"
            pytest.skip(f"{least}, and {self.session.device} has {room / _GIB:.0f} GiB for it")
        return fitting


def room_on(device: Device) -> int:
    """Return the bytes that a case may take; none on the CPU, where it would take many minutes."""
    return int(SHARE * device.memory) if device.kind == "cuda" else 0


def _named(case: Crossing) -> str:
    return f"{case.axis}={case.axes[case.axis]}"


def _is_shortage(text: str) -> bool:
    """Say whether what another process tells of an error of torch, of CUDA or of a kernel is that memory is short."""
    return "out of memory" in text.lower()
