"""A keyed digest of large tensors: what was there is told apart from what is there without keeping a copy."""

from __future__ import annotations

import torch

_WORDS = 1 << 22  # 32-bit words a step: 16 MiB read, 64 MiB of working memory


class Digest:
    """A linear hash over 32-bit words with secret random 63-bit weights, modulo 2**64.

    Two different contents agree with a chance below 2**-31. `device` is where the tensors lie.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)
        bounds = (-(1 << 63), (1 << 63) - 1)
        self._weights = torch.randint(*bounds, (_WORDS,), dtype=torch.int64, device=device, generator=generator)
        self._steps = torch.randint(*bounds, (1 << 20,), dtype=torch.int64, device=device, generator=generator) | 1

    def of(self, data: torch.Tensor) -> torch.Tensor:
        """Return the digest of a flat uint8 tensor, as a 0-d int64 tensor on its device (nothing is waited for)."""
        tail = data.numel() % 4
        words = data[: data.numel() - tail].view(torch.int32)
        sums = torch.empty(-(-words.numel() // _WORDS), dtype=torch.int64, device=data.device)
        for index, start in enumerate(range(0, words.numel(), _WORDS)):
            part = words[start : start + _WORDS]
            torch.sum(part * self._weights[: part.numel()], dim=0, out=sums[index])  # in place: launches cost the most
        total = (sums * self._steps[: sums.numel()]).sum()
        if tail:
            total += (data[data.numel() - tail :].to(torch.int64) * self._weights[:tail]).sum() * self._steps[-1]
        return total
