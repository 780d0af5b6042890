"""Which part of an output was never written, in words."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.worker import unwritten as module
from pytest_flashinfer.worker.unwritten import NOTHING, describe, statement


def mask(*size, at=()):
    made = torch.zeros(size, dtype=torch.bool)
    for place in at:
        made[place] = True
    return made


@pytest.mark.parametrize(
    ("unwritten", "text"),
    [
        (mask(2, 3, at=[0, 1]), "never written"),
        (mask(4, 3, at=[3]), "last row never written"),
        (mask(4, 3, at=[2, 3]), "last 2 of 4 rows never written"),
        (mask(4, 3, at=[(slice(None), 2)]), "last column never written"),
        (mask(6, at=[5]), "last element never written"),
        (mask(6, at=[4, 5]), "last 2 of 6 elements never written"),
        (mask(6, at=[1, 5]), "2 of 6 elements never written, first at [1]"),
        (mask(4, 3, 5, at=[(1, 2, 3), (3, 0, 0)]), "2 of 60 elements never written, first at [1, 2, 3]"),
        (mask(3, 4, at=[(0, 0)]).T, "1 of 12 elements never written, first at [0, 0]"),
        (mask(3, 4, at=[(1, 2), (2, 0)]).T, "2 of 12 elements never written, first at [0, 2]"),
    ],
)
def test_what_was_left_is_described(unwritten, text):
    assert describe(unwritten) == text


def test_a_statement_needs_no_other_word():
    assert describe(torch.ones(2, dtype=torch.bool)) == NOTHING
    text = "output 'y': last row never written: the value that every output is filled with before a call is still there"
    assert statement("y", "last row never written") == text


@pytest.mark.parametrize("shape", [(), (0, 4), (7,), (5, 4), (2, 3, 4)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_word_is_found_wherever_the_parts_end(monkeypatch, shape, turned):
    monkeypatch.setattr(module, "_PART", 3)
    words = torch.zeros(shape, dtype=torch.int16)
    words = words.transpose(0, -1) if turned and shape else words
    assert not module.any_equal(words, 9)
    for at in range(words.numel()):
        held = words.clone()
        held[torch.unravel_index(torch.tensor(at), words.shape)] = 9
        assert module.any_equal(held, 9)
