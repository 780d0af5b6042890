"""Rows that one id leads by far: what is expected of the others is what they have, and draws without them are found."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.sampling.draws import FALSE_ALARM, LED, Draws
from pytest_flashinfer.judge.sampling.leading import Leading
from tests.judge.drawing import accuse_rarely, drawn


def rows(number: int, low: float, high: float, seed: int) -> torch.Tensor:
    """Return distributions of which some have an id with a share between these, and most are flat."""
    generator = torch.Generator().manual_seed(seed)
    mass = torch.randn(number, 300, generator=generator).softmax(1)
    share = torch.empty(number, 1).uniform_(low, high, generator=generator)
    led = share * torch.eye(300)[torch.randint(300, (number,), generator=generator)] + (1 - share) * mass
    return torch.where(torch.rand(number, 1, generator=generator) < 0.2, led, mass)


def greedy(mass: torch.Tensor, above: float, seed: int) -> torch.Tensor:
    return torch.where(mass.amax(1, keepdim=True) > above, mass.argmax(1, keepdim=True), drawn(mass, seed))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.52, 0.56, 0.7, 0.99])
def test_what_is_expected_of_the_others_is_what_draws_of_each_id_would_count(share: float) -> None:
    mass = torch.tensor([[share, 1 - share]], dtype=torch.float64)
    counted, leading = torch.zeros(5, dtype=torch.float64), Leading()
    for each, own in enumerate(mass[0].tolist()):
        leading = Leading()
        leading.add(torch.tensor([[each]]), mass)
        counted += leading.seen * own
    torch.testing.assert_close(leading.expected, counted)


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.6, 0.8), (0.7, 0.95), (0.9, 0.999), (1.0, 1.0)])
def test_honest_draws_are_accused_as_rarely_as_stated(low: float, high: float) -> None:
    accuse_rarely(Leading, lambda seed: rows(600, low, high, seed))


@pytest.mark.parametrize("above", [0.65, 0.8])
def test_who_does_not_draw_where_one_leads_is_found_among_a_few_thousand_draws(above: float) -> None:
    draws = Draws(1)
    for call in range(40):
        mass = rows(60, 0.7, 0.95, call)
        draws.add(greedy(mass, above, call), mass)
    found = draws.look()
    assert found is not None
    assert found == (pytest.approx(0, abs=FALSE_ALARM), LED)


def test_equals_and_rows_whose_edge_is_a_matter_of_rounding_say_nothing() -> None:
    draws = Draws(1)
    draws.add(torch.zeros(200, dtype=torch.int64), torch.full((200, 2), 0.5))
    draws.add(torch.tensor([0]), torch.tensor([[0.9, 0.1, 0.0]]), torch.ones(1, 3) > 0)
    assert not draws._leading.expected.any()
