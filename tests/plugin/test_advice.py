"""What does not build is told how to mend it in the terms of the file that its author wrote."""

import re

import pytest

from .repository import Repository

KIT = """[solution]
name = "kit"
definition = "scale_add_h8"
author = "me"
[build]
language = "python"
entry_point = "mian.py::run"
"""
HEAD = 'definition = "scale_add_h8"\n\n\n'
FILES = {
    "writes.py": f"destination_passing_style = True\n{HEAD}def run(x, w):\n    return x * w + 1\n",
    "norun.py": f"{HEAD}def go(x, w):\n    return x * w + 1\n",
    "uses.py": f"import legacy\n\n{HEAD}def run(x, w):\n    return legacy.f(x, w)\n",
    "legacy.py": "def f(x, w):\n    return x * w + 1\n",
    "ignored.py": f"destination_passing_style = True\n{HEAD}def run(x, w, y):\n    y = x * w + 1\n    return y\n",
    "partly.py": f"destination_passing_style = True\n{HEAD}def run(x, w, y):\n    y[1:] = x[1:] * w\n    return y\n",
    "order.py": f"{HEAD}def run(w, x):\n    return w * x[:, None] + 1\n",
    "kit/config.toml": KIT,
    "kit/main.py": "def run(x, w):\n    return x * w + 1\n",
}
TOLD = {
    "writes": "got x, w; set destination_passing_style = False to return",
    "norun": "norun.py has no function 'run'; functions found: go; name the one that solves it run",
    "uses": "install legacy, or, if it is a file of yours, put both into a folder with a config.toml",
    "kit": "entry file 'mian.py' is not among the sources: main.py",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("advice"))
    made.define()
    made.sizes(4)
    for name, text in FILES.items():
        made.write(f"solutions/{name}", text)
    return made.run("-k", "test_schema or test_correct")


@pytest.mark.parametrize("name", TOLD)
def test_the_author_is_told_in_the_terms_of_the_file(run, name):
    case = run[f"test_correct[{name}-"]
    assert case.properties["status"] == "COMPILE_ERROR"
    assert TOLD[name] in case.text
    assert "see entry_point" not in case.text


def test_what_run_returns_in_vain_is_told_where_nothing_was_written(run):
    said = "\n  run returns a value, which is ignored: with destination_passing_style = True results are written"
    assert said in run["test_correct[ignored-"].text
    assert "which is ignored" not in run["test_correct[partly-"].text


def test_parameters_that_have_the_names_of_others_are_told_of(run):
    said = "run takes w, x; the definition's order is x, w, by position: is that meant?"
    assert f"\n  {said}\n" in run["test_correct[order-"].text
    assert f"solutions/order.py:4: {said}" in run.output
    assert "order is" not in run["test_correct[partly-"].text


def test_a_folder_whose_entry_is_not_there_is_shown_at_the_same_line_by_both_checks(run):
    [said] = re.findall(r"config\.toml:(\d+): build\.entry_point", run["test_schema"].text)
    [shown] = re.findall(r"source: solutions/kit/config\.toml:(\d+)", run["test_correct[kit-"].text)
    assert said == shown == "7"


def test_the_check_of_the_file_says_the_same_of_a_module(run):
    said = "norun.py has no top-level function 'run' (there is: go); name the one that solves it run"
    assert f"norun.py:1: {said}" in run["test_schema"].text


def test_a_misspelt_axis_is_told_alike_by_both_checks(tmp_path):
    made = Repository(tmp_path)
    shapes = {"x": ["nn", "h"], "w": ["h"]}  # the axis is `n`
    made.define(inputs={name: {"shape": shape, "dtype": "float32"} for name, shape in shapes.items()})
    made.sizes(4)
    made.solve()
    done = made.run("-k", "test_schema or test_reference")
    said = "unknown axis 'nn'; did you mean 'n'?"
    assert said in done["test_schema"].text
    assert said in done["test_reference["].text
