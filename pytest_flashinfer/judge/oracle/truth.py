"""What the oracle knows about one case: per output the native result, the high-precision one and the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from pytest_flashinfer.judge.oracle.chunked_truth import Parts

SAMPLED = "sampled"  # how an output that is drawn at random is known
_MOST = 0.5
_BEYOND = 2.0**40  # times the largest value
_NOTHING = 1e-30  # bounds of outputs that are zero throughout are smaller
FAR = 4.0  # a reference this many bounds away from its float64 run does not say what is right


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output with its sizes filled in.

    `shape` is in elements (a packed dtype stores half of the last axis); `None` stands for a Python scalar.
    `param` names the input that is written in place.
    """

    dtype: str
    shape: tuple[int, ...] | None = ()
    optional: bool = False
    param: str | None = None


@dataclass(frozen=True, slots=True)
class OutputTruth:
    """The truth about one output.

    `native` has the declared dtype (storage shape). `wide` is unrounded, in float64 (outputs of 16 bits are handed to
    the judge in float32), or `None` where the reference could not be lifted or the output holds integers. `allowance`
    is the tolerated absolute error per element, same shape as `wide`. `undecided` marks elements which the reference's
    own rounding decides (near-ties): no verdict is based on them alone. `replaced`: of undecided rows of ids, how many
    of one row may be others; `None` where that is not asked. `held`: which ids of such rows have to be there,
    anywhere. `reach`: of undecided integers that are no ids, how far they may be from the reference's, as bytes; see
    integers.py. `disputed` elements are finite in only one of reference and float64 run. `widened`: by how much the
    bound was widened to hold the reference's own rounding (1: not at all).
    `probabilities` and `support` [rows, n] of an output that the reference draws at random, `times` elements from each
    row, none twice where they are `distinct`; `ids` [rows, n] of the columns, where these are not the ids themselves.
    `seeded`: the inputs decide what is drawn.
    """

    name: str
    dtype: str
    native: torch.Tensor | None
    wide: torch.Tensor | None = None
    allowance: torch.Tensor | None = None
    undecided: torch.Tensor | None = None
    how: str = "lifted"
    exact: bool = False
    widened: float = 1.0
    replaced: int | None = None
    held: torch.Tensor | None = None
    reach: torch.Tensor | None = None
    disputed: int = 0
    probabilities: torch.Tensor | None = None
    support: torch.Tensor | None = None
    times: int = 1
    distinct: bool = False
    ids: torch.Tensor | None = None
    seeded: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Truth:
    """All outputs of one case. `nan_inputs`: the inputs hold NaN or inf, so NaN in the result may be meant.

    `in_full` finds the truth with a bound of its own where this one has another case's: nobody is blamed without it.
    `closer` finds the truth with more integers left open, for those that stronger runs change: nor without that one.
    `parts`: the same for some rows after the other, where `outputs` are too large to be found but for a reason.
    `unfair`: why a drawn case is no test of a kernel, see `inadmissible`.
    """

    outputs: Mapping[str, OutputTruth]
    how: str = "lifted"
    nan_inputs: bool = False
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    in_full: Callable[[], Truth] | None = field(default=None, compare=False)
    closer: Callable[[], Truth] | None = field(default=None, compare=False)
    unfair: str | None = None
    parts: Parts | None = field(default=None, compare=False)


def exact(truth: Truth) -> bool:
    """Say whether every float output is known without rounding, so that an honest kernel must be bit-correct."""
    return all(output.exact for output in truth.outputs.values() if output.wide is not None)


def without_nan(truth: Truth) -> Truth:
    """Return a truth that leaves open what the reference has NaN for, or infinities but -inf."""
    outputs = {}
    for name, output in truth.outputs.items():
        lost = _lost(output)
        if lost is not None and bool(lost.any()):
            undecided = lost if output.undecided is None else output.undecided | lost
            output = replace(output, undecided=undecided)  # noqa: PLW2901
        outputs[name] = output
    return replace(truth, outputs=outputs)


def inadmissible(truth: Truth) -> str | None:
    """Say why a case of generated values is no fair test, or `None`.

    An honest kernel must not fail for the reference's own overflow or cancellation: the reference has to agree with its
    float64 run, in finite values and in which values are finite. For cases that somebody wrote down this is only a
    note.
    """
    for output in truth.outputs.values():
        if output.disputed:
            return f"{output.name}: {output.disputed} elements are finite in only one of reference and float64 run"
        if output.widened > FAR:
            return f"{output.name}: the reference is {output.widened:.3g} times the bound away from its float64 run"
        if (text := hopeless(output)) is not None:
            return text
        lost = None if truth.nan_inputs else _lost(output)
        if lost is not None and bool(lost.any()):
            return f"{output.name}: the reference gives {int(lost.sum())} NaN or inf for finite inputs"
    return undecidable(truth)


def undecidable(truth: Truth) -> str | None:
    """Say that most of an output is a matter of rounding."""
    for name, output in truth.outputs.items():
        free = left_open(output)
        if free is not None and free.numel() and float(free.float().mean()) > _MOST:
            return f"{name}: most of it is a matter of rounding"
    return None


def left_open(output: OutputTruth) -> torch.Tensor | None:
    """Return the elements that may be anything for all that is known; `None` where there are none.

    An id that has to be there is known though its place is not.
    """
    if output.undecided is None or output.held is None:
        return output.undecided
    return output.undecided & ~output.held


def _lost(output: OutputTruth) -> torch.Tensor | None:
    """Return where the reference has NaN, or an infinity other than a true -inf; `None` where it can have neither.

    In 8 bits NaN may stand for what is too large: there it counts where the float64 run has it as well.
    """
    native, wide = output.native, output.wide
    if native is None or not native.is_floating_point():
        return None
    if native.dtype.itemsize == 1:
        return None if wide is None else wide.isnan()
    lost = native.isnan() | (native == math.inf)
    return lost if wide is None else lost | native.isinf() & wide.isfinite()


def hopeless(output: OutputTruth) -> str | None:
    """Say that most bounds are larger than every value, or one beyond all measure: a rounding decides what comes out.

    Exponents of 1e10, less the largest of them, may be hundreds off where a kernel multiplies and subtracts at once.
    """
    if output.allowance is None or output.wide is None or not output.allowance.numel():
        return None
    finite = output.wide.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    largest = finite.abs().max() + _NOTHING
    if float((output.allowance > largest).float().mean()) > _MOST:
        return f"{output.name}: an honest kernel may be off by more than its largest value"
    beyond = bool((output.allowance > _BEYOND * largest).any())
    return f"{output.name}: an honest kernel may overflow" if beyond else None
