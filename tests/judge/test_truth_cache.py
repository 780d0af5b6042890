"""Truths between two solutions: what stays on the device, what goes to the host, what is forgotten."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.judge.oracle.truth import OutputTruth, Truth
from pytest_flashinfer.judge.oracle.truth_cache import Shelf, _moved

KIB = 1 << 10


def truth(fill: float, kib: int = 1) -> Truth:
    native = torch.full((kib * KIB // 4,), float(fill))
    return Truth({"y": OutputTruth("y", "float32", native, exact=True)}, notes=("n",))


def value(found: Truth | None) -> float | None:
    return None if found is None else float(found.outputs["y"].native[0])


def test_what_took_long_is_kept_on_the_host_and_comes_back_as_it_was():
    shelf: Shelf[Truth] = Shelf(near=KIB, far=4 * KIB)
    shelf.put("slow", truth(1.0), 3.0)
    shelf.put("fast", truth(2.0), 0.01)
    shelf.put("last", truth(3.0), 0.01)
    assert [value(shelf.get(key)) for key in ("last", "fast", "slow")] == [3.0, None, 1.0]
    found = shelf.get("slow")
    assert found.notes == ("n",)
    assert found.outputs["y"].exact
    assert found.outputs["y"].wide is None
    assert value(shelf.get("last")) is None, "it has made room for the other"


def test_of_what_does_not_fit_on_the_host_the_dearest_stays():
    shelf: Shelf[Truth] = Shelf(near=KIB, far=2 * KIB)
    for number, seconds in enumerate((5.0, 1.0, 4.0, 9.0)):
        shelf.put(number, truth(number), seconds)
    shelf.put("last", truth(7.0, kib=2), 0.0)
    assert [value(shelf.get(key)) for key in (0, 1, 2, 3)] == [0.0, None, None, 3.0]


def test_without_room_on_the_host_nothing_goes_there():
    shelf: Shelf[Truth] = Shelf(near=KIB)
    shelf.put("slow", truth(1.0), 3.0)
    shelf.put("last", truth(2.0), 3.0)
    assert shelf.get("slow") is None


def test_all_parts_of_a_truth_count():
    part = torch.zeros(KIB // 4)
    names = ("native", "wide", "allowance", "undecided", "probabilities", "support")
    shelf: Shelf[Truth] = Shelf(near=6 * KIB)
    for key in "ab":
        shelf.put(key, Truth({"y": OutputTruth("y", "int64", **dict.fromkeys(names, part))}), 0.0)
        assert sum(each.nbytes for each in shelf._near.values()) == 6 * KIB
    assert list(shelf._near) == ["b"]


def test_a_bound_that_elements_share_counts_once():
    native = torch.zeros(16, 16, dtype=torch.bfloat16)
    bound = torch.ones(16, 1).expand(16, 16)
    shelf: Shelf[Truth] = Shelf(near=KIB)
    shelf.put("lent", Truth({"y": OutputTruth("y", "bfloat16", native, None, bound)}), 0.0)
    assert shelf._near["lent"].nbytes == 16 * 16 * 2 + 16 * 4


@pytest.mark.parametrize("shape", [(16, 8, 4), (0, 3), (1,), ()])
def test_a_bound_that_elements_share_is_shared_on_the_other_device_too(shape):
    lent = OutputTruth("y", "bfloat16", torch.zeros(shape), None, torch.ones(()).expand(shape))
    moved = _moved(Truth({"y": lent}), torch.device("meta")).outputs["y"]
    assert (moved.native.shape, moved.allowance.shape) == (shape, shape)
    assert moved.native.is_contiguous()
    assert moved.allowance.untyped_storage().nbytes() <= 4


def test_what_is_too_large_to_be_kept_goes_before_the_next_is_asked_for():
    shelf: Shelf[Truth] = Shelf(near=KIB, far=2 * KIB)
    shelf.put("large", truth(1.0, kib=2), 9.0)
    assert value(shelf.get("large")) == 1.0
    shelf.make_room()
    assert not shelf._near
    assert value(shelf.get("large")) == 1.0
    shelf.put("small", truth(2.0), 0.0)
    shelf.make_room()
    assert list(shelf._near) == ["small"]


def test_errors_take_no_room():
    shelf: Shelf[Truth | Exception] = Shelf(near=KIB, far=KIB)
    error = ValueError("no truth")
    shelf.put("failed", error, 9.0)
    shelf.put("one", truth(1.0), 0.0)
    assert shelf.get("failed") is error
    shelf.clear()
    assert shelf.get("failed") is shelf.get("one") is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.sampled_from([0.0, 0.6, 2.0])), max_size=25))
def test_what_is_found_is_what_was_put_there_and_never_takes_more_than_allowed(puts):
    shelf: Shelf[Truth] = Shelf(near=4 * KIB, far=3 * KIB)
    known = {}
    for number, (key, kib, seconds) in enumerate(puts):
        if shelf.get(key) is None:
            shelf.put(key, truth(number, kib), seconds)
            known[key] = number
        assert value(shelf.get(key)) == known[key]
        sizes = [[each.nbytes for each in part.values()] for part in (shelf._near, shelf._far)]
        assert shelf._near_bytes == sum(sizes[0]) <= 4 * KIB
        assert sum(sizes[1]) <= 3 * KIB
