"""Are rows drawn from as they should be in which one id leads by far? Some samplers always take that one."""

from __future__ import annotations

import torch

from pytest_flashinfer.judge.sampling.uniformity import EventCounts

_LEVELS = torch.tensor((0.55, 0.6, 0.7, 0.8, 0.9), dtype=torch.float64)  # of a row's mass: what its likeliest id has


class Leading(EventCounts):
    """How often another id was drawn in rows whose likeliest one has some share of the mass or more.

    Among all rows those that say something by it are few, and what is missing in them is little of all draws.
    """

    def __init__(self) -> None:
        super().__init__(len(_LEVELS))

    def add(self, ids: torch.Tensor, mass: torch.Tensor) -> None:
        """Note ids [rows, 1] drawn from mass [rows, n]."""
        most = mass.amax(dim=1, keepdim=True).double()
        leads = most >= _LEVELS.to(mass.device)
        other = mass.gather(1, ids).double() < most
        self.note((leads & other).sum(dim=0), torch.where(leads, 1 - most, 0.0).sum(dim=0))
