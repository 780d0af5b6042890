"""Other masks of as many elements: where each row lets something through, it still does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.dtypes import UNSIGNED

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

MASKS: Final = frozenset({"mask", "bits"})
_SIGNED: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_AT_ONCE: Final = 1 << 22  # elements
_TRIES: Final = 16


def moved(old: torch.Tensor, kind: str, generator: torch.Generator, fixed: Collection[int] = ()) -> torch.Tensor:
    """Return a mask whose set elements are elsewhere in their rows, but those at the flat places `fixed`.

    Each row is turned by as many places as chance has it; one with fixed places is shuffled around them. Of `bits` the
    words change places: but the last of each row, which the end of the row may cut, and rows with fixed places. The
    generator is one of the host.
    """
    raw = old.view(_SIGNED[old.itemsize]) if old.dtype in UNSIGNED else old
    width = _width(old)
    new = raw.clone(memory_format=torch.contiguous_format).view(-1, width)
    turned = new[:, : width - (kind == "bits")]
    count = turned.shape[1]
    if count > 1:
        step = max(1, _AT_ONCE // count)
        for part in torch.split(turned, step):
            turns = torch.randint(1, count, (len(part), 1), generator=generator).to(old.device)
            part.copy_(part.gather(1, (torch.arange(count, device=old.device) + turns) % count))
    rows = raw.reshape(-1, width)
    for row in {place // width for place in fixed}:
        new[row] = rows[row]
        free = [column for column in range(width) if row * width + column not in fixed]
        if kind != "bits" and free:
            order = torch.randperm(len(free), generator=generator).to(old.device)
            new[row, free] = rows[row, free][order]
    return new.view(old.dtype).view(old.shape)


def flipped(old: torch.Tensor, rng: Random) -> torch.Tensor | None:
    """Return a mask in which one element is another one, none of them the last of a row; `None` where that is all."""
    new = old.clone(memory_format=torch.contiguous_format)
    rows = new.view(-1, _width(old))
    for _ in range(_TRIES):
        row, column = rng.randrange(rows.shape[0]), rng.randrange(rows.shape[1])
        isset = bool(rows[row, column])
        if not isset or int((rows[row] != 0).sum()) > 1:
            rows[row, column] = not isset
            return new
    return None


def _width(mask: torch.Tensor) -> int:
    """Return how many elements of a row there are: a column is one row."""
    return mask.shape[-1] if mask.dim() > 1 and mask.shape[-1] > 1 else mask.numel()
