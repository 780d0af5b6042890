"""The truth about outputs too large to be held wide at once: found for some rows after the other.

That can be done where a row of every output depends on the same row of some inputs only. Whether it does shows: a few
rows by themselves have the same truth as among others, however little the others would add, and the reference's own
result for all rows at once is near the truth of each part.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.judge.floats import is_float
from pytest_flashinfer.judge.oracle.evaluate import non_finite
from pytest_flashinfer.judge.oracle.truth import FAR, OutputTruth, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.judge.oracle.truth import OutputSpec
    from pytest_flashinfer.judge.reference.call import Reference, Results
    from pytest_flashinfer.worker.call_request import Slots

    Find = Callable[[Mapping[str, Any], Mapping[str, OutputSpec], Results], Truth]
    Write = Callable[[str, slice, OutputTruth], None]

MANY = 1 << 26  # elements of the outputs from which on they are not held wide at once
AT_ONCE = 1 << 23  # elements of outputs and of the inputs cut with them that are
_FEWEST = 8  # rows from which columns can be told apart, see bound.smooth
_ALONE = 8  # rows that are evaluated by themselves as well
_SAME, _SAME_SHORT = 2.0**-16, 2.0**-7  # of the bound: sums in another order differ by less, in float64 and float32


class SlotWriter:
    """Writes the truth about some rows into the slots of the whole, and knows which parts of a truth there are."""

    def __init__(self, requests: Sequence[Mapping[str, Any]], memory: Slots) -> None:
        self.slots = {each["name"]: each for each in requests}
        self.memory = memory
        self.filled: dict[str, dict[str, bool]] = {}

    def write(self, name: str, rows: slice, output: OutputTruth) -> None:
        """Write all but the native result, which is there for all rows at once."""
        filled = self.filled.setdefault(name, {})
        for part in ("wide", "allowance", "undecided"):
            value, slot = getattr(output, part), self.slots[name][part]
            if slot is None:
                continue
            filled[part] = filled.get(part, False) or value is not None
            self.memory.tensor(slot)[rows] = 0 if value is None else value


def leading(definition: Definition) -> tuple[str, ...]:
    """Name the inputs that are cut into rows as all outputs are; none where rows may not be cut.

    All outputs need one leading axis, which a workload binds and which is nowhere else. Indices are never cut, nor what
    they may point to.
    """
    axes = {spec.shape[0] if spec.shape else None for spec in definition.outputs.values()}
    axis = axes.pop() if len(axes) == 1 else None
    tensors = {name: spec for name, spec in definition.inputs.items() if spec.shape is not None}
    specs = [*tensors.values(), *definition.outputs.values()]
    if axis not in definition.var_axes or not all(is_float(spec.dtype) for spec in specs):
        return ()
    if any(axis in (spec.shape or ())[1:] for spec in specs):
        return ()
    return tuple(name for name, spec in tensors.items() if spec.shape and spec.shape[0] == axis)


def by_rows(run: Reference, cut: tuple[str, ...], find: Find, write: Write) -> Truth | None:
    """Find the truth about some rows after the other and `write` each part; return it without its large tensors.

    `cut` names the inputs that are cut along their leading axis, `find` evaluates a part, given what the reference's
    native run on the whole has for it. Returns `None` where the outputs are small enough to be held at once, or where
    rows turn out not to be independent.
    """
    parts = spans(run.inputs, [spec.shape for spec in run.outputs.values()], cut)
    if len(parts) <= 1:
        return None
    rows = Rows(run, cut)
    merged: Truth | None = None
    for part in parts:
        found = rows.find(part, find)
        if found is None:
            return None
        for name, output in found.outputs.items():
            write(name, part, output)
        merged = _merged(merged, found, rows.native)
    return merged


def spans(inputs: Mapping[str, Any], shapes: Sequence[tuple[int, ...] | None], cut: tuple[str, ...]) -> list[slice]:
    """Return the rows that are evaluated at once, part by part; nothing where the outputs, of `shapes`, are small."""
    sizes = [size for size in shapes if size]
    if not cut or not sizes or sum(map(math.prod, sizes)) <= MANY:
        return []
    given = [inputs[name] for name in cut]
    columns = sum(math.prod(size[1:]) for size in sizes) + sum(x[0].numel() for x in given if x is not None)
    step, total = max(_FEWEST, AT_ONCE // max(columns, 1)), sizes[0][0]
    return [slice(begin, min(begin + step, total)) for begin in range(0, total, step)]


class Rows:
    """The reference's native run on the whole of one case, and the truth about some of its rows at a time."""

    def __init__(self, run: Reference, cut: tuple[str, ...]) -> None:
        self.run = run
        self.cut = cut
        self.native = run.native()
        self.nan_inputs = non_finite(run.inputs)

    def find(self, part: slice, find: Find) -> Truth | None:
        """Return the truth about the rows `part`; `None` where rows turn out to depend on others."""
        found = find(*self._some(part))
        if not _near(found):
            return None
        if part.start == 0:
            last = slice(part.stop - min(_ALONE, part.stop // 2), part.stop)
            if not _alike(found, find(*self._some(last)), last):
                return None
        return replace(found, nan_inputs=self.nan_inputs)

    def plain(self, part: slice) -> Truth:
        """Return what the native run has for the rows `part`."""
        _, specs, native = self._some(part)
        how = "native: as asked"
        outputs = {name: OutputTruth(name, specs[name].dtype, x, how=how) for name, x in native.items()}
        return Truth(outputs, how, self.nan_inputs)

    def _some(self, part: slice) -> tuple[Mapping[str, Any], Mapping[str, OutputSpec], Results]:
        """Return inputs, outputs and what the whole run has for them, for some rows."""
        given = self.run.inputs
        inputs = {**given, **{name: given[name][part] for name in self.cut if given[name] is not None}}
        specs = {
            name: replace(spec, shape=(part.stop - part.start, *(spec.shape or ())[1:]))
            for name, spec in self.run.outputs.items()
        }
        return inputs, specs, {name: None if x is None else x[part] for name, x in self.native.items()}


def _near(found: Truth) -> bool:
    """Say whether the whole run's rows are about what the part gives, and finite in the same places.

    Where they are not the reference may have overflowed by itself; only the whole can tell.
    """
    outputs = found.outputs.values()
    return found.how.startswith("lifted") and all(each.widened <= FAR and not each.disputed for each in outputs)


def _alike(found: Truth, alone: Truth, part: slice) -> bool:
    """Say whether the rows `part` have the same truth among others as alone."""
    share = _SAME if found.how == "lifted" else _SAME_SHORT
    for name, output in found.outputs.items():
        wide, other = output.wide, alone.outputs[name].wide
        if wide is None or other is None or output.allowance is None:
            if output.native is not None:
                return False
            continue
        same = (wide[part] == other) | (wide[part].isnan() & other.isnan())
        if not bool((same | ((wide[part] - other).abs() <= share * output.allowance[part])).all()):
            return False
    return True


def _merged(sofar: Truth | None, found: Truth, native: Results) -> Truth:
    """Add what is known of a part to what is known of those before it; the tensors are written elsewhere."""
    outputs = {}
    for name, output in found.outputs.items():
        before = output if sofar is None else sofar.outputs[name]
        outputs[name] = replace(
            output,
            native=native[name],
            wide=None,
            allowance=None,
            undecided=None,
            exact=output.exact and before.exact,
            widened=max(output.widened, before.widened),
            disputed=output.disputed + (0 if sofar is None else before.disputed),
            notes=tuple(dict.fromkeys((*before.notes, *output.notes))),
        )
    first = found if sofar is None else sofar
    return replace(
        found,
        outputs=outputs,
        notes=tuple(dict.fromkeys((*first.notes, *found.notes))),
    )
