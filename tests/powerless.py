"""Commands of a user for whom permissions count: those that run tests as root need not obey them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ADVICE = "let this user read it, as with chmod a+rX"
ROOT = Path(__file__).parents[1]
_CAPABILITIES = "-dac_override,-dac_read_search"


def run(folder, *arguments):
    """Run a module of Python's in a folder as such a user; skips where that cannot be."""
    command = [sys.executable, "-m", *map(str, arguments)]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root reads everything, and there is no setpriv")
        command = [setpriv, "--bounding-set", _CAPABILITIES, "--inh-caps", _CAPABILITIES, *command]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
