"""What pytest loads in every run of every project that has the plugin installed must be light."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "triton", "hypothesis", "jsonschema", "numpy", "safetensors", "pynvml", "jinja2", "plotly"}


def loaded_by(*arguments, cwd=None):
    """Return the top-level packages that a fresh interpreter imports, from `-X importtime`."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_the_plugin_module_is_light():
    loaded = loaded_by("-c", "import pytest_flashinfer.plugin")
    assert "pytest_flashinfer" in loaded
    assert loaded & HEAVY == set()


def test_a_run_that_only_reads_files_needs_no_torch(tmp_path):
    """The processes that import it are started while pytest collects, before this one would: they need not wait."""
    for folder in ("definitions/rmsnorm", "solutions/torch/rmsnorm"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    options = ("--fib-solutions=solutions", "--fib-device=cpu", "--fib-build-jobs=2", "-k", "test_schema")
    loaded = loaded_by("-m", "pytest", *options, "-s", cwd=tmp_path)  # what pytest captures is not seen
    assert "pytest_flashinfer" in loaded
    assert loaded & {"torch", "triton", "numpy"} == set()


STARTED = """
import subprocess, sys
from pytest_flashinfer.worker import forkserver_client
def popen(*arguments, **options):
    above = {name.partition(".")[2] for name in sys.modules if name.startswith("pytest_flashinfer.")}
    assert not above & {"selection.catalogue", "run.session", "judge", "inputs", "build"}, above
    raise OSError("seen")
class Subprocess:
    DEVNULL, Popen = subprocess.DEVNULL, staticmethod(popen)
forkserver_client.subprocess = Subprocess
"""


def test_processes_are_started_before_most_of_the_plugin_is_imported(tmp_path):
    """They take longest of all; what the rest of the plugin is imported for waits for them."""
    (tmp_path / "started.py").write_text(STARTED)
    (tmp_path / "solutions").mkdir()
    (tmp_path / "definitions").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "started", "--fib-solutions=solutions", "--fib-device=cpu"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert "OSError: seen" in done.stdout + done.stderr


RECORDS = """
import gc
during = gc.isenabled()
"""
IMPORTS = """
import gc
from pytest_flashinfer.run import processes
before = gc.get_freeze_count()
processes.import_torch()
import torch
assert not torch.during, "searched for garbage"
assert gc.isenabled()
assert gc.get_freeze_count() > before
gc.unfreeze()
processes.import_torch()
assert gc.get_freeze_count() == 0, "what a later check has made is not kept for good"
"""


def test_the_import_of_torch_is_not_searched_for_garbage(tmp_path):
    (tmp_path / "torch.py").write_text(RECORDS)
    first = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        env=os.environ | {"PYTHONPATH": first},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
