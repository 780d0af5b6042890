"""Who replaces what the harness runs beside a solution is named, once the calls of one shape are over."""

from __future__ import annotations

import types

import pytest
import torch

from pytest_flashinfer.worker import intact, results
from pytest_flashinfer.worker.clock import WallClock
from pytest_flashinfer.worker.intact import Intact
from pytest_flashinfer.worker.runner import Output

Y = Output("y", (4, 8), torch.float32)
PATCHES = {
    "a function": ("results.span_of = lambda value: range(0)", "worker.results.span_of"),
    "its code": ("results.span_of.__code__ = (lambda value: range(0)).__code__", "span_of"),
    "a name of a module": ("copies.results = types.SimpleNamespace(**vars(results))", "worker.copies.results"),
    "a method": ("compilations.Compilations.take = lambda self: []", "Compilations.take"),
    "a name that is gone": ("del results.lies_in", "worker.results.lies_in"),
    "a method of a tensor": ("copies._COPY = lambda *_: None", "worker.copies._COPY"),
    "what a getter is": ("results._SHAPE = lambda value: ()", "worker.results._SHAPE"),
    "a type's method": ("results._IN_LIST = iter", "worker.results._IN_LIST"),
    "what is kept": ("solve._clocks = lambda device: {}", "worker.solve._clocks"),
    "a number": ("solve._HELD = 0", "worker.solve._HELD"),
    "a text": ("results._COMPILER = ''", "worker.results._COMPILER"),
    "the list of a clock": ("[clock] = CLOCK; clock._spans = type('L', (list,), {})()", "WallClock._spans"),
    "all that a clock has": ("[clock] = CLOCK; clock.__dict__ = {**vars(clock), '_now': int}", "WallClock._now"),
    "the type of a clock": ("[clock] = CLOCK; clock.__class__ = type('C', (type(clock),), {})", "WallClock"),
    "a method of one object": (
        "[o] = [o for o in gc.get_objects() if type(o) is compilations.Compilations]; o.take = lambda: []",
        "Compilations.take",
    ),
    "how answers leave": (
        "[o] = [o for o in gc.get_objects() if type(o) is protocol.Channel]; o.send = functools.partial(o.send)",
        "Channel.send",
    ),
    "how answers are written": (
        "protocol._ENCODER.encode = types.MethodType(type(protocol._ENCODER).encode, protocol._ENCODER)",
        "JSONEncoder.encode",
    ),
    "a clock": ("[clock] = list(solve._clocks('cpu').values())[:1]; clock._now = lambda: 0", "WallClock._now"),
}
HEAD = """
import functools, gc, sys, types
results, copies, compilations, solve, protocol = (
    sys.modules[f"pytest_flashinfer.worker.{name}"]
    for name in ("results", "copies", "compilations", "solve", "protocol")
)
CLOCK = list(solve._clocks('cpu').values())[:1]
"""


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("when", ["imported", "called"])
def test_what_was_replaced_is_named(lab, patch, when):
    statement, name = PATCHES[patch]
    during = "pass" if when == "imported" else f"globals().pop('todo', None) and exec({statement!r}, globals())"
    head = HEAD + (statement if when == "imported" else "todo = True")
    source = f"{head}\ndef run(x):\n    {during}\n    return x + 1\n"
    runner = lab.build(source, destination=False)
    last = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(2)], [Y])[-1]
    assert ("left", f"replaced {name} of the harness in its process; a solution has no business there") in [
        (each.kind, each.message) for each in last.violations
    ]


def test_a_usual_solution_replaces_nothing(lab):
    runner = lab.build("import torch\ndef run(x):\n    torch.manual_seed(0)\n    return x + 1\n", destination=False)
    for result in lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(2)], [Y], cache="cold"):
        assert not result.violations


def test_what_is_compared_with_cannot_be_emptied():
    known = Intact()
    for name in ("_known", "_functions", "_codes", "anything"):
        with pytest.raises(AttributeError):
            setattr(known, name, [])
    held = [each.cell_contents for each in known.broken.__closure__]
    assert not [each for each in held if isinstance(each, (list, dict, set))]


def test_a_list_that_changes_what_is_noted_changes_no_time():
    class Shrinking(list):
        def append(self, span):
            raise AssertionError

        def __iter__(self):
            raise AssertionError

    clock = WallClock()
    clock._spans = Shrinking()
    with clock.span():
        pass
    [span] = clock.read()
    assert span.seconds == span.host_seconds > 0


def test_a_few_names_stand_for_many(monkeypatch):
    module = types.ModuleType("pytest_flashinfer.made")
    functions = {f"f{number}": lambda: None for number in range(9)}
    vars(module).update(functions)
    monkeypatch.setitem(intact.sys.modules, module.__name__, module)
    known = Intact()
    assert known.broken() == []
    vars(module).update(dict.fromkeys(functions, results.span_of))
    [line] = known.broken()
    assert line.startswith("replaced made.f0, made.f1, made.f2 of")
