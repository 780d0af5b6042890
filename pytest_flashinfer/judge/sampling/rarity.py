"""Are the least likely ids of rows drawn as often as they should be? Some samplers never draw them."""

from __future__ import annotations

import torch

from pytest_flashinfer.judge.sampling.uniformity import EventCounts

_LEVELS = 2.0 ** (-torch.arange(9.0, 31.0, dtype=torch.float64) / 3)  # of a row's mass: what its rarest ids have
_SHIFT = 18  # bits of a float32: what is left has its exponent and five digits more, in the order of the floats
_KINDS = 4096  # more than there are of these up to one


class Rarity(EventCounts):
    """How often ids were drawn that together have little of a row's mass, and how often chance has it.

    A number that stands for a draw is spread over the mass of its id: of a tail that is cut off it shows only what
    no id reaches across. Here a tail is as many of the least likely ids of a row as have no more than some share
    of its mass together, from 1/8 down to 1/1024, and what they do have is what is expected. Shares are close to each
    other: of one that is well below what a sampler cuts off, less is missing. Ids whose masses differ by less than a
    thirtieth may be taken for equals.
    """

    def __init__(self) -> None:
        super().__init__(len(_LEVELS))

    def add(self, ids: torch.Tensor, mass: torch.Tensor) -> None:
        """Note ids [rows, 1] drawn from mass [rows, n]."""
        kinds = (mass.float().view(torch.int32) >> _SHIFT).clamp_(0, _KINDS - 1).long()
        upto = mass.new_zeros(len(mass), _KINDS, dtype=torch.float64).scatter_add_(1, kinds, mass.double()).cumsum_(1)
        levels = _LEVELS.to(mass.device).expand(len(mass), -1).contiguous()
        tails = torch.searchsorted(upto, levels, right=True) - 1
        held = torch.where(tails < 0, 0.0, upto.gather(1, tails.clamp_min(0)))
        seen = upto.gather(1, kinds.gather(1, ids)) <= levels
        self.note(seen.sum(dim=0), held.sum(dim=0))
