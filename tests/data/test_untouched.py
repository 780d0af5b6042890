"""Outputs that are read from an input which the reference never changes: sure, or not said."""

import ast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.untouched import is_untouched, values_returned
from tests.data import samples

ROWS = {"shape": ["n", "h"], "dtype": "float32"}
SAID = "run returns 1 of 2 outputs and never changes 'acc', which is where 'acc_out' is read from"


def found(tmp_path, reference, outputs=None, **changes):
    outputs = outputs or {"y": ROWS, "acc_out": {**ROWS, "param": "acc"}}
    inputs = {"x": ROWS, "acc": ROWS, "w": {"shape": ["h"], "dtype": "float32"}}
    reference = f"import torch\n\n\n{reference}"
    document = samples.changed(samples.BASE, inputs=inputs, outputs=outputs, reference=reference, **changes)
    path = samples.write(tmp_path / "a.json", document)
    return [fault for fault in check_definition(load_definition(path)) if "never changes" in fault.message]


@pytest.mark.parametrize(
    "body",
    [
        "s = x + acc; return s * 2",
        "s = x + acc; return s",
        "s = torch.matmul(acc, w); s += acc; return s",
        "return x * w",
        "assert acc.shape == x.shape; return (x.float() + acc[0]).to(x.dtype)",
        "old = acc.float(); new = old.view(-1) * 2; new.add_(1); return new.view(acc.shape)",
        "y = torch.empty_like(x); y[acc > 0] = 1.0; return y",
        "if acc is None:\n        return x * 2\n    return -acc",
    ],
)
def test_what_is_never_written_nor_returned_is_a_fault(tmp_path, body):
    [fault] = found(tmp_path, f"def run(x, acc, w):\n    {body}\n")
    assert (fault.kind, fault.where) == ("fault", "reference")
    assert SAID in fault.message
    assert "return 'acc_out' too, or write it, as acc.copy_(...)" in fault.message


@pytest.mark.parametrize(
    "body",
    [
        "s = x + acc; return s, s",
        "s = x + acc; return [s, s]",
        "s = x + acc; return {'y': s, 'acc_out': s}",
        "return _step(x, acc)",
        "acc += x; return x * 2",
        "acc[0] = x[0]; return x * 2",
        "acc.copy_(x); return x * 2",
        "torch.add(acc, x, out=acc); return x * 2",
        "view = acc.view(-1); view[0] = 1; return x * 2",
        "old = acc.float(); old.add_(x); return x * 2",
        "for row in acc:\n        row.zero_()\n    return x * 2",
        "for t in (x, acc):\n        t.zero_()\n    return x * 2",
        "_step(x, acc); return x * 2",
        "y = torch.relu_(acc); return x * 2",
        "y = torch.nn.functional.relu(acc, True); return x * 2",
        "y = torch.nn.functional.relu(acc, inplace=True); return x * 2",
        "def inner():\n        acc.add_(1)\n    inner(); return x * 2",
        "acc.data = x; return x * 2",
        "(old := acc).add_(x); return x * 2",
        "old = new = acc; new.add_(x); return x * 2",
        "old, new = acc, x; old.add_(x); return x * 2",
        "torch.ops.mine.step(acc, x); return x * 2",
    ],
)
def test_what_may_be_written_or_returned_is_let_pass(tmp_path, body):
    source = f"def _step(x, acc):\n    acc.copy_(x)\n    return x\n\n\ndef run(x, acc, w):\n    {body}\n"
    assert found(tmp_path, source) == []


def test_parameters_of_other_names_and_those_that_write_into_outputs(tmp_path):
    [fault] = found(tmp_path, "def run(a, b, c):\n    return a * b\n")
    assert "never changes 'b'" in fault.message
    assert found(tmp_path, "def run(a, b, c):\n    b.add_(a)\n    return a * b\n") == []
    several = {"acc_out": {**ROWS, "param": "acc"}, "y": ROWS, "x_out": {**ROWS, "param": "x"}}
    [fault] = found(tmp_path, "def run(x, acc, w):\n    acc.add_(x)\n    return x * w\n", several)
    assert "returns 1 of 3 outputs and never changes 'x', which is where 'x_out'" in fault.message
    assert found(tmp_path, "def run(x, acc, w):\n    acc.add_(x)\n    x.add_(1)\n    return x * w\n", several) == []


LINES = [
    "a = acc", "a = acc.view(-1)", "a = acc.float()", "a = acc[0]", "a, b = acc, x", "b = acc.T", "b = torch.abs(acc)",
    "a = a + 1", "b = torch.reshape(a, (-1,))", "a += 1", "b[0] = 7", "a.add_(1)", "acc = acc + 1",
    "x.copy_(a.view(-1)[0])", "acc += 1", "b = +a", "b = -a", "torch.add(a, 1, out=a)",
    "b = a if x.sum() > 0 else b", "b = a.contiguous()",
    "b.add_(a)", "b = torch.add(a, x)", "c = torch.cat([a, x])", "b = a.sum(0); b += 1", "b = torch.where(x > 0, a, x)",
    "c = [a, b]; c[0].mul_(3)", "c = (a,); d = c[0]", "d.zero_()", "b = torch.relu(a); b.sub_(1)", "b.copy_(acc.sum())",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=6))
def test_what_is_called_untouched_is_as_it_was(lines):
    head = "a = x.clone(); b = x.clone(); d = x.clone()"
    source = "\n    ".join(["def run(x, acc):", head, *lines, "return x * 2"])
    function = ast.parse(source).body[0]
    namespace = {"torch": torch}
    exec(source, namespace)
    x, acc = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3) + 0.5
    before = acc.clone()
    try:
        namespace["run"](x, acc)
    except (RuntimeError, IndexError):
        return
    assert torch.equal(acc, before) or not is_untouched(function, "acc"), source


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return a * 2, a", 2),
        ("return", 0),
        ("pass", 0),
        ("if a:\n        return None\n    return a + 1, a, a", 3),
        ("return a", None),
        ("return a.max(0)", None),
        ("b = a * 2; return b", 1),
        ("b = a * 2; b = a.max(0); return b", None),
        ("b, c = a * 2, a; return b", None),
        ("b = a * 2; b += 1; return b", 1),
        ("b = (a, a); b += (a,); return b", None),
        ("for b in a:\n        b = a * 2\n    return b", None),
        ("yield a * 2", None),
        ("return *a, a", None),
    ],
)
def test_how_many_values_are_returned_is_said_where_the_text_tells(body, count):
    assert values_returned(ast.parse(f"def run(a):\n    {body}\n").body[0]) == count
