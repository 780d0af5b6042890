"""An indexer, in whose long top-k rounding decides the order of nearly each row, still has wrong answers."""

from __future__ import annotations

import pytest

REFERENCE = """import torch

def run(q, keys, scale):
    scores = torch.relu(q.float() @ (keys.float() * scale[:, None]).T).sum(dim=1)
    best = scores.topk(min(128, keys.shape[0]), dim=-1).indices.int()
    return torch.nn.functional.pad(best, (0, 128 - best.shape[1]), value=-1)
"""
SCALED = "(keys.float() * scale[:, None])"
SOLUTIONS = {
    "honest": (REFERENCE.replace(SCALED, f"{SCALED}.bfloat16().float()"), "passed"),
    "another_order": (REFERENCE.replace(").indices.int()", ").indices.sort(dim=-1).values.int()"), "failure"),
    "without_scale": (REFERENCE.replace(SCALED, "keys.float()"), "failure"),
    "zeros": (REFERENCE.replace("value=-1)", "value=-1) * 0"), "failure"),
}


@pytest.fixture
def indexer(repository):
    """A definition of the kind, a workload of more keys than are chosen and one of fewer, and its solutions."""
    repository.define(
        name="indexer_k128",
        op_type="indexer",
        description="Ids of the best keys for each query, best first; -1 pads.",
        axes={
            "b": {"type": "var"},
            "n": {"type": "var"},
            **{name: {"type": "const", "value": value} for name, value in (("h", 8), ("d", 64), ("topk", 128))},
        },
        inputs={
            "q": {"shape": ["b", "h", "d"], "dtype": "float8_e4m3fn"},
            "keys": {"shape": ["n", "d"], "dtype": "float8_e4m3fn"},
            "scale": {"shape": ["n"], "dtype": "float32", "description": "scale of each key"},
        },
        outputs={"ids": {"shape": ["b", "topk"], "dtype": "int32"}},
        reference=REFERENCE,
    )
    random = {name: {"type": "random"} for name in ("q", "keys", "scale")}
    lines = ({"uuid": f"w-{n:04d}", "axes": {"b": 4, "n": n}, "inputs": random} for n in (700, 100))
    repository.lines(*lines, name="indexer_k128", folder="indexer")
    for name, (source, _) in SOLUTIONS.items():
        repository.solve(name, source, of="indexer_k128")
    return repository


def test_verdicts(indexer):
    done = indexer.run("-k", "indexer_k128 and (test_correct or test_sizes)", "--fib-examples=40", "--fib-seconds=10")
    for name, (_, wanted) in SOLUTIONS.items():
        assert done[f"test_sizes[{name}"].outcome == wanted, done.output
    listed = {(case.name.split("[")[1].split("-")[0], "n700" in case.name): case for case in done.of("test_correct")}
    outcomes = {key: case.outcome for key, case in listed.items()}
    assert {outcomes["honest", many] for many in (True, False)} == {"passed"}
    assert {outcomes["zeros", many] for many in (True, False)} == {"failure"}
    assert outcomes["without_scale", True] == "failure", "of a hundred keys all are chosen"
    wrong = listed["zeros", True]
    assert "of 128 ids are not the reference's, such as 0" in wrong.text
    assert "hardly any answer" not in done.output
