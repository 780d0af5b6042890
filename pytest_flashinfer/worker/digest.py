"""A keyed digest of large tensors: what was there is told apart from what is there without keeping a copy."""

from __future__ import annotations

import torch

_WORDS = 1 << 22  # 32-bit words a step: 16 MiB read, 64 MiB of working memory
_WIDTH, _SUMS = 4096, 8  # bytes of a row, and weighted sums of each; below 2**27 they are exact in 32 bits
_ROWS = _WORDS // _SUMS  # rows a step
_FEWEST = 32  # rows below which a product of matrices is not worth it; torch refuses it up to 16
_INTEGER_CORES = (7, 5)  # compute capability from which on a card multiplies matrices of 8-bit integers


class Digest:
    """A linear hash with secret random weights, modulo 2**64. `device` is where the tensors lie.

    Two different contents agree with a chance below 2**-31. On a card each row of bytes becomes eight sums with 8-bit
    weights first: a product of matrices, which reads the bytes once and writes little. What is left, and all on the
    CPU, is weighted by words.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)
        bounds = (-(1 << 63), (1 << 63) - 1)
        self._weights = torch.randint(*bounds, (_WORDS,), dtype=torch.int64, device=device, generator=generator)
        self._steps = torch.randint(*bounds, (1 << 20,), dtype=torch.int64, device=device, generator=generator) | 1
        self._columns: torch.Tensor | None = None
        if _multiplies_integers(device):
            size = (_WIDTH, _SUMS)
            self._columns = torch.randint(-128, 128, size, dtype=torch.int8, device=device, generator=generator)

    def of(self, data: torch.Tensor) -> torch.Tensor:
        """Return the digest of a flat uint8 tensor, as a 0-d int64 tensor on its device (nothing is waited for)."""
        count = data.numel() // _WIDTH if self._columns is not None else 0
        if count % _ROWS < _FEWEST:
            count -= count % _ROWS
        if not count:
            return self._of_words(data)
        rows, rest = data[: count * _WIDTH], data[count * _WIDTH :]
        return self._of_rows(rows.view(torch.int8).view(count, _WIDTH)) + self._of_words(rest) * self._steps[-2]

    def _of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.int64, device=rows.device)
        for step, part in zip(self._steps, rows.split(_ROWS), strict=False):
            sums = torch._int_mm(part, self._columns).view(-1)  # noqa: SLF001 - torch has no other name for it
            total += (sums * self._weights[: len(sums)]).sum() * step
        return total

    def _of_words(self, data: torch.Tensor) -> torch.Tensor:
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


def _multiplies_integers(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _INTEGER_CORES
