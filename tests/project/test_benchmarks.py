"""The scripts that measure the harness's own speed run as they are, here on a data set of no size."""

import gc
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("tables", "trees", "collection", "startup"):
        sys.modules.pop(name, None)


def test_collection_prints_a_row_for_each_command(monkeypatch, capsys):
    import collection

    monkeypatch.setattr(collection, "ROUNDS", 1)
    monkeypatch.setattr(collection, "ONE", "kernel_0001_h64")
    monkeypatch.setattr(sys, "argv", ["collection.py", "2", "1", "2"])
    collection.main()
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    cells = {name.strip(): items.strip() for name, items in rows}
    assert cells["pytest-flashinfer"] == cells["plain pytest"] == "16", "the yardstick has as many items"
    assert "-k kernel_0001_h64" in cells


def test_the_data_sets_are_valid(tmp_path):
    import trees

    from pytest_flashinfer.data.dataset import DataSet

    trees.write(tmp_path, 3, 2, 2)
    dataset = DataSet(*([tmp_path / name] for name in ("definitions", "solutions", "workloads")))
    assert len(dataset.definition_files()) == 3
    for path in dataset.definition_files():
        assert not dataset.problems(path)
        assert len(dataset.workloads(path)) == 2
    assert len({loaded.value.digest for loaded in dataset.solutions}) == 2


@pytest.mark.parametrize("script", ["startup", "evaluation", "memory", "cards"])
def test_a_script_has_nothing_to_be_edited(script):
    found = runpy.run_path(str(FOLDER / f"{script}.py"))
    assert callable(found["main"])
    assert "No arguments" in found["__doc__"] or "no arguments" in found["__doc__"]


def test_the_garbage_collector_is_left_as_it_was(pytester):
    pytester.makepyfile("import gc\ndef test_on(): assert gc.isenabled()")
    (pytester.path / "definitions").mkdir()
    assert gc.isenabled()
    pytester.runpytest_inprocess("--fib-definitions=definitions", "--fib-device=cpu", ".").assert_outcomes(passed=1)
    assert gc.isenabled()
