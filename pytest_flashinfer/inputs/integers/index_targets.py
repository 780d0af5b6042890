"""What ids may point at: how many entries there are, and the errors where there are none, or too few."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.errors import AxisConflict

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.integers.sequences import Setting

ANY: Final = 64  # ids stay below this where nothing bounds them


def nothing_to_point_at(setting: Setting, name: str, entries: str) -> AxisConflict:
    """Return the error for entries without anything that they could point at."""
    limit = setting.plan.roles[name].limit
    bound = ast.unparse(limit) if limit is not None else "entries"
    return AxisConflict(f"{name} < {bound}", f"{entries} and {bound} = {limit_of(setting, name)}")


def limit_of(setting: Setting, name: str) -> int:
    """Return what ids stay below, by constraints and by the axis that they index."""
    high = setting.limits(name)[1]
    known = [n for n in (setting.limit(name), None if high is None else high + 1) if n is not None]
    return max(0, min(known)) if known else min(max(ANY, math.prod(setting.shape(name))), setting.ends(name)[1] + 1)


def first_of(setting: Setting, name: str) -> int:
    """Return the least id that constraints allow: page 0 may be one that nobody owns."""
    return min(max(setting.limits(name)[0] or 0, 0), limit_of(setting, name))


def check_distinct(setting: Setting, name: str, count: int) -> None:
    """Raise AxisConflict where so many ids have to differ and the dtype has not as many."""
    if count > setting.ends(name)[1] + 1:
        dtype = setting.contract.dtype(name)
        raise AxisConflict(f"{name} distinct", f"{count} ids, of which {dtype} has {setting.ends(name)[1] + 1}")
