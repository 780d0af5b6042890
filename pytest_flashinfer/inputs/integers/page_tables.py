"""Ids of pages: a list of them for all sequences, and tables with a line for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from pytest_flashinfer.inputs.integers import unused
from pytest_flashinfer.inputs.integers.index_targets import check_distinct, first_of, limit_of, nothing_to_point_at
from pytest_flashinfer.inputs.integers.indices import sample
from pytest_flashinfer.inputs.integers.shared_pages import share
from pytest_flashinfer.inputs.seeds import way_of
from pytest_flashinfer.inputs.stale import POISON

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting

_NO_PAGE: Final = 1 << 30  # nobody has as many


def page_ids(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    """Return the page of each entry, sequence by sequence.

    Distinct, unless the structure is `shared`: then a sequence may begin with the pages of an earlier one.
    Raises AxisConflict where there are entries but no pages.
    """
    count, first, limit = setting.shape(name)[0], first_of(setting, name), limit_of(setting, name)
    if count and first == limit:
        raise nothing_to_point_at(setting, name, f"{count} page indices")
    check_distinct(setting, name, count)
    if setting.structure == "identity":
        return first + torch.arange(count) % max(limit - first, 1)
    ids = _owned(setting, count, first, limit)
    if setting.structure == "shared" and found.pages is not None and sum(found.pages) == count:
        share(setting.rng, ids, found.pages, rereads=setting.plan.rereads)
    return ids


def _owned(setting: Setting, count: int, first: int, limit: int) -> torch.Tensor:
    """Return pages that sequences own: where the others hold what must not matter, page 0, a usual padding, is one."""
    if setting.structure in POISON and not first and count < limit:
        first = 1
    return sample(setting, count, limit - first) + first


def page_table(setting: Setting, name: str, found: Sequences) -> torch.Tensor:
    """Return a table of pages up to each length, then padding or the id of a page nobody owns.

    Distinct ones, unless the structure is `shared`, as in `page_ids`.
    """
    shape, first, limit = setting.shape(name), first_of(setting, name), limit_of(setting, name)
    if math.prod(shape) and first == limit:
        raise nothing_to_point_at(setting, name, f"a table of {shape[-1]} pages a sequence")
    lines = math.prod(shape[:-1])
    lengths = found.kv if found.kv and lines % len(found.kv) == 0 else [shape[-1] * found.page_size] * max(1, shape[0])
    used = [min(shape[-1], -(-n // found.page_size)) for n in lengths for _ in range(lines // len(lengths))]
    check_distinct(setting, name, sum(used))
    drawn = _owned(setting, sum(used), first, limit)
    if setting.structure == "identity":
        drawn = first + torch.arange(sum(used)) % max(limit - first, 1)
    elif setting.structure == "shared":
        share(setting.rng, drawn, used, rereads=setting.plan.rereads)
    ids = iter(drawn.tolist())
    no_page = (_NO_PAGE,) if name in setting.plan.promises.junk and way_of(setting.seed, "junk", 2) else ()
    least, most = setting.ends(name)
    padding = next((n for n in (*setting.plan.roles[name].unused, *no_page) if least <= n <= most), None)
    table = torch.full(shape, -1 if padding is None else padding, dtype=torch.int64)
    for line, width in zip(table.view(-1, shape[-1]) if table.numel() else (), used, strict=False):
        line[:width] = torch.tensor([next(ids) for _ in range(width)], dtype=torch.int64)
    if padding is None or not unused.hold(setting, name, table):
        free = (first + sample(setting, table.numel(), limit - first)).view(shape)
        pairs = zip(table.view(-1, shape[-1]), free.view(-1, shape[-1]), strict=True) if table.numel() else ()
        for (line, other), width in zip(pairs, used, strict=False):
            line[width:] = other[width:]
    return table
