"""Rare ids: what is expected of them is what they have, and draws that leave them out are found."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.judge.sampling.draws import FALSE_ALARM
from pytest_flashinfer.judge.sampling.rarity import _LEVELS, Rarity
from tests.judge.drawing import accuse_rarely, drawn


def rows(number: int, ids: int, heat: float, seed: int) -> torch.Tensor:
    return (heat * torch.randn(number, ids, generator=torch.Generator().manual_seed(seed))).softmax(1)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 60), st.sampled_from([0.0, 0.1, 1.0, 5.0]), st.integers(0, 2**32))
def test_the_mass_of_tails_is_what_draws_of_each_id_would_count(ids: int, heat: float, seed: int) -> None:
    mass, counted = rows(1, ids, heat, seed), torch.zeros_like(_LEVELS)
    for each, share in enumerate(mass[0].tolist()):
        rarity = Rarity()
        rarity.add(torch.tensor([[each]]), mass)
        counted += rarity.seen * share
    torch.testing.assert_close(rarity.expected, counted, atol=1e-6, rtol=1e-5)
    assert (rarity.expected <= _LEVELS).all()


@pytest.mark.parametrize(("heat", "ids"), [(0.1, 500), (1.0, 500), (1.0, 20), (4.0, 500)])
def test_honest_draws_are_accused_as_rarely_as_stated(heat: float, ids: int) -> None:
    accuse_rarely(Rarity, lambda seed: rows(100, ids, heat, seed))


def test_a_tail_that_is_cut_off_and_one_that_is_too_heavy_are_found() -> None:
    mass, cut, heavy = rows(4000, 200, 1.0, 1), Rarity(), Rarity()
    ordered, ids = mass.sort(dim=1, descending=True)
    kept = torch.where(ordered.cumsum(1) - ordered < 0.99, ordered, 0.0)
    cut.add(ids.gather(1, drawn(kept, 2)), mass)
    assert cut.chance() < FALSE_ALARM / 8
    heavy.add(drawn(mass.pow(0.8), 3), mass)
    assert heavy.chance() < FALSE_ALARM / 8


def test_nothing_is_said_of_few_draws() -> None:
    rarity = Rarity()
    assert rarity.chance() == 1.0
    rarity.add(torch.tensor([[0]]), torch.tensor([[0.5, 0.5]]))
    assert rarity.chance() == 1.0
