"""The script that compares each shipped solution with itself finds the pairs, and knows what they may differ by."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks/whole_runs.py"
SPEC = importlib.util.spec_from_file_location("whole_runs", PATH)
whole_runs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(whole_runs)


def bench(item, median):
    return {"fullname": f"d/a.json::test_speed[{item}]", "stats": {"median": median}}


def test_pairs():
    benchmarks = [bench("x-n4-w", 1e-5), bench("x__twin-n4-w", 2e-5), bench("y-n4-w", 3e-5)]
    assert whole_runs.pairs(benchmarks) == [("x n4-w", 1e-5, 2e-5)]


def test_what_is_too_far_apart_is_said(capsys):
    whole_runs.report([("large", 100e-6, 103e-6), ("fine", 100e-6, 101e-6), ("small", 2e-6, 2.03e-6)])
    out = capsys.readouterr().out
    assert "above 5 us: at most 2 %: 1 of 2 pairs; median 2.00 %, largest 3.00 %" in out
    assert "up to 5 us: at most 2 % and one clock step: 1 of 1 pairs" in out
    assert [line.split()[0] for line in out.splitlines() if "too far" in line] == ["large"]


@pytest.mark.parametrize(("seconds", "most"), [(100e-6, 2e-6), (2e-6, 72e-9)])
def test_allowed(seconds, most):
    assert whole_runs.allowed(seconds) == pytest.approx(most)


def test_every_shipped_solution_gets_a_twin(tmp_path):
    whole_runs.twins(tmp_path)
    names = [json.loads(path.read_text())["name"] for path in tmp_path.rglob("*.json")]
    assert len(names) == len(set(names)) > 20
    assert {f"{name}__twin" for name in names if not name.endswith("__twin")} == {n for n in names if "__twin" in n}
