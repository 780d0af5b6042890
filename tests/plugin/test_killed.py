"""A run that is killed, at whatever moment, loses what was in flight and nothing else."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.traces import load_traces

from .repository import GOOD, QUICK, WRONG, Repository

NAMES = [f"{kind}_{number}" for number in range(3) for kind in ("good", "wrong")]
COMMAND = [
    sys.executable, "-m", "pytest", "--fib-solutions=solutions", *QUICK, "--fib-traces=traces",
    "--benchmark-min-rounds=1", "-v", "-k", "test_correct or test_speed",
]  # fmt: skip
KNOWN = re.compile(r"test_speed\[(\w+?_\d)\W.*PASSED|test_correct\[(\w+?_\d)\W.*FAILED")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("killed"))
    made.define()
    made.sizes(4)
    for name in NAMES:
        made.solve(name, (GOOD if name.startswith("good") else WRONG) + f"# {name}\n")
    return made


def killed_after(root, results, delay):
    """Start a run, kill it when it has told of so many results; return the solutions it told of."""
    run = subprocess.Popen(
        COMMAND, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip
    told, output = [], []
    for line in run.stdout:
        output.append(line)
        found = KNOWN.search(line)
        if found:
            told.append(found[1] or found[2])
            if len(told) == results:
                break
    time.sleep(delay)
    os.killpg(run.pid, signal.SIGKILL)
    output += run.stdout.readlines()
    run.wait()
    assert len(told) == results, "".join(output)
    return {found[1] or found[2] for line in output if (found := KNOWN.search(line))}


def test_what_was_told_is_kept_and_the_next_run_makes_the_rest(repository):
    dice, path = random.Random(7), repository.root / "traces/elementwise/scale_add_h8.jsonl"
    for results in (1, 4):
        path.unlink(missing_ok=True)
        told = killed_after(repository.root, results, dice.uniform(0, 0.3))
        kept = {line.value.solution for line in load_traces(path) if line.value is not None}
        assert told <= kept, "what the terminal has shown is on disk"
        assert len(kept) <= len(told) + 1, "only the item in flight may be on disk and not told"
    with path.open("r+b") as file:  # as if it had been killed while it wrote
        file.truncate(path.stat().st_size - dice.randrange(1, 200))
    whole = [line for line in path.read_text().splitlines() if line.endswith("}}")]
    done = subprocess.run(
        [*COMMAND, "--fib-resume"], cwd=repository.root, capture_output=True, text=True, timeout=120, check=False
    )
    skipped = set(re.findall(r"test_correct\[(\w+?_\d)\W.*SKIPPED", done.stdout))
    assert skipped == {json.loads(line)["solution"] for line in whole}, done.stdout
    lines = load_traces(path)
    assert all(line.faults == () and schema.check("trace", line) == () for line in lines)
    assert Counter(line.value.solution for line in lines) == Counter(NAMES), "each once"
