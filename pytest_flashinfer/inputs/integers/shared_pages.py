"""Pages that several sequences have: where nobody writes into them, unless the contract says otherwise."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    import torch

    from pytest_flashinfer.inputs.contract import Contract

_ENDS: Final = 2  # pages of a sequence that has none between them
_APART: Final = re.compile(
    r"distinct|unique|permut|disjoint|exclusive|duplicat|bijecti|one-to-one|owned by|belongs? to"
    r"|\b(no|not|never|without|at most)\b[^.;]{0,40}\b(shar|repeat|twice|once|overlap|two )"
)
_ASSERTED: Final = re.compile(r"assert[^\n]*(unique|\bset\()")


def pages_are_read_only(contract: Contract, caches: Collection[str], pool: str | None, text: str) -> bool:
    """Say whether pages may come twice: they are only read, by the outputs and by the reference, and `text` allows it.

    A constraint, or an assertion of the reference, that counts different ids speaks against it as words do.
    """
    definition = contract.definition
    written = {output.param for output in definition.outputs.values()}
    led = {ast.unparse(trees[0]) for trees in contract.output_dims.values() if trees}
    if not caches or written & {*caches} or pool in led:
        return False
    words = " ".join((text, *definition.constraints, *(o.description or "" for o in definition.outputs.values())))
    code = definition.reference or ""
    return not (_APART.search(words.lower()) or _ASSERTED.search(code) or _writes(code, caches))


def _writes(reference: str, caches: Collection[str]) -> bool:
    """Whether a reference may write into a cache: by an index, or by a method that works in place."""
    names = "|".join(map(re.escape, caches))
    return re.search(rf"\b({names})\b(\[[^\n=]*\]\s*[-+*/|&]?=[^=]|\S*\.\w+_\()", reference) is not None


def share(rng: Random, ids: torch.Tensor, lengths: list[int], *, rereads: bool) -> None:
    """Let sequences begin with pages of an earlier one, as requests with a common prefix do.

    With `rereads` some of two as long differ in one page in the middle, and some list a page twice.
    """
    start = 0
    earlier: list[tuple[int, int]] = []
    for length in lengths:
        alike = [each for each in earlier if each[1] == length > _ENDS] if rereads and rng.randrange(4) else []
        if alike:
            first, _ = rng.choice(alike)
            own = rng.randrange(1, length - 1)
            kept = ids[start + own].clone()
            ids[start : start + length] = ids[first : first + length].clone()
            ids[start + own] = kept
        elif length and earlier and (len(earlier) == 1 or rng.randrange(3)):
            first, have = earlier[rng.randrange(len(earlier))]
            part = rng.randint(1, min(length, have))
            ids[start : start + part] = ids[first : first + part].clone()
        if rereads and length > 1 and not rng.randrange(3):
            one, other = rng.sample(range(start, start + length), 2)
            ids[one] = ids[other].clone()
        if length:
            earlier.append((start, length))
        start += length
