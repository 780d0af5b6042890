"""What pytest loads in every run of every project that has the plugin installed must be light."""

import subprocess
import sys

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
