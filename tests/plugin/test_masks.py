"""A mask that a kernel keeps from an earlier call is told."""

from __future__ import annotations

import pytest

from .repository import Repository

INPUTS = {"x": {"shape": ["n", "h"], "dtype": "float32"}, "mask": {"shape": ["n"], "dtype": "bool"}}
RUN = "def run(x, mask):\n    return x * mask[:, None]\n"
KEPT = """
seen = {}

def run(x, mask):
    ends = mask[[0, len(mask) // 2, -1]].tolist() if len(mask) else []
    mask = seen.setdefault((len(mask), *ends, mask.data_ptr()), mask.clone())
    return x * mask[:, None]
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_mask_is_another_one_in_every_call(tmp_path, seed):
    repository = Repository(tmp_path)
    repository.define(inputs=INPUTS, reference=RUN)
    repository.lines({"uuid": "some", "axes": {"n": 24}, "inputs": {name: {"type": "random"} for name in INPUTS}})
    repository.solve("kept", KEPT)
    repository.solve("right", RUN)
    done = repository.run(f"--fib-seed={seed}", "-k", "test_correct")
    assert {case.name[13:17]: case.outcome for case in done.of("test_correct")} == {"kept": "failure", "righ": "passed"}
