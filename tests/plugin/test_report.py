"""--fib-report: one HTML file of the run."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

from pytest_flashinfer.report.html import extra

from .repository import WRONG

for needed in ("jinja2", "plotly"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
LIMITED = "def run(x, w):\n    y = x * w + 1\n    y[4:] = 0\n    return y\n"  # wrong where there are more than 4 rows


def packed(text, name):
    return json.loads(gzip.decompress(base64.b64decode(re.search(f'id="{name}">([^<]*)<', text)[1])))


def test_what_a_run_found(repository):
    repository.sizes(3, 4)
    repository.solve("wrong", WRONG, author="ann")
    repository.solve("limited", LIMITED)
    talk = {"model": "m", "conversation": [{"role": "user", "content": "Write it."}]}
    repository.write("solutions/tests/scale_add_h8/good.trace.json", json.dumps(talk))
    done = repository.run("--fib-report=out/report.html", "--fib-scope=full")
    assert "--fib-report: " in done.output
    text = (repository.root / "out/report.html").read_text()
    assert "scope full, --fib-seed=" in text
    assert re.findall(r'data-author="(\w+)" data-solution="(\w+)" data-state="(\w+)"', text) == [
        ("tests", "good", "good"),
        ("tests", "limited", "bad"),
        ("ann", "wrong", "bad"),
    ]
    assert re.findall(r"<td class=\"n\">(\d of \d)</td>", text) == ["2 of 2", "2 of 2", "0 of 2"]
    [board] = packed(text, "numbers-0")["boards"]
    assert board["solutions"][0]["at"] == [0, 1]
    assert all(us > 0 for us in board["solutions"][0]["us"])
    [drawn] = [each for each in board["failures"] if each["solution"] == 1]
    assert (drawn["workload"], drawn["axes"]) == (None, {"n": 5})
    texts = packed(text, "texts-0")
    assert texts["solutions"]["good"]["turns"] == [{"role": "user", "text": "Write it."}]
    assert "x * w + 2" in texts["solutions"]["wrong"]["files"][0][1]
    assert any("instead of" in log for log in texts["logs"][0])


def test_correctness_alone_makes_a_report_without_times(repository):
    done = repository.run("--fib-report=report.html", "-k", "test_correct")
    assert done.code == 0
    assert "1 of 1" in (repository.root / "report.html").read_text()


def test_the_ini_key(repository, kernels):
    repository.write("pytest.ini", "[pytest]\nfib_report = from_ini.html\n")
    kernels("-k", "test_correct").assert_outcomes(passed=1)
    assert (repository.root / "from_ini.html").is_file()


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan"])
def test_listing_leaves_an_earlier_report_as_it_is(repository, kernels, option):
    page = repository.write("report.html", "earlier")
    assert kernels("--fib-report=report.html", option).ret == 0
    assert page.read_text() == "earlier"


def test_under_xdist_one_process_writes_it(repository):
    pytest.importorskip("xdist")
    repository.solve("wrong", WRONG)
    done = repository.run("--fib-report=report.html", "-k", "test_correct", "-n1", apart=True)
    assert done.output.count("--fib-report: ") == 1
    text = (repository.root / "report.html").read_text()
    assert re.findall(r'data-solution="(\w+)"', text) == ["good", "wrong"]


def test_a_folder_or_a_missing_extra_stops_the_run_at_once(repository, kernels, monkeypatch):
    for place, words in (
        (".", "* is a folder: name a file"),
        ("definitions/elementwise/scale_add_h8.json", "* no HTML*"),
    ):
        result = kernels(f"--fib-report={place}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: --fib-report: {words}"])
    monkeypatch.setattr(extra, "PACKAGES", ("no_such_package",))
    result = kernels("--fib-report=report.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*needs no_such_package: pip install '.[[]report]' where*"])
    assert not (repository.root / "report.html").exists()
