"""The truth about a case that is too large to be held: found, compared and forgotten for some rows after the other.

Only what passes is seen like that. Whoever needs the whole, to say what is wrong or to compare in a way of their own,
finds it in the truth's outputs, where it is made when it is first looked at.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.comparison.record import merged
from pytest_flashinfer.judge.comparison.vacuity import leaves_open
from pytest_flashinfer.judge.floats import is_float
from pytest_flashinfer.judge.oracle.bound_reuse import joined, row_bounds, with_bound
from pytest_flashinfer.judge.oracle.client import copied
from pytest_flashinfer.judge.oracle.rowwise import leading, spans
from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
from pytest_flashinfer.judge.reference.call import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from pytest_flashinfer.judge.comparison.record import Comparison
    from pytest_flashinfer.judge.oracle.bound_reuse import ReusableBound
    from pytest_flashinfer.judge.oracle.truth import OutputSpec
    from pytest_flashinfer.judge.tolerance import Tolerance
    from pytest_flashinfer.worker.case import Case

    Ask = Callable[[slice], "Truth | None"]
    Bounds = Mapping[str, "ReusableBound | None"]


@dataclass(frozen=True, eq=False)
class Parts:
    """The truth about the rows `spans`; `first` is that about the first of them, `shapes` the outputs' as stored.

    `ask` finds another one, which is there until the next is asked for. `learn` is told
    the bounds of the whole that other contents may use.
    """

    spans: Sequence[slice]
    shapes: Mapping[str, tuple[int, ...]]
    first: Truth
    ask: Ask
    learn: Callable[[Bounds], object] | None = None

    def __iter__(self) -> Iterator[tuple[slice, Truth | None]]:
        """Yield rows and the truth about them; `None`, and nothing more, where they turn out to depend on others."""
        seen = []
        for part in self.spans:
            found = self.first if part is self.spans[0] else self.ask(part)
            yield part, found
            if found is None:
                return
            if self.learn is not None:
                seen.append({name: row_bounds(each) for name, each in found.outputs.items()})
        if self.learn is not None:
            self.learn({name: joined([each[name] for each in seen]) for name in self.shapes})

    def passed(self, outputs: Mapping[str, torch.Tensor], tolerance: Tolerance) -> list[Comparison] | None:
        """Return the comparisons where all outputs are right; `None` where that is not so, or only the whole tells."""
        shapes = {name: tuple(value.shape) for name, value in outputs.items()}
        if not self.tell(tolerance) or any(shapes.get(name) != shape for name, shape in self.shapes.items()):
            return None
        total: dict[str, Comparison] = {}
        for part, truth in self:
            if truth is None:
                return None
            for name, output in truth.outputs.items():
                actual = outputs[name][part]
                actual = actual if output.native is None else actual.to(output.native.device)
                found = compare(actual, output, tolerance, equal_nan=truth.nan_inputs, explained=False)
                if not found.ok:
                    return None
                total[name] = found if name not in total else merged(total[name], found)
        return list(total.values())

    def refute_cheap(self, tolerance: Tolerance, inputs: Mapping[str, Any]) -> bool:
        """Say whether the first rows show already that no cheap answer would pass."""
        return self.tell(tolerance) and not leaves_open(self.first, self.spans[0], tolerance, inputs)

    def tell(self, tolerance: Tolerance) -> bool:
        """Say whether the whole is right where all parts are: not where some elements may be wrong for the others."""
        settings = [tolerance.for_output(name) for name in self.shapes]
        return all(each.required_matched_ratio is None and each.cosine is None for each in settings)


class Outputs(Mapping[str, OutputTruth]):
    """The outputs of a truth that is found as a whole when one of them is looked at."""

    def __init__(self, whole: Callable[[], Truth]) -> None:
        self.whole = functools.cache(whole)

    def __getitem__(self, name: str) -> OutputTruth:
        return self.whole().outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole().outputs)

    def __len__(self) -> int:
        return len(self.whole().outputs)


class Divided:
    """Finds truths in parts. `ask` asks some rows of a case, the last of them if so said; `whole` finds all."""

    def __init__(self, ask: Callable[[Case, slice, bool], Truth | None], whole: Callable[[Case], Truth]) -> None:
        self.ask = ask
        self.whole = whole
        self.bounds: dict[Any, Bounds] = {}  # that other contents may use: two numbers for an output
        self.undivided: set[Any] = set()  # cases of which only the whole tells

    def answer(self, case: Case, specs: Mapping[str, OutputSpec], reused: Bounds | None) -> Truth | None:
        """Return the truth about a case of which `spans_of` names rows; `None` where only the whole tells.

        `reused`: the bounds of the case `bound_of`, where there is one. Raises what `ask` raises.
        """
        rows, key = spans_of(case, specs), case.key
        if reused is not None and not _are_of_rows(specs, reused):
            return None

        def ask(part: slice) -> Truth | None:
            found = self.ask(case, part, part == rows[-1])
            if found is None:
                self.undivided.add(key)
            if found is None or reused is None:
                return found
            outputs = {name: with_bound(each, reused[name]) for name, each in found.outputs.items()}
            return replace(found, outputs=outputs)

        first = ask(rows[0])
        if first is None:
            return None
        first = replace(first, outputs={name: copied(each) for name, each in first.outputs.items()})
        shapes = {name: storage(spec)[0] for name, spec in specs.items()}
        learn = functools.partial(self.bounds.setdefault, key) if reused is None else None
        outputs = Outputs(lambda: self.whole(case))
        return replace(first, outputs=outputs, parts=Parts(rows, shapes, first, ask, learn))


def spans_of(case: Case, specs: Mapping[str, OutputSpec], keep: int = 0) -> list[slice]:
    """Return the rows for which the truth about a case is found one after the other.

    Nothing where the whole is wanted: of drawn cases, of those whose truth takes no more than `keep` bytes, and where
    rows cannot be told apart.
    """
    if case.workload is None or sum(map(_nbytes, specs.values())) <= keep:
        return []
    return spans(case.values, [spec.shape for spec in specs.values()], leading(case.definition))


def _nbytes(spec: OutputSpec) -> int:
    """Return about how many bytes the truth about an output takes: values, wide ones, and their bounds."""
    shape, dtype = storage(spec)
    wide = 0 if not is_float(spec.dtype) else 8 if dtype.itemsize > 2 else 4  # noqa: PLR2004 - bytes of 16 bits
    return math.prod(shape) * (dtype.itemsize + 2 * wide)


def _are_of_rows(specs: Mapping[str, OutputSpec], reused: Bounds) -> bool:
    """Say whether there are bounds to use again, each of a row: not of vectors and columns, which are one row each."""
    rows = all(len(spec.shape or ()) > 1 and (spec.shape or ())[-1] > 1 for spec in specs.values())
    return rows and all(reused.get(name) is not None for name in specs)
