"""What is put right in drawn inputs before constraints are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_flashinfer.inputs.constraints import elements
from pytest_flashinfer.inputs.constraints.arrangements import arrange
from pytest_flashinfer.inputs.constraints.choices import choose
from pytest_flashinfer.inputs.draft import env_of, fills_floats, float_of
from pytest_flashinfer.inputs.floats.at_bounds import touch
from pytest_flashinfer.inputs.floats.families import SPECIAL
from pytest_flashinfer.inputs.floats.values import Source, shows_leaks
from pytest_flashinfer.inputs.repair import search
from pytest_flashinfer.inputs.seeds import way_of

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.draft import Draft


def tame(draft: Draft, *, whole: bool = False) -> bool:
    """Make inputs anew that constraints forbid to hold NaN or infinities; rows of -inf get a finite element first.

    What constraints say beside drawn masks counts with `whole` alone: the masks may give way. Say whether any did.
    """
    if draft.recipe.family not in SPECIAL:
        return False
    source = Source(draft.recipe.seed, draft.device)
    for name in _refused(draft, whole=whole) if draft.recipe.family == "neginf" else ():
        usual, x = float_of(draft, name, source, "normal"), draft.made[name]
        if x.dim() and x.numel():
            lines, place = x.view(-1, x.shape[-1]), way_of(draft.recipe.seed, f"finite {name}", x.shape[-1])
            empty = (lines == -torch.inf).all(dim=1)
            lines[empty, place] = usual.view(lines.shape)[empty, place]
    refused = _refused(draft, whole=whole)
    for name in refused:
        draft.made[name] = float_of(draft, name, source, "normal")
    return bool(refused)


def _refused(draft: Draft, *, whole: bool) -> list[str]:
    """Return the drawn floats that some constraint speaks of which would hold if none were NaN or infinite.

    With `whole` those of any constraint that does not hold: what is only out of bounds is put right by then.
    """
    env, roles = env_of(draft), draft.plan.roles
    masks = set() if whole else {n for n in roles if roles[n].kind == "mask" and n not in draft.fixed}
    floats = [n for n in roles.keys() & draft.made.keys() - draft.fixed.keys() if fills_floats(draft, n)]
    holding = {n: _wide(env[n]) for n in floats if isinstance(env[n], torch.Tensor) and not _finite(env[n])}
    finite = {**env, **{name: x.where(x.isfinite(), 0.0) for name, x in holding.items()}}
    rules = (rule for rule in draft.contract.reading.data if not rule.names & masks)
    broken = [rule for rule in rules if rule.fails(env) and (whole or not rule.fails(finite))]
    names = frozenset().union(*(rule.names for rule in broken)) & draft.plan.roles.keys() - draft.fixed.keys()
    return sorted(name for name in names & draft.made.keys() if fills_floats(draft, name))


def mend(draft: Draft) -> None:
    """Put elements right that are beyond what constraints allow, of what was drawn."""
    env, drawn = env_of(draft), draft.made.keys() - draft.fixed.keys()
    for name in elements.mend(draft.contract, draft.plan, env, drawn):
        draft.made[name].copy_(env[name])
    for name in arrange(draft.contract, draft.plan, env, drawn, draft.recipe.seed):
        draft.made[name].copy_(env[name])
    touch(draft.contract, draft.plan, draft.made, drawn, draft.recipe)
    for name in choose(draft.contract, draft.plan, env_of(draft), drawn):
        draft.made[name].copy_(env[name])


def repaired(draft: Draft) -> bool:
    """Make integers what constraints ask for that no rule knows, if possible; say whether some have changed.

    What was poisoned for other ones is made anew.
    """
    poisoned = shows_leaks(draft.contract, draft.plan, draft.recipe)
    env, drawn = env_of(draft), draft.made.keys() - draft.fixed.keys()
    changed = search.mend(draft.contract, draft.plan, env, drawn, draft.recipe.seed)
    for name in changed:
        draft.made[name].copy_(env[name])
    source = Source(draft.recipe.seed, draft.device)
    for name in drawn if changed and poisoned else ():
        value = draft.made[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not _finite(value):
            draft.made[name] = float_of(draft, name, source, "normal")
    return bool(changed)


def _finite(value: torch.Tensor) -> bool:
    """Say whether all elements are finite, as four-bit ones always are; torch asks only some dtypes of eight bits."""
    return value.dtype is torch.float4_e2m1fn_x2 or bool(_wide(value).isfinite().all())


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.itemsize == 1 else value
