"""A plan that is kept from an earlier call, by the shapes or by the lengths of its index tensors, fails every check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_flashinfer.cases import making

from .repository import RANDOM, Repository

CHEATS = Path(__file__).parent.parent / "corpus" / "cheats"
DEFINITION = json.loads((CHEATS / "paged_sum_ps16_d64.json").read_text())
NAME = DEFINITION["name"]
SIZES = {"batch_size": 4, "len_indptr": 5, "num_kv_indices": 12, "num_pages": 30}
HONEST = (CHEATS / "237_honest_paged_sum.py").read_text()
BY_LENGTHS = (CHEATS / "112_plan_by_lengths.py").read_text()
BY_SHAPE = (CHEATS / "110_plan_by_shape_where_large.py").read_text().replace("1 << 24", "0")


def run(root, *options, **sources):
    repository = Repository(root)
    repository.define(**DEFINITION)
    lines = ({"uuid": f"paged-{n}", "axes": SIZES, "inputs": dict.fromkeys(DEFINITION["inputs"], RANDOM)} for n in "ab")
    repository.lines(*lines, name=NAME, folder=DEFINITION["op_type"])
    for name, source in sources.items():
        repository.solve(name, source, of=NAME)
    return repository.run("-k", "test_correct or test_speed", *options)


@pytest.mark.parametrize("scope", ["smoke", "full"])
def test_a_plan_that_is_kept_by_shape_fails_where_there_are_many_bytes(tmp_path, monkeypatch, scope):
    monkeypatch.setattr(making, "SMALL_BYTES", 1)
    done = run(tmp_path, f"--fib-scope={scope}", plan=BY_SHAPE, honest=HONEST)
    assert set(done.outcomes("[plan").values()) == {"failure"}
    assert set(done.outcomes("[honest").values()) == {"passed"}, done.output


def test_a_plan_that_is_kept_by_lengths_fails_and_the_seed_replays_it(tmp_path):
    done = run(tmp_path, "--fib-seed=1", plan=BY_LENGTHS, honest=HONEST)
    assert set(done.outcomes("[plan").values()) == {"failure"}
    assert set(done.outcomes("[honest").values()) == {"passed"}, done.output
    again = run(tmp_path, "--fib-seed=1", plan=BY_LENGTHS)
    told = [case.text.partition("replay:")[0] for each in (done, again) for case in each.of("test_correct[plan")]
    assert told[:2] == told[2:]
    assert all("call: rearranged" in text for text in told)
