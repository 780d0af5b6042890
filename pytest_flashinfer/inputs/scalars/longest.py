"""Scalars that say how long the longest sequence is: no kernel may be told less than it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.inputs.dtypes import as_numbers
from pytest_flashinfer.inputs.integers import queries

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_flashinfer.inputs.integers.sequences import Sequences, Setting


def longest_scalars(setting: Setting, found: Sequences, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set the scalars `max_q_len`, `max_seq_len` and the like that nothing else decides, or that are too small."""
    contract = setting.contract
    for name in queries.bounds_of_lengths(contract):
        most = _most(setting, found, tensors, of_queries=queries.of_queries(name))
        known = setting.env.get(name)
        if most is not None and (not isinstance(known, int) or known < most):
            setting.env[name] = max(1, most)


def _most(
    setting: Setting, found: Sequences, tensors: Mapping[str, torch.Tensor], *, of_queries: bool
) -> int | None:  # fmt: skip
    """Return the greatest length of queries, or of keys; of what there is, where there is one of them only."""
    roles = setting.plan.roles
    every = {name: values for name, values in {**setting.given, **tensors}.items() if name in setting.plan.lengths}
    lengths = [
        int(as_numbers(values).max())
        for name, values in every.items()
        if values.numel() and (roles[name].group == "q") is of_queries
    ]
    if of_queries:
        lengths += found.q or ([] if lengths or not found.count else [queries.each(setting, found)])
    else:
        lengths += found.kv or [] if lengths or found.kv is not None else found.q or []
    return max(lengths, default=None)
