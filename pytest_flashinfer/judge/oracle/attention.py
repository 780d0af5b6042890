"""`scaled_dot_product_attention` as the sums it stands for, so that every step of it is seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def plain_attention(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Compute attention step by step; q [..., q_len, d], k and v [..., kv_len, d]; returns the op's result tuple."""
    query, key, value = args[:3]
    rest = list(args[3:])
    mask = kwargs.get("attn_mask", kwargs.get("attn_bias"))
    if "efficient" in name or "cudnn" in name:
        mask = rest.pop(0) if rest else mask
        rest = rest[1:]  # compute_log_sumexp
    causal = bool(kwargs.get("is_causal", rest[1] if len(rest) > 1 else False))
    scale = kwargs.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale  # 0 is one
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 3 else 1  # noqa: PLR2004 - [batch, heads, len, d]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=-3), value.repeat_interleave(groups, dim=-3)
    scores = query @ key.transpose(-2, -1) * scale
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, dim=-1) if mask is None else safe_softmax(scores, -1)
    return ((weights @ value).to(query.dtype), torch.logsumexp(scores, dim=-1))


def safe_softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Compute a softmax along `dim` in which rows that are -inf throughout, of queries that see no key, are zero."""
    weights = torch.softmax(scores, dim, dtype=dtype)
    if not scores.numel():
        return weights
    return weights.masked_fill(scores.amax(dim, keepdim=True) == -math.inf, 0.0)
