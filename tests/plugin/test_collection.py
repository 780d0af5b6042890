"""What is collected, under which ids, in which order."""

import itertools
import json
import sys

import pytest

from .repository import GOOD, WRONG, Repository

FILE = "definitions/elementwise/scale_add_h8.json"
BASE_ITEMS = [
    f"{FILE}::test_schema",
    f"{FILE}::test_reference[n4-w_0004]",
    f"{FILE}::test_correct[good-n4-w_0004]",
    f"{FILE}::test_sizes[good]",
    f"{FILE}::test_speed[good-n4-w_0004]",
]


def test_ids(collected):
    assert sorted(collected()) == sorted(BASE_ITEMS)


def test_ids_are_the_same_again(collected):
    assert collected() == collected()


def test_order_is_sorted_and_keeps_a_solution_together(repository, collected):
    for name in ("zeta", "alpha"):
        repository.solve(name)
    repository.sizes(16, 2)
    repository.define(name="another_h8")
    repository.define(name="later_h8", op_type="zzz")
    items = collected("--fib-scope=full")
    files = [item.partition("::")[0] for item in items]
    assert list(dict.fromkeys(files)) == sorted(set(files))
    params = [item.partition("[")[2].rstrip("]") for item in items if "scale_add" in item and "[" in item]
    solutions = [param.partition("-")[0] for param in params if param.partition("-")[0] in ("alpha", "good", "zeta")]
    assert list(dict.fromkeys(solutions)) == ["alpha", "good", "zeta"]
    changes = sum(before != after for before, after in itertools.pairwise(solutions))
    assert changes == 2, "a solution's process is closed when its items end: they have to stand together"


def test_ids_are_ascii_and_short(repository, collected):
    repository.solve("grüße [v1] ü", author="jemand")
    repository.sizes(4)
    items = [item for item in collected() if "gr" in item]
    assert items
    for item in items:
        assert item.isascii()
        name = item.partition("::")[2]
        assert name.count("[") == name.count("]") == 1
        assert len(name) < 100


def test_definition_file_as_argument(collected):
    assert sorted(collected(FILE)) == sorted(BASE_ITEMS)


def test_one_item_as_argument(kernels):
    result = kernels(BASE_ITEMS[2])
    result.assert_outcomes(passed=1)


def test_definition_file_outside_the_definition_folders(repository, collected, pytester):
    place = pytester.mkdir("elsewhere") / "other_h8.json"
    place.write_text(json.dumps(json.loads((repository.root / FILE).read_text()) | {"name": "other_h8"}))
    assert f"{place.relative_to(pytester.path)}::test_schema" in collected("elsewhere/other_h8.json")


def test_paths_anywhere(repository, pytester):
    away = pytester.mkdir("away")
    for old, new in (("definitions", "D"), ("solutions", "S"), ("workloads", "W")):
        (repository.root / old).rename(away / new)
    options = ("--fib-definitions=away/D", "--fib-solutions=away/S", "--fib-workloads=away/W", "--fib-device=cpu")
    result = pytester.runpytest_inprocess(*options, "--collect-only", "-q")
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == [
        item.partition("::")[2] for item in BASE_ITEMS
    ]


@pytest.fixture
def apart(repository, pytester):
    """Options for two data sets outside the root folder, whose files have the same names; the second is wrong."""
    (repository.root / FILE).unlink()
    pytester.mkdir("root")
    options = ["--rootdir=root", "--fib-device=cpu", "--fib-examples=3"]
    for vendor, source in (("a", GOOD), ("b", WRONG)):
        one = Repository(pytester.path / vendor)
        one.define(name=f"scale_{vendor}_h8", stem="scale")
        one.sizes(4, name=f"scale_{vendor}_h8")
        one.solve(source=source, of=f"scale_{vendor}_h8")
        options += [f"--fib-definitions={vendor}/definitions", f"--fib-solutions={vendor}/solutions"]
    return options


def test_two_data_sets_outside_the_root_folder_have_ids_of_their_own(apart, pytester):
    result = pytester.runpytest_inprocess(*apart, "--collect-only", "-q")
    items = [line for line in result.outlines if "::" in line]
    names = [item.partition("::")[2] for item in BASE_ITEMS]
    places = [pytester.path / vendor / "definitions/elementwise/scale.json" for vendor in "ab"]
    assert sorted(items) == sorted(f"{place.as_posix()}::{name}" for place in places for name in names)


def test_a_failure_in_one_of_them_is_run_again(apart, pytester):
    options = [*apart, "-k", "test_correct"]
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1, failed=1)
    again = pytester.runpytest_inprocess(*options, "--lf", "-rA")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["FAILED b/definitions/elementwise/scale.json::test_correct*"])


def as_links(root, *folders):
    """Move all files to a folder of blobs and leave links to them, as the cache of the Hugging Face hub has it."""
    for file in [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]:
        blob = root / "blobs" / f"{hash(file):x}"
        blob.parent.mkdir(exist_ok=True)
        file.rename(blob)
        file.symlink_to(blob)


@pytest.mark.parametrize("given", [(FILE,), (f"--fib-definitions={FILE}",), ("-k", "schema or correct", "definitions")])
def test_files_that_are_links(repository, collected, given):
    as_links(repository.root, "definitions", "solutions", "workloads")
    found = collected(*given)
    assert set(found) >= {BASE_ITEMS[0], BASE_ITEMS[2]}


@pytest.mark.parametrize("solutions", ["solutions", "solutions/tests/scale_add_h8/good.json"])
def test_a_file_that_is_a_link_from_elsewhere(repository, pytester, monkeypatch, solutions):
    as_links(repository.root, "definitions", "solutions", "workloads")
    monkeypatch.chdir(pytester.mkdir("elsewhere"))
    options = (f"--fib-solutions=../{solutions}", "--fib-device=cpu", "--fib-examples=3")
    result = pytester.runpytest_inprocess(f"../{FILE}", *options, "-k", "test_schema or test_correct", "-W", "error")
    result.assert_outcomes(passed=2, deselected=3)


@pytest.mark.parametrize("argument", ["definitions", "definitions/elementwise", FILE, BASE_ITEMS[2], "more.json"])
def test_a_folder_that_is_a_link(repository, kernels, argument):
    """Where it is named the definitions are found, and where a link leads to one of them it is the same one."""
    (repository.root / "definitions").rename(repository.root / "real")
    (repository.root / "definitions").symlink_to("real")
    (repository.root / "more.json").symlink_to(f"real/{FILE.partition('/')[2]}")
    result = kernels(argument, "-k", "test_schema or test_correct", "-W", "error", "--fib-workloads=workloads")
    assert result.parseoutcomes().get("passed") == (1 if "::" in argument else 2)
    assert result.ret == 0


def test_a_folder_is_not_collected_once_more_through_a_link(repository, collected):
    (repository.root / "again").symlink_to("definitions")
    assert sorted(collected(".")) == sorted(BASE_ITEMS)


def test_own_tests_do_not_run_along(pytester, collected):
    pytester.makepyfile(test_own="def test_own(): pass")
    assert not [item for item in collected() if "test_own" in item]


def test_a_definition_without_workloads_has_no_skipped_placeholder(repository, collected):
    repository.define(name="bare_h8")
    assert [item.partition("::")[2] for item in collected() if "bare_h8" in item] == ["test_schema"]


def test_without_solutions_the_references_are_checked(pytester, repository):
    result = pytester.runpytest_inprocess("--fib-definitions=definitions", "--fib-device=cpu", "--collect-only", "-q")
    names = [line.partition("::")[2].partition("[")[0] for line in result.outlines if "::" in line]
    assert names == ["test_schema", "test_reference"]


@pytest.mark.parametrize("name", ["definitions", "solutions", "workloads"])
def test_other_json_files_are_not_collected(repository, collected, name):
    repository.write("notes/list.json", "[]")
    assert not [item for item in collected() if "notes" in item]


def test_collection_is_light(pytester, repository):
    """Heavy packages are imported when the first test needs them, in whatever process that is."""
    code = (
        "import sys, pytest\n"
        "options = ['--fib-solutions=solutions', '--fib-device=cpu', '--co', '-q']\n"
        "assert pytest.main([*options, '-p', 'no:hypothesispytest']) == 0\n"  # imports hypothesis for its summary
        "heavy = {'torch', 'triton', 'hypothesis', 'jsonschema', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = pytester.run(sys.executable, "-c", code)
    assert result.ret == 0, result.stderr.str()
