"""The lengths of the segments that one array of pointers, or of their lengths, divides a total into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.errors import AxisConflict
from pytest_flashinfer.inputs.integers.partition import floored, partition
from pytest_flashinfer.inputs.pointers import parts_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Sequence

    from pytest_flashinfer.inputs.integers.sequences import Setting
    from pytest_flashinfer.inputs.pointers import Pointer

_SHORT: Final = 3  # one case in so many ends before the total, where it may
USUAL: Final = 8  # tokens of a sequence where nothing bounds them


def lengths_of(setting: Setting, pointer: Pointer) -> list[int]:
    """Return the lengths of the segments that a given array of pointers, or of their lengths, states."""
    flat = setting.given[pointer.name].to("cpu", torch.int64)
    if pointer.counted:
        return [int(n) for n in flat]
    if pointer.ends:
        flat = torch.cat((flat.new_zeros(1), flat))
    end = setting.size(pointer.total) if pointer.open and not pointer.ends else None
    flat = flat if end is None else torch.cat((flat, flat.new_tensor([end])))
    return [int(n) for n in (flat[1:] - flat[:-1]).clamp_(min=0)]


def count_of(setting: Setting, pointer: Pointer) -> int:
    """Return how many segments there are."""
    return pointer.segments(setting.shape(pointer.name)[0])


def split(setting: Setting, pointer: Pointer, caps: Sequence[int] | None = None, wanted: int = 0) -> list[int]:
    """Return the lengths that are given, or draw some; each within what constraints allow, and its cap where that fits.

    `wanted`: how long they are together at least, where nothing says what their total is. Raises AxisConflict.
    """
    if pointer.name in setting.given:
        return lengths_of(setting, pointer)
    count, total = count_of(setting, pointer), setting.size(pointer.total)
    if total and pointer.slack and not setting.rng.randrange(_SHORT):
        total = setting.rng.randrange(total)
    if total is None:
        total = max(USUAL * count, wanted)
        total = total if caps is None else min(sum(caps), total)
    if count == 0 and total:
        raise AxisConflict(f"{pointer.name}[-1] == {total}", f"a total of {total} and no segments")
    shortest, longest = parts_of(setting.contract, pointer)
    least, most = _of_all(setting, shortest, max) or 0, _of_all(setting, longest, min)
    if pointer.total is None and most is not None:
        total = min(total, most * count)
    if most is not None and most * count >= total:
        caps = [most] * count if caps is None else [min(most, cap) for cap in caps]
    unit = setting.size(setting.contract.reading.facts.units.get(pointer.name)) or 1
    unit = unit if unit > 1 and total % unit == 0 else 1
    caps = caps if caps is None or unit == 1 else [cap // unit for cap in caps]
    lengths = partition(total // unit, count, setting.structure, setting.rng, caps)
    return [unit * n for n in floored(lengths, -(-least // unit))]


def _of_all(setting: Setting, trees: tuple[ast.expr, ...], join: Callable[[list[int]], int]) -> int | None:
    known = [n for tree in trees if (n := setting.size(tree)) is not None]
    return join(known) if known else None
