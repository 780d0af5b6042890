"""What a call left in the outputs of its arena: their values, what nobody wrote, what changed after it had returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.worker import poison, unwritten
from pytest_flashinfer.worker.guards import Violation
from pytest_flashinfer.worker.memory import LARGE, roomy
from pytest_flashinfer.worker.views import differ

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flashinfer.worker.guarded_memory import Pristine
    from pytest_flashinfer.worker.layout import Slot
    from pytest_flashinfer.worker.outcome import RunResult


def late(pristine: Pristine, own: Iterable[str], written: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return by output, as 0-d bool tensors, whether its place and the snapshot of it differ now.

    The place of an output is its `own`, or the input that it is `written` into.
    """
    views, layout = pristine.views, pristine.layout
    pairs = {name: (layout.live[name], layout.snap[name]) for name in own}
    pairs |= {name: layout.inplace[name] for name in written}
    return {name: differ(views.parts(place), views.parts(copy)) for name, (place, copy) in pairs.items()}


def copy_of(pristine: Pristine, slot: Slot, *, keep: bool) -> torch.Tensor:
    """Return a snapshot's values; unless they are to be kept, as a view of the arena where that will do."""
    if slot.dtype is torch.bool:  # a kernel may store any non-zero byte
        return pristine.views.words(slot, torch.uint8) != 0
    pairs = slot.dtype is torch.float4_e2m1fn_x2  # which torch compares by their bytes only
    made = pristine.views.words(slot, torch.uint8) if pairs else pristine.views.tensor(slot)
    if not keep:
        return made
    aside = made.is_cuda and slot.extent > LARGE and roomy(slot.extent)
    return made.cpu() if aside else made.clone()


def has_poison(pristine: Pristine, name: str) -> torch.Tensor:
    """Return a 0-d bool tensor, whether any element of an output is the poison that was there before the call."""
    return unwritten.any_equal(*_words(pristine, name))


def note_unwritten(pristine: Pristine, result: RunResult, name: str) -> None:
    """Note in the result which part of an output still is poison: a violation where no value looks like that."""
    words, pattern = _words(pristine, name)
    result.unwritten[name] = unwritten.describe(words == pattern)
    if poison.is_certain(pristine.layout.snap[name].dtype):
        text = unwritten.statement(name, result.unwritten[name])
        result.violations.append(Violation("unwritten", name, text))


def beside(pristine: Pristine, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Return by output, as 0-d bool tensors, whether the input that it is to be written into is another one now.

    `names` are those of outputs that were returned as tensors of their own.
    """
    inplace = pristine.layout.inplace
    return {name: pristine.differs(inplace[name][0]) for name in names if name in inplace}


def note_spoilt(pristine: Pristine, result: RunResult, name: str) -> None:
    """Note a violation where an input, which is no longer as it was, does not hold what was returned by itself."""
    place, copy = pristine.layout.inplace[name][0], pristine.layout.snap[name]
    words = [pristine.views.words(slot, poison.word_type(slot.dtype)) for slot in (place, copy)]
    if words[0].shape != words[1].shape or bool((words[0] != words[1]).any()):
        text = f"input {place.name} was modified and does not hold {name}, which was returned as another tensor"
        result.violations.append(Violation("input", place.name, text))


def _words(pristine: Pristine, name: str) -> tuple[torch.Tensor, int]:
    """Return an output as words, and the poison that was in each of them."""
    slot = pristine.layout.snap[name]
    return pristine.views.words(slot, poison.word_type(slot.dtype)), pristine.poison[name]
