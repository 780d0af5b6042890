"""Where a worker's Python is when it ends: what faulthandler writes, taken out of the log and read as a traceback."""

from __future__ import annotations

import faulthandler

from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.judge.raised import SHOWN, shown
from pytest_flashinfer.worker.errors import WorkerDied, WorkerTimedOut
from pytest_flashinfer.worker.stacks import split

FOLDER = "/home/u/.cache/pytest-flashinfer/solutions/0123456789abcdef0123456789abcdef"
SOURCE = "def run(x):\n    deeper(x)\n\ndef deeper(write):\n    write()\n"


def test_a_stack_is_that_of_the_solution_outermost_first(tmp_path):
    names = {}
    exec(compile(SOURCE, f"{FOLDER}/sources/main.py", "exec"), names)
    with (tmp_path / "log").open("w+") as log:
        log.write("before\n")
        log.flush()
        names["run"](lambda: faulthandler.dump_traceback(log, all_threads=False))
        log.seek(0)
        text = log.read()
    printed, stack = split(f"{text}after\n")
    assert shown(stack) == "at main.py:2 in run\nat main.py:5 in deeper"
    assert printed.startswith("before\n")
    assert printed.endswith("after\n")
    assert FOLDER not in printed
    assert shown(WorkerTimedOut(1, text).traceback) == shown(stack)
    assert WorkerDied("signal SIGSEGV", text).log == "before\n"


def test_a_crash_leaves_nothing_of_it_in_the_log():
    log = (
        'out\nFatal Python error: Segmentation fault\n\nStack (most recent call first):\n  File "a.py", line 3 in f\n'
        "  ...\n\nExtension modules: numpy.random, torch._C (total: 2)\n"
    )
    assert split(log) == ("out\n", '  File "a.py", line 3 in f')


@given(
    st.text() | st.lists(st.sampled_from(["Stack (most recent call first):", '  File "a"', "  ", "x"])).map("\n".join)
)
def test_whatever_is_printed_stays_but_for_what_looks_like_a_stack(text):
    printed, stack = split(text)
    assert len(printed) <= len(text)
    assert printed == text or "(most recent call first):\n  " in text
    assert len(shown(stack).splitlines()) <= SHOWN
