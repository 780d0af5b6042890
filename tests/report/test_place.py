"""Where a report is to lie: what stands in its way is one line, found before anything runs."""

import pytest

from pytest_flashinfer.data.write import to_line
from pytest_flashinfer.report.benchmark import is_results
from pytest_flashinfer.report.place import obstacle

RESULT = to_line({"kernel_id": "d", "solution": "s", "compiled": True})


@pytest.mark.parametrize("held", [None, "", RESULT, f"\n{RESULT}"])
def test_results_go_where_nothing_is_or_earlier_ones(tmp_path, held):
    target = tmp_path / "deep/er/results.jsonl"
    if held is not None:
        target.parent.mkdir(parents=True)
        target.write_text(held)
    assert obstacle(target, "results", is_results) == ""
    assert target.parent.is_dir()
    assert list(target.parent.iterdir()) == ([] if held is None else [target]), "the trial leaves nothing"


@pytest.mark.parametrize(
    "held",
    [
        "def run(x):\n    return x\n",
        '{"name": "d", "axes": {}, "inputs": {}, "outputs": {}, "reference": ""}',
        '{"definition": "d", "workload": {"uuid": "w"}}\n',
        "[1]\n",
        "{",
        "\udcff",
    ],
)
def test_what_somebody_else_wrote_stays(tmp_path, held):
    target = tmp_path / "results.jsonl"
    target.write_text(held, errors="surrogateescape")
    assert obstacle(target, "file of results", is_results) == (
        f"{target} is there and is no file of results: name another file, or remove that one"
    )


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "is a folder: name a file"),
        ("/dev/null", "is there and is no file of results"),
        ("file/results.jsonl", "cannot be written: "),
        ("/proc/results.jsonl", "cannot be written: "),
        (f"{'x' * 300}.jsonl", "cannot be written: File name too long"),
    ],
)
def test_a_place_where_nothing_can_be_written(tmp_path, place, words):
    (tmp_path / "file").write_text("")
    found = obstacle(tmp_path / place, "file of results", is_results)
    assert words in found
    assert "\n" not in found


def test_where_anything_may_be_written_over_a_device_is_a_place_too(tmp_path):
    (tmp_path / "file").write_text("anything")
    assert [obstacle(tmp_path / "file"), obstacle(tmp_path.parents[-1] / "dev/null")] == ["", ""]
    assert "cannot be written" in obstacle(tmp_path / "file/other")
