"""Work that is left for after the clock: it is paid for, refused or never done."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.worker import thread_state
from pytest_flashinfer.worker.runner import Output

Y = Output("y", (4, 8), torch.float32)
SECONDS = 0.05  # that the work takes
WORK = f"import sys, time, torch\ndef work(x):\n    time.sleep({SECONDS})\n    return x * 2\n"

# a result that computes when the harness reads it
LAZY = {
    "list": """
class Lazy(list):
    def __init__(self, job): self.job = job
    def __iter__(self): return iter([self.job()])
    def __len__(self): return 1
def run(x): return Lazy(lambda: work(x))
""",
    "dict": """
class Lazy(dict):
    def __getitem__(self, key): return dict.__getitem__(self, key)()
    def items(self): return [(key, self[key]) for key in self]
def run(x): return Lazy(y=lambda: work(x))
""",
    "pretender": """
class Lazy:
    def __init__(self, job): self.job = job
    __class__ = property(lambda self: tuple)
    def __iter__(self): return iter([self.job()])
def run(x): return Lazy(lambda: work(x))
""",
}

# what is left switched on, and what it is called
LEFT = {
    "profile": (
        """
def run(x, y):
    job = [lambda: y.copy_(work(x))]
    def hook(frame, event, arg):
        if event == "call" and frame.f_code.co_name in ("snapshot", "synchronize", "_reread") and job:
            job.pop()()
    sys.setprofile(hook)
""",
        "sys.setprofile",
    ),
    "trace": (
        """
def run(x, y):
    job = [lambda: y.copy_(work(x))]
    def hook(frame, event, arg):
        if frame.f_code.co_name in ("snapshot", "synchronize", "_reread") and job:
            job.pop()()
    sys.settrace(hook)
""",
        "sys.settrace",
    ),
    "collector": (
        """
import gc
gc.set_threshold(1)
def run(x, y):
    job = [lambda: y.copy_(work(x))]
    def hook(phase, info):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "run":
            frame = frame.f_back
        if frame is None and job:
            job.pop()()
    gc.callbacks.append(hook)
""",
        "garbage collector",
    ),
    "timer": (
        """
import signal
def run(x, y):
    job = [lambda: y.copy_(work(x))]
    signal.signal(signal.SIGALRM, lambda *_: job and job.pop()())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
""",
        "signal.setitimer",
    ),
    "dispatch_mode": (
        """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default and self.job:
            self.job.pop()()
        return func(*args, **(kwargs or {}))
def run(x, y):
    mode = Mode()
    mode.job = [lambda: y.copy_(work(x))]
    mode.__enter__()
""",
        "TorchDispatchMode",
    ),
    "function_mode": (
        """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.job:
            self.job.pop()()
        return func(*args, **(kwargs or {}))
def run(x, y):
    mode = Mode()
    mode.job = [lambda: y.copy_(work(x))]
    mode.__enter__()
""",
        "TorchFunctionMode",
    ),
}

MODE_SINCE_IMPORT = """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    job = None
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.job and func is torch.ops.aten.copy_.default:
            job, self.job = self.job, None
            job()
        return func(*args, **(kwargs or {}))
mode = Mode()
mode.__enter__()
def run(x):
    result = torch.full_like(x, 7.0)
    mode.job = lambda: result.copy_(work(x))
    return result
"""

PATCHED = """
copies = sys.modules["pytest_flashinfer.worker.copies"]
jobs, whole = [], copies.snapshot
def snapshot(*arguments):
    while jobs:
        jobs.pop()()
    return whole(*arguments)
copies.snapshot = snapshot
def run(x, y): jobs.append(lambda: y.copy_(work(x)))
"""

# honest code that switches something on and off, or keeps it for itself
CLEAN = {
    "inference_mode": "def run(x):\n    with torch.inference_mode():\n        return x.mul(2)",
    "no_grad": "@torch.no_grad()\ndef run(x):\n    return x.mul(2)",
    "autocast": "def run(x):\n    with torch.autocast('cpu', torch.bfloat16):\n        return x.mul(2)",
    "device": "def run(x):\n    with torch.device('cpu'):\n        return x.mul(2)",
    "default_device": "torch.set_default_device('cpu')\ndef run(x):\n    return x.mul(2)",
    "default_device_in_calls": "def run(x):\n    torch.set_default_device('cpu')\n    return x.mul(2)",
    "default_device_reset": "torch.set_default_device('meta')\n"
    "def run(x):\n    torch.set_default_device(None)\n    return torch.ones(1) * 2 * x",
    "default_device_holds": "torch.set_default_device('meta')\n"
    "def run(x):\n    assert torch.ones(1).is_meta\n    return x.mul(2)",
    "deterministic": "def run(x):\n    torch.use_deterministic_algorithms(True)\n    return x.mul(2)",
    "own_mode": """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
def run(x):
    with Mode():
        return x.mul(2)""",
    "profiled": "def run(x):\n    before = sys.getprofile()\n    sys.setprofile(lambda *a: None)\n"
    "    y = x.mul(2)\n    sys.setprofile(before)\n    return y",
    "ordered_dict": "from collections import OrderedDict\ndef run(x):\n    return OrderedDict(y=x.mul(2))",
    "namedtuple": "from collections import namedtuple\nMade = namedtuple('Made', 'y')\n"
    "def run(x):\n    return Made(x.mul(2))",
    "list_subclass": "class Rows(list):\n    pass\ndef run(x):\n    return Rows([x.mul(2)])",
    "text_subclass": "class Key(str):\n    pass\ndef run(x):\n    return {Key('y'): x.mul(2)}",
}


@pytest.mark.parametrize("name", LAZY)
def test_containers_are_read_past_what_a_subclass_overrides(lab, name):
    result = lab.run(WORK + LAZY[name], destination=False, cache="cold")
    assert result.violations
    assert result.host_seconds < SECONDS, "nobody had it computed"


@pytest.mark.parametrize("name", LEFT)
def test_what_a_call_leaves_switched_on_is_named_and_switched_off(lab, name):
    source, called = LEFT[name]
    x = lab.randn(4, 8)
    runner = lab.build(WORK + source)
    first, second = lab.run_many(runner, [{"x": x}, {"x": x}], [Y], cache="cold")
    for result in (first, second):
        left = [each for each in result.violations if each.kind == "left"]
        paid = result.span.seconds >= SECONDS and torch.equal(result.outputs["y"], x * 2)
        assert left or paid
        assert all(called in each.message for each in left)
    assert any(each.kind == "left" for each in first.violations)


def test_a_mode_that_is_on_since_the_import_is_off_while_the_result_is_copied(lab):
    x = lab.randn(4, 8)
    result = lab.run(WORK + MODE_SINCE_IMPORT, {"x": x}, destination=False)
    assert torch.equal(result.outputs["y"], torch.full((4, 8), 7.0))


def test_what_is_computed_when_the_result_is_copied_is_paid_for_on_the_cpu(lab):
    x = lab.randn(4, 8)
    [result] = lab.run_many(lab.build(WORK + PATCHED), [{"x": x}], [Y], cache="cold")
    assert torch.equal(result.outputs["y"], x * 2)
    assert result.span.seconds >= SECONDS


@pytest.mark.parametrize("name", CLEAN)
def test_who_sets_and_resets_is_not_blamed(lab, name):
    runner = lab.build(f"import sys, torch\n{CLEAN[name]}\n", destination=False)
    for _ in range(3):
        x = lab.randn(4, 8)
        result = runner.run({"x": x}, [Y])
        assert not result.violations
        assert torch.equal(result.outputs["y"], x * 2)


def test_a_number_of_a_subclass_is_not_asked(lab):
    source = "class Slow(float):\n    def __float__(self): raise OSError\ndef run(x):\n    return Slow(2.5)\n"
    result = lab.run(source, outputs=[Output("s", (), torch.float32, scalar=True)], destination=False)
    assert not result.violations
    assert float(result.outputs["s"]) == 2.5


def test_a_call_that_raises_with_a_mode_on_leaves_the_next_one_clean(lab):
    source = """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
def run(x):
    if x[0, 0] < 0:
        Mode().__enter__()
        raise ValueError
    assert not torch._C._len_torch_function_stack()
    return x * 2
"""
    runner = lab.build("import torch" + source, destination=False)
    with pytest.raises(Exception, match="ValueError"):
        runner.run({"x": -torch.ones(4, 8)}, [Y])
    assert not runner.run({"x": torch.ones(4, 8)}, [Y]).violations


def test_what_was_on_before_is_left_on_and_blames_nobody():
    before = sys.getprofile()

    def hook(*_):
        return None

    sys.setprofile(hook)
    try:
        known = thread_state.Leftovers()
        known.put_back()
        assert known.take() == []
        assert sys.getprofile() is hook
        sys.setprofile(lambda *_: None)
        assert "sys.setprofile" in known.take()[0]
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(before)


def test_tools_of_sys_monitoring_are_switched_off(monkeypatch):
    names, calls = {0: "coverage"}, []
    fake = SimpleNamespace(
        events=SimpleNamespace(NO_EVENTS=0, LINE=32, CALL=16, BRANCH=48),
        register_callback=lambda tool, event, call: calls.append((tool, event, call)),
        set_events=lambda tool, events: calls.append((tool, events)),
        free_tool_id=names.pop,
    )
    monkeypatch.setattr(thread_state, "_MONITORING", fake)
    monkeypatch.setattr(thread_state, "_TOOL", names.get)
    known = thread_state.Leftovers()
    assert known.take() == []
    names[3] = "lazy"
    assert "sys.monitoring" in known.take()[0]
    assert names == {0: "coverage"}
    assert calls == [(3, 32, None), (3, 16, None), (3, 0)]
