"""Every way for a worker to end or to lie costs its own item only, and is named."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from pytest_flashinfer.worker.errors import BuildFailed, CallFailed, WorkerDied, WorkerTimedOut
from pytest_flashinfer.worker.pool import Pool
from pytest_flashinfer.worker.processes import table
from pytest_flashinfer.worker.runner import Output

GOOD = "def run(x, y):\n    y.copy_(x * 2)\n"
Y = Output("y", (4, 8), torch.float32)


def call(runner, **options):
    return runner.run({"x": torch.randn(4, 8)}, [Y], **options)


def alive_after(lab):
    x = lab.randn(4, 8)
    result = lab.run(GOOD, {"x": x})
    return torch.equal(result.outputs["y"], x * 2) and not result.violations


DEATHS = {
    "exit_zero": ("import os\ndef run(x, y):\n    y.copy_(x * 2)\n    os._exit(0)", "exit status 0"),
    "exit_at_import": ("import os\nos._exit(3)", "exit status 3"),
    "killed": ("import os, signal\ndef run(x, y):\n    os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
    "segfault": ("import ctypes\ndef run(x, y):\n    ctypes.string_at(0)", "signal SIGSEGV"),
    "abort": ("import os\ndef run(x, y):\n    os.abort()", "signal SIGABRT"),
    "fork_holds_the_socket": (
        "import os, time\ndef run(x, y):\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(5)",
        "exit status 5",
    ),
    "thread_exits": (
        (
            "import os, threading\ndef run(x, y):\n    threading.Thread(target=os._exit, args=(6,)).start()\n"
            "    while True: pass"
        ),
        "exit status 6",
    ),
    "socket_closed": (
        "import os, time\ndef run(x, y):\n    os.closerange(3, 100)\n    time.sleep(60)",
        "closed its connection to the judge",
    ),
    "text_on_every_descriptor": (
        (
            "import os\ndef run(x, y):\n    for fd in range(3, 64):\n        try: os.write(fd, b'PASSED passed ok')\n"
            "        except OSError: pass\n    os._exit(0)"
        ),
        "sent garbage",
    ),
    "forged_frame": (
        (
            'import os, struct\ndef run(x, y):\n    b = b\'{"id":1,"ok":{"problems":[],"host_seconds":1e-9}}\'\n'
            "    for fd in range(3, 64):\n        try: os.write(fd, struct.pack('!I', len(b)) + b)\n"
            "        except OSError: pass"
        ),
        "sent garbage: an answer to another question",
    ),
    "deep_frame": (
        (
            "import os, struct\ndef run(x, y):\n    b = b'[' * 500000\n"
            "    for fd in range(3, 64):\n        try: os.write(fd, struct.pack('!I', len(b)) + b)\n"
            "        except OSError: pass"
        ),
        "sent garbage",
    ),
}


PLACES = {  # the lines that a process tells by itself
    "exit_zero": ["4"],
    "exit_at_import": ["2"],
    "segfault": ["3"],
    "abort": ["3"],
    "fork_holds_the_socket": ["5"],
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_death_is_named_and_costs_one_item(lab, name):
    source, how = DEATHS[name]
    with pytest.raises(WorkerDied) as caught:
        lab.run(source, timeout=20)
    assert how in caught.value.how
    told = re.findall(r'main.py", line (\d+) in', caught.value.traceback)
    assert told == PLACES.get(name, []) or name == "text_on_every_descriptor", "that one may be killed before"
    assert "most recent call" not in caught.value.log
    assert alive_after(lab)


def test_a_child_that_returns_from_the_call_as_well_is_told_from_others(lab):
    runner = lab.build("import os\ndef run(x, y):\n    y.copy_(x)\n    os.fork()")
    call(runner)
    time.sleep(0.1)  # for the other answer
    with pytest.raises(WorkerDied, match=r"child process .* return") as caught:
        call(runner)
    assert "garbage" not in caught.value.how


RAISES = {
    "system_exit": ("def run(x, y):\n    raise SystemExit(0)", "SystemExit: 0"),
    "interrupt": ("def run(x, y):\n    raise KeyboardInterrupt", "KeyboardInterrupt"),
    "generator_exit": ("def run(x, y):\n    raise GeneratorExit", "GeneratorExit"),
    "deep_recursion": ("def run(x, y):\n    run(x, y)", "RecursionError"),
    "own_words": (
        "class Slow(Exception):\n    message, kind, log = 'ok', 'device', 'no'\ndef run(x, y):\n    raise Slow('no')",
        "Slow: no",
    ),
    "no_module": (
        "class Odd(Exception):\n    __module__ = 7\ndef run(x, y):\n    raise Odd('why')",
        "Odd: why",
    ),
    "hostile_exception": (
        "class E(BaseException):\n    def __str__(self): raise SystemExit\ndef run(x, y):\n    raise E",
        "E",
    ),
}


@pytest.mark.parametrize("name", RAISES)
def test_whatever_is_raised_comes_back_and_the_worker_lives(lab, name):
    source, message = RAISES[name]
    runner = lab.build(source)
    for _ in range(2):
        with pytest.raises(CallFailed) as caught:
            call(runner)
        assert message in caught.value.message
    assert runner.worker.alive


def test_a_failed_build_names_the_place_and_the_log(lab):
    with pytest.raises(BuildFailed) as caught:
        lab.run("import torch\nprint('before')\n1 / 0\n")
    assert "ZeroDivisionError" in caught.value.message
    assert "main.py:3" in caught.value.message
    assert "before" in caught.value.log


HANGS = {
    "python": "def run(x, y):\n    while True: pass",
    "sleep": "import time\ndef run(x, y):\n    time.sleep(100)",
    "c": "import ctypes\ndef run(x, y):\n    ctypes.PyDLL(None).pause()",
    "deaf": "import os, signal\ndef run(x, y):\n    [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]\n"
    "    os.kill(os.getpid(), signal.SIGSTOP)",
    "own_handler": "import signal\ndef run(*_):\n    while True: pass\nsignal.signal(signal.SIGUSR1, run)",
}
MUTE = ("deaf", "own_handler")  # of where they hang nobody hears


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_ends_at_the_limit(lab, name):
    runner = lab.build(HANGS[name])
    start = time.monotonic()
    with pytest.raises(WorkerTimedOut) as caught:
        call(runner, timeout=0.3)
    assert time.monotonic() - start < 2.0
    assert caught.value.seconds == 0.3
    assert ('main.py", line ' in caught.value.traceback) is (name not in MUTE)
    assert not runner.worker.alive
    assert alive_after(lab)


def test_a_hang_at_import_ends_at_the_build_limit(lab):
    with pytest.raises(WorkerTimedOut):
        lab.build("import time\ntime.sleep(100)", timeout=0.3)


def test_a_flood_of_output_neither_blocks_nor_fills_memory(lab):
    source = (
        "import os, sys\ndef run(x, y):\n    print('first line')\n    for _ in range(300): os.write(1, b'z' * 100000)\n"
        "    y.copy_(x)\n    print('last line', file=sys.stderr)\n"
    )
    result = lab.run(source)
    assert not result.violations
    assert result.log.startswith("first line\n")
    assert result.log.endswith("last line\n")
    assert "bytes left out" in result.log
    assert len(result.log) < 100_000


def test_an_endless_flood_ends_at_the_limit(lab):
    with pytest.raises(WorkerTimedOut):
        lab.run("import os\ndef run(x, y):\n    while True: os.write(1, b'z' * 100000)", timeout=0.5)
    assert alive_after(lab)


# what a solution may put in place of sys.stdout, by how it writes to the one that was there
TEE = """
import io, sys
class Tee(io.TextIOBase):
    there = sys.stdout
    def write(self, text): return WRITE
    def flush(self): raise SystemExit("asked to flush")
sys.stdout = Tee()
"""


@pytest.mark.parametrize(
    "write", ["self.there.write(text)", "self.there.buffer.write(text.encode())", "sys.__stdout__.write(text)"]
)
def test_what_is_printed_is_in_the_log_at_once_and_nothing_foreign_is_flushed(lab, write):
    """A stream's `flush` would run after the clock has stopped, whoever wrote it."""
    result = lab.run(TEE.replace("WRITE", write) + "def run(x, y):\n    y.copy_(x)\n    print('no end', end='')\n")
    assert not result.violations
    assert result.log == "no end"


def test_what_c_code_prints_is_captured(lab):
    result = lab.run("import ctypes\ndef run(x, y):\n    y.copy_(x)\n    ctypes.CDLL(None).printf(b'from C')\n")
    assert result.log == "from C"


ESCAPES = {
    "child": "import subprocess, sys\nP = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])\n",
    "daemon": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.setsid()\n        time.sleep(99)\n    os._exit(0)\n"
    ),
    "hydra": (
        "import os, time\nif os.fork() == 0:\n    end = time.time() + 0.5\n    while time.time() < end:\n"
        "        if os.fork(): os._exit(0)\n        os.setsid()\n"
    ),
}


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("end", ["close", "exit"])
def test_nothing_that_a_worker_started_outlives_it(lab, name, end):
    server = lab.pool._nursery.process.pid
    leave = "os._exit(0)" if end == "exit" else "y.copy_(x)"
    runner = lab.build(f"{ESCAPES[name]}import os\ndef run(x, y):\n    {leave}\n")
    if end == "exit":
        with pytest.raises(WorkerDied):
            call(runner)
    pid = runner.worker.number
    runner.worker.close()
    assert runner.worker.left == 0
    living = set(lab.pool._nursery._alive)
    assert pid not in living
    rows = table()
    children = [row for row in rows.values() if row.parent == server and row.state != "Z"]
    assert len(children) == len(living)


def test_what_a_worker_prints_cannot_move_the_cursor(lab):
    text = "a\x1b[2Jb\x07\u202e\rc\x85 \u00fc"
    result = lab.run(f"def run(x, y):\n    y.copy_(x)\n    print({text!a})\n")
    assert result.log == "a\\x1b[2Jb\\x07\\x202e\nc\\x85 \u00fc\n"


def test_a_request_that_was_begun_has_its_reply_whatever_else_is_asked(lab):
    runner = lab.build(GOOD)
    x = lab.randn(4, 8)
    runner.run({"x": x}, [Y])
    request = runner._request({"x": x}, [Y], None)
    begun = runner.worker.begin(request, 60)
    assert runner.worker.call({"do": "reread"}, 60) == {"problems": []}
    assert begun.reply()["problems"] == []
    assert begun.reply() is begun.reply()
    first, second = runner.worker.begin({"do": "reread"}, 60), runner.worker.begin(request, 60)
    runner.worker.finish()
    assert (first.reply(), second.reply()["missing"]) == ({"problems": []}, [])


@pytest.mark.parametrize(("line", "error"), [("raise ValueError('odd')", CallFailed), ("os._exit(3)", WorkerDied)])
def test_a_request_that_was_begun_fails_for_whoever_asks_for_its_reply(lab, line, error):
    runner = lab.build(f"import os\n\ndef run(x, y):\n    if x[0, 0] < 0:\n        {line}\n    y.copy_(x)\n")
    x = torch.ones(4, 8)
    runner.run({"x": x}, [Y])
    request = runner._request({"x": x}, [Y], None)
    runner._pristine.fill({"x": -x})
    begun = runner.worker.begin(request, 60)
    runner.worker.finish()
    for _ in range(2):
        with pytest.raises(error):
            begun.reply()
    assert runner.worker.alive == (error is CallFailed)


def test_an_interrupt_while_waiting_ends_the_worker(lab, monkeypatch):
    runner = lab.build(GOOD)
    call(runner)
    monkeypatch.setattr(runner.worker, "_listen", interrupt)
    with pytest.raises(KeyboardInterrupt):
        call(runner)
    assert not runner.worker.alive


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_judge_that_is_killed_takes_everything_along(tmp_path):
    script = f"""
        import os, signal, sys
        from pathlib import Path
        from pytest_flashinfer.worker.pool import Pool
        pool = Pool("cpu", cache=Path({str(tmp_path)!r}))
        worker = pool.worker()
        print(pool._nursery.process.pid, worker.private, *[pid for pid, _ in pool._nursery._alive.values()], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    server, private, *workers = done.stdout.split()
    assert workers
    started = set(map(int, [server, *workers]))

    def left():
        return started & {pid for pid, row in table().items() if row.state != "Z"} or Path(private).exists()

    end = time.monotonic() + 30  # on a machine with much else to do
    while time.monotonic() < end and left():
        time.sleep(0.01)
    assert not left()


def test_killing_the_parent_is_refused_or_costs_one_item(lab):
    source = (
        "import os, signal\ndef run(x, y):\n    try: os.kill(os.getppid(), signal.SIGKILL)\n"
        "    except PermissionError: print('refused')\n    y.copy_(x * 2)\n"
    )
    try:
        said = lab.run(source).log
    except WorkerDied as error:  # a kernel whose Landlock does not scope signals
        said = error.how
    assert said == "refused\n" or "fork-server is gone" in said
    assert alive_after(lab)


@pytest.fixture
def own(lab, tmp_path):
    """A lab whose pool is no other test's."""
    pool = Pool("cpu", cache=tmp_path / "cache")
    made = type(lab)(pool, tmp_path)
    yield made
    made.close()
    pool.close()


def test_a_dead_fork_server_is_replaced(own):
    first = own.build(GOOD)
    own.pool._nursery.process.kill()
    own.pool._nursery.process.wait()
    with pytest.raises(WorkerDied):
        call(first)
    assert not first.worker.alive
    assert alive_after(own)


def test_a_fork_server_that_cannot_be_started_is_said_and_tried_again(own, monkeypatch):
    """Where a machine is out of processes or memory for a moment, one item fails and says so."""

    def refused(*_):
        raise OSError(11, "Resource temporarily unavailable")

    own.pool._nursery.process.kill()
    own.pool._nursery.process.wait()
    with monkeypatch.context() as patch:
        patch.setattr("pytest_flashinfer.worker.pool.Nursery", refused)
        patch.setattr("pytest_flashinfer.worker.pool._RETRY_SECONDS", (0.0, 0.0))
        for _ in range(2):
            with pytest.raises(WorkerDied, match=r"no fork-server can be started: .* temporarily"):
                own.build(GOOD)
    assert alive_after(own)


def test_a_worker_that_cannot_be_started_leaves_no_folder(lab, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pool = Pool("cpu", cache=tmp_path / "cache")

    def refused(*_):
        raise OSError(24, "Too many open files")

    try:
        with monkeypatch.context() as patch:
            patch.setattr("pytest_flashinfer.worker.pool.Build", refused)
            with pytest.raises(OSError, match="Too many"):
                pool.build_ahead({}, tmp_path / "solution", 1.0)
            patch.setattr("pytest_flashinfer.worker.pool.Worker", refused)
            with pytest.raises(OSError, match="Too many"):
                pool.worker()
        assert list(tmp_path.glob("fib-*")) == []
    finally:
        pool.close()


def test_a_fork_server_that_is_not_needed_is_not_waited_for(tmp_path):
    """A run of validation alone ends before torch is imported."""
    pool = Pool("cpu", cache=tmp_path / "cache")
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 2.0
    assert pool._nursery.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("warmed", [True, False])
@pytest.mark.parametrize("fails", [1, 3])
def test_a_timed_call_that_failed_leaves_no_times_to_the_calls_after_it(lab, warmed, fails):
    runner = lab.build("def run(x, y):\n    if x[0, 0] < 0:\n        raise ValueError('odd')\n    y.copy_(x * 2)\n")
    x = torch.ones(4, 8)
    for number in range(1, 4):
        if number == fails:
            with pytest.raises(CallFailed, match="odd"):
                runner.run({"x": -x}, [Y], cache="warm")
            break
        runner.run({"x": x}, [Y], cache="warm")
    if warmed:
        runner.warm({"x": x}, [Y], "warm")
    results = lab.run_many(runner, [{"x": x}] * 3, [Y], cache="warm")
    assert all(result.span is not None and not result.violations for result in results)


def unready(*_):
    raise CallFailed("exception", "no memory for a context")


def test_a_prepared_process_that_is_lost_is_nobodys_fault(own, monkeypatch):
    """Waiting for quiet is not its affair, and whoever needs one has another made."""
    own.pool.warm()
    (spare,) = own.pool._warm.values()

    def lost():
        raise WorkerDied("signal SIGKILL")

    monkeypatch.setattr(spare, "start", lost)
    own.pool.quiet()
    assert not spare.alive
    assert alive_after(own)


def test_a_process_that_cannot_be_made_ready_is_ended_and_said_to_be_so(own, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pytest_flashinfer.worker.client.Worker.start", unready)
        with pytest.raises(WorkerDied, match="no process can be made ready on cpu: no memory for a context"):
            own.build(GOOD)
        own.pool.warm()
        own.pool.quiet()
        assert not any(worker.alive for worker in own.pool._workers)
    assert alive_after(own)
