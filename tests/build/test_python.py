from __future__ import annotations

import sys

import pytest

from pytest_flashinfer.build import BuildError, load

BASE = "def run(x, w):\n    return x * w + 1\n"


def request(sources, *, entry="main.py", language="python"):
    return {
        "language": language,
        "binding": None,
        "entry_file": entry,
        "entry_function": "run",
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
        "destination_passing": False,
        "module": False,
        "inputs": ["x", "w"],
        "outputs": ["y"],
        "device": "cpu",
        "cache": "",
    }


@pytest.fixture(autouse=True)
def _clean_import_state(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_runs_the_entry_function(tmp_path):
    kernel = load(request({"main.py": 'definition = "scale_add_h8"\n' + BASE}), tmp_path)
    assert kernel.function(2, 3) == 7
    assert kernel.language == "python"
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    "statement",
    ["from helper_a import scale", "from src.helper_a import scale", "from .helper_a import scale"],
)
def test_sources_import_each_other(tmp_path, statement):
    sources = {
        "src/main.py": f"{statement}\ndef run(x, w):\n    return scale(x, w)\n",
        "src/helper_a.py": "def scale(x, w):\n    return x * w + 1\n",
    }
    assert load(request(sources, entry="src/main.py"), tmp_path).function(2, 3) == 7


def test_a_package_with_an_initializer_and_a_parent_import(tmp_path):
    sources = {
        "src/__init__.py": "OFFSET = 1\n",
        "src/deep/main.py": "from .. import OFFSET\nfrom ..ops import mul\ndef run(x, w): return mul(x, w) + OFFSET\n",
        "src/ops.py": "def mul(x, w): return x * w\n",
    }
    assert load(request(sources, entry="src/deep/main.py"), tmp_path).function(2, 3) == 7


def test_a_file_name_that_is_no_identifier(tmp_path):
    assert load(request({"my-kernel.v2.py": BASE}, entry="my-kernel.v2.py"), tmp_path).function(2, 3) == 7


@pytest.mark.parametrize("path", ["../out.py", "/tmp/out.py", "a/../../out.py", "."])
def test_a_source_outside_the_folder_is_refused(tmp_path, path):
    with pytest.raises(BuildError, match="leaves the solution's folder"):
        load(request({"main.py": BASE, path: "x = 1"}), tmp_path / "inside")
    assert not (tmp_path / "out.py").exists()


def test_a_folder_that_an_earlier_run_left_where_a_source_lies_is_removed(tmp_path):
    (tmp_path / "main.py" / "inside").mkdir(parents=True)
    assert load(request({"main.py": BASE}), tmp_path).function(2, 3) == 7


def test_a_missing_function_lists_those_found(tmp_path):
    with pytest.raises(BuildError, match=r"no function 'run'; functions found: rms, tile;"):
        load(request({"main.py": "from math import sqrt\ndef rms(x): ...\ndef tile(x): ...\n"}), tmp_path)


@pytest.mark.parametrize(("alone", "hint"), [(False, "see entry_point"), (True, "name the one that solves it run")])
def test_a_missing_function_says_where_another_is_named(tmp_path, alone, hint):
    """A module has no entry point to name one in."""
    with pytest.raises(BuildError, match=rf"functions found: rms; {hint}$"):
        load({**request({"main.py": "def rms(x): ...\n"}), "module": alone}, tmp_path)


@pytest.mark.parametrize("statement", ["import legacy", "from legacy import f", "from .legacy import f"])
@pytest.mark.parametrize(
    ("alone", "hint"),
    [
        (False, "install legacy or add its source"),
        (True, "install legacy, or, if it is a file of yours, put both into a folder with a config.toml"),
    ],
)
def test_what_is_missing_may_be_a_file_that_lies_beside_a_module(tmp_path, statement, alone, hint):
    with pytest.raises(BuildError, match=rf"ModuleNotFoundError.* at main\.py:1; {hint}$"):
        load({**request({"main.py": f"{statement}\n{BASE}"}), "module": alone}, tmp_path)


def test_a_missing_entry_file_lists_the_sources(tmp_path):
    with pytest.raises(BuildError, match=r"^'main.py:run' has one colon: write main.py::run$"):
        load(request({"main.py": BASE}, entry="main.py:run"), tmp_path)
    with pytest.raises(BuildError, match=r"entry file 'kernel.py' is not among the sources: main.py"):
        load(request({"main.py": BASE}, entry="kernel.py"), tmp_path)


def test_an_entry_that_is_not_callable(tmp_path):
    with pytest.raises(BuildError, match=r"run in main\.py is of type int, not a function"):
        load(request({"main.py": "run = 3\n"}), tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import torch\n\ndef run(x, w:\n", r"SyntaxError.* at main\.py:3$"),
        ("x = 1\nraise SystemExit(0)\n", r"SystemExit: 0 at main\.py:2$"),
        ("def f():\n    raise KeyboardInterrupt\nf()\n", r"KeyboardInterrupt at main\.py:2$"),
        ("import no_such_package_x\n", r"ModuleNotFoundError.*at main\.py:1; install no_such_package_x"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n", r"E: <.*at main\.py:3$"),
        ("raise ValueError('B' * 50_000)\n", r"ValueError: B+\.\.\. at main\.py:1$"),
        ("e = ValueError('bad')\ne.__notes__ = ['a note']\nraise e\n", r"ValueError: bad at main\.py:3$"),
    ],
)
def test_whatever_the_import_raises_is_one_line_with_its_place(tmp_path, source, message):
    with pytest.raises(BuildError, match=message) as caught:
        load(request({"main.py": source}), tmp_path)
    assert "\n" not in str(caught.value)
    assert "build/python.py" not in caught.value.log


def test_a_traceback_shows_the_kernels_own_lines(tmp_path):
    with pytest.raises(BuildError) as caught:
        load(request({"main.py": "def helper():\n    return 1 / 0  # the culprit\nhelper()\n"}), tmp_path)
    assert "the culprit" in caught.value.log


def test_an_unknown_language_names_the_known_ones(tmp_path):
    with pytest.raises(BuildError, match=r"language 'rust' is not known; one of: python, triton"):
        load(request({"main.py": BASE}, language="rust"), tmp_path)


def test_a_language_whose_package_is_missing_says_what_to_install(tmp_path):
    with pytest.raises(BuildError, match=r"language tilelang needs the package tilelang; pip install tilelang"):
        load(request({"main.py": BASE}, language="TileLang"), tmp_path)
