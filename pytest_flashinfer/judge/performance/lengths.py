"""The sequences of one case, as its own index tensors state them: nothing is drawn here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.integers.sequences import Setting
    from pytest_flashinfer.inputs.plan import Plan
    from pytest_flashinfer.worker.case import Case

_MOST: Final = 1 << 22  # elements of an index tensor


@dataclass(frozen=True)
class Ragged:
    """How long the sequences are, in tokens; `None` where no input says so.

    `indices` are the integer inputs, on the CPU. `page` is how many slots a page has. `segments` are the lengths that
    each array of pointers states.
    """

    setting: Setting
    kv: list[int] | None
    q: list[int] | None
    page: int
    indices: Mapping[str, torch.Tensor]
    segments: Mapping[str, list[int]]

    @property
    def plan(self) -> Plan:
        """The ragged structure of the definition."""
        return self.setting.plan

    @property
    def contract(self) -> Contract:
        """The definition as it was read for making inputs."""
        return self.setting.contract

    @property
    def pairs(self) -> list[tuple[int, int]] | None:
        """Queries and keys of each sequence; a definition without pointers to queries has one for each sequence."""
        if self.kv is None:
            return None
        queries = self.q if self.q is not None else [1] * len(self.kv)
        return list(zip(queries, self.kv, strict=True)) if len(queries) == len(self.kv) else None


def read_lengths(case: Case) -> Ragged:
    """Return what the index tensors of a case say."""
    import torch

    from pytest_flashinfer.inputs.contract import contract_of
    from pytest_flashinfer.inputs.dtypes import as_numbers
    from pytest_flashinfer.inputs.integers.sequences import draw_sequences
    from pytest_flashinfer.inputs.integers.structure import setting_for
    from pytest_flashinfer.inputs.plan import plan_of

    contract = contract_of(case.definition)
    plan = plan_of(contract)
    whole: dict[str, torch.Tensor] = {
        name: as_numbers(value.cpu())
        for name, value in case.values.items()
        if isinstance(value, torch.Tensor) and not value.is_floating_point() and _indexes(plan, name)
        if value.numel() <= _MOST  # else it is no index, or one that costs too much to follow
    }
    env: dict[str, Any] = {**case.definition.const_axes, **case.axes}
    env |= {name: value for name, value in case.values.items() if isinstance(value, (int, float))}
    setting = setting_for(contract, plan, env, case.recipe, whole)
    page = setting.size(plan.page_size) or 1
    if not _stated(plan, whole, page):
        return Ragged(setting, None, None, page, whole, {})
    found = draw_sequences(setting)  # which draws nothing that is given
    return Ragged(setting, found.kv, found.q, page, whole, found.segments)


def _stated(plan: Plan, whole: Mapping[str, torch.Tensor], page: int) -> bool:
    """Whether the inputs say how long every sequence is."""
    if not all(pointer.name in whole for pointer in plan.pointers):
        return False
    keys = plan.pointer("kv", "plain")
    if keys is None:
        return any(name in whole and plan.roles[name].group != "q" for name in plan.lengths)
    return keys.unit == "tokens" or page == 1 or plan.last_page in whole


def _indexes(plan: Plan, name: str) -> bool:
    role = plan.roles.get(name)
    return role is not None and role.kind not in {"bytes", "e8m0", "fused_bytes", "zeros", "seed", "data", "mask"}
