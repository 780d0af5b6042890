"""Which solutions and workloads belong to a definition, and what is said about the others."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from pytest_flashinfer.cases.default_inputs import DefaultInputs
from pytest_flashinfer.cli.main import main
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.selection import omissions
from pytest_flashinfer.selection.catalogue import Catalogue
from pytest_flashinfer.settings.options import Options, workloads_beside
from tests.plugin.repository import RANDOM, Repository


def catalogue(root, *, scope="full", solutions=("solutions",), workloads=("workloads",)):
    values = dict.fromkeys(Options.__dataclass_fields__)
    places = {"definitions": (root / "definitions",), "workloads": tuple(root / place for place in workloads)}
    places |= {"solutions": tuple(root / place for place in solutions), "linked": ()}
    return Catalogue(Options(**values | places), scope)


def said_of(root, **places):
    found = catalogue(root, **places)
    running = [path for path in found.dataset.definition_files() if found.solutions(found.definition(path))]
    return list(omissions.warnings(found, (), running))


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path)
    made.path = made.define()
    made.sizes(4)
    return made


def keys(repository, **options):
    found = catalogue(repository.root, **options)
    return list(found.solutions(found.definition(repository.path)))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (".", "./workloads"),
        ("definitions", "./workloads"),
        ("definitions/gemm", "./workloads"),
        ("definitions/gemm/a.json", "./workloads"),
        ("mine/definitions", None),  # those of another data set
        ("mine/definitions/gemm/a.json", None),
        ("mine/own/definitions/a.json", "mine/own/workloads"),
        ("defs/gemm/a.json", "./workloads"),
        ("problem", "problem/workloads"),
        ("problem/a.json", "problem/workloads"),
        ("a.json", "./workloads"),
        ("one/two/three", None),
    ],
)
def test_workloads_are_those_of_the_data_set_that_definitions_are_of(tmp_path, given, found):
    for name in ("workloads", "problem/workloads", "mine/own/workloads", "mine/definitions/gemm", "definitions/gemm"):
        (tmp_path / name).mkdir(parents=True)
    place = tmp_path / given
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch() if given.endswith(".json") else place.mkdir(parents=True, exist_ok=True)
    assert workloads_beside(place) == (found and tmp_path / found)


def test_a_name_may_be_that_of_solutions_of_several_definitions(repository):
    """Three definitions each have a solution `triton_v1` of one author: all of them run."""
    for other in ("scale_add_h8", "b_h8", "c_h8"):
        repository.define(name=other)
        repository.solve("triton_v1", of=other, author="tests")
    found = catalogue(repository.root)
    for path in found.dataset.definition_files():
        [(key, entry)] = found.solutions(found.definition(path)).items()
        assert key == "triton_v1"
        assert entry.solution.definition == found.definition(path).name


def test_a_name_taken_twice_has_the_author_in_front(repository):
    repository.solve("v1", author="ada")
    repository.solve("v1", author="bob")
    repository.write("solutions/again.json", repository.solve("v1", author="bob").read_text())
    repository.write("solutions/once_more.json", repository.solve("v1", author="bob").read_text())
    assert keys(repository) == ["ada.v1", "bob.v1", "bob.v1.2", "v1"]
    found = catalogue(repository.root)
    faults = [str(fault) for fault in found.problems(repository.path) if fault.kind == "fault"]
    assert len(faults) == 3
    assert all("rename one" in fault for fault in faults)


def test_a_place_named_twice_holds_its_solutions_once(repository):
    repository.solve("v1")
    assert keys(repository, solutions=("solutions", "solutions/tests")) == ["v1"]


def test_a_definition_whose_name_is_taken_twice_runs_none(repository):
    repository.solve("v1")
    repository.define(folder="elsewhere", stem="copy")
    assert keys(repository) == []


def test_a_saved_failure_is_in_scope_whatever_the_scope(repository):
    lines = [{"uuid": f"w-{n}", "axes": {"n": n}, "inputs": {"x": RANDOM, "w": RANDOM}} for n in range(1, 30)]
    for number in (20, 21):
        lines[number]["recipe"] = {"seed": number, "family": "normal", "structure": "mixed"}
    repository.lines(*lines)
    found = catalogue(repository.root, scope="smoke")
    chosen = found.workloads(repository.path, found.definition(repository.path))
    assert {"w-1", "w-21", "w-22"} <= chosen.keys()
    assert len(chosen) < 10
    assert [each.axes["n"] for each in chosen.values()] == sorted(each.axes["n"] for each in chosen.values())
    assert len(found.listed(repository.path)) == 29


@pytest.mark.parametrize("place", ["solutions", "solutions/empty"])
def test_a_place_without_a_solution_is_said(repository, place):
    repository.write("solutions/empty/notes.txt", "nothing")
    [text] = said_of(repository.root, solutions=(place,))
    assert text.startswith(f"--fib-solutions: no solution in {repository.root / place}: a solution is a .json file")


def test_only_the_empty_place_is_said(repository):
    repository.solve("v1")
    repository.write("empty/notes.txt", "nothing")
    [text] = said_of(repository.root, solutions=("solutions", "empty"))
    assert str(repository.root / "empty") in text


def test_nothing_is_said_where_all_is_well(repository):
    repository.solve("v1")
    assert said_of(repository.root) == []
    assert said_of(repository.root, solutions=()) == []


def test_solutions_of_unknown_definitions_are_said_once(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository.root)
    for number in range(9):
        repository.solve(f"v{number}", of="scale_ad_h8" if number == 8 else "nothing_like_it")
    [text] = said_of(repository.root)
    first, nearest, *_, last = text.splitlines()
    assert first == "solutions that are not run:"
    assert "did you mean 'scale_add_h8'" in nearest
    command = "python -m pytest_flashinfer validate definitions solutions"
    assert last == f"and 4 more: {command} names all"
    assert main(command.split()[3:]) == 1
    assert capsys.readouterr().out.count("unknown definition") == 9


def test_workloads_that_belong_to_nothing_are_said_where_a_definition_has_none(repository):
    repository.solve("v1")
    file = next((repository.root / "workloads").rglob("*.jsonl"))
    file.rename(file.with_name("cases.jsonl"))
    [text] = said_of(repository.root)
    assert text.startswith("no workloads for 1 definition, and no definition for 1 file, as ")
    assert "cases.jsonl: name a file after the definition, as scale_add_h8.jsonl" in text


def test_workloads_that_are_nowhere_are_said(repository):
    repository.solve("v1")
    file = next((repository.root / "workloads").rglob("*.jsonl"))
    file.unlink()
    [said] = said_of(repository.root)
    assert said.startswith("no workloads for scale_add_h8: nothing but test_sizes runs solutions; name a file")
    assert said_of(repository.root, solutions=()) == [], "nobody would use them"
    repository.define(name="other")
    repository.sizes(4, name="other")
    repository.solve("v1", of="other")
    assert said_of(repository.root) == [said], "one that has some does not stand for those that have none"


def test_references_that_nothing_runs_are_said(repository):
    path = repository.define(name="other")
    found = catalogue(repository.root, solutions=())
    [said] = omissions.warnings(found, (), (), [repository.path, path])
    assert said == "definitions without workloads, whose references did not run:\nother"
    [said] = omissions.warnings(found, (), [path], [repository.path, path])
    assert said.startswith("no workloads for other:")


def test_each_file_of_workloads_has_a_root_of_its_own(repository, tmp_path):
    """Stored tensors lie in the tree that the line is in, in the check as in the run."""
    trees = [tmp_path / tree for tree in "ab"]
    for tree in trees:
        (tree / "blob").mkdir(parents=True)
        save_file({"x": torch.ones(4, 8)}, tree / f"blob/{tree.name}.safetensors")
        source = {"type": "safetensors", "path": f"blob/{tree.name}.safetensors", "tensor_key": "x"}
        line = {"uuid": tree.name, "axes": {"n": 4}, "inputs": {"x": source, "w": RANDOM}}
        place = tree / "workloads/elementwise/scale_add_h8.jsonl"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"definition": "scale_add_h8", "workload": line}) + "\n")
    found = catalogue(repository.root, workloads=[tree / "workloads" for tree in trees])
    assert [str(fault) for fault in found.problems(repository.path) if fault.kind == "fault"] == []
    assert found.data_roots(repository.path) == {tree.name: tree for tree in trees}
    make = DefaultInputs(found.definition(repository.path), "cpu", found.data_roots(repository.path))
    workloads = found.workloads(repository.path, make.definition)
    assert [make(each.axes, Recipe(0), each)["x"].sum() for each in workloads.values()] == [32, 32]
