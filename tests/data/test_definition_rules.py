import contextlib
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data import records
from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.data.contradictions import contradictions
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.dialects import translate
from pytest_flashinfer.data.judgeable import why_unjudgeable
from pytest_flashinfer.data.rules import check_definition, check_folder, check_name
from tests.data import samples

TENSOR = {"shape": ["n", "h"], "dtype": "float32"}


def check(tmp_path, document):
    return check_definition(load_definition(samples.write(tmp_path / "a.json", document)))


def test_the_base_has_no_faults(tmp_path):
    assert check(tmp_path, samples.BASE) == ()


RULES = {
    "unknown axis": (
        {"inputs": {**samples.BASE["inputs"], "x": {"shape": ["n", "hh"], "dtype": "float32"}}},
        "inputs.x.shape[1]",
        "unknown axis 'hh'; did you mean 'h'?",
    ),
    "computed size": (
        {"inputs": {**samples.BASE["inputs"], "x": {"shape": ["2 * n"], "dtype": "float32"}}},
        "inputs.x.shape[0]",
        "needs an axis of type 'expr'",
    ),
    "overlap": ({"outputs": {"x": TENSOR}}, "outputs.x", "'x' is the name of an input too"),
    "one param of two outputs": (
        {"outputs": {"y": {**TENSOR, "param": "x"}, "z": {**TENSOR, "param": "x"}}},
        "outputs.z.param",
        "'x' is what 'y' is written into",
    ),
    "param of another dtype": (
        {"outputs": {"y": {**TENSOR, "dtype": "float16", "param": "x"}}},
        "outputs.y.dtype",
        "'y' is written into 'x', which is float32, not float16",
    ),
    "param of another shape": (
        {"outputs": {"y": {**TENSOR, "param": "w"}}},
        "outputs.y.shape",
        "'y' is written into 'w': their shapes differ, [h] and [n, h]",
    ),
    "in place of another shape": (
        {"outputs": {"w": {**TENSOR, "param": "w"}}},
        "outputs.w.shape",
        "'w' is written into 'w': their shapes differ, [h] and [n, h]",
    ),
    "syntax": (
        {"reference": "def run(x, w):\n    return (x\n"},
        "reference",
        "line 2 of the reference: '(' was never closed: return (x",
    ),
    "no entry": (
        {"reference": "def go(x, w):\n    return x\n"},
        "reference",
        "no top-level function 'run' (there is: go)",
    ),
    "too many parameters": (
        {"reference": "def run(x, w, eps):\n    return x\n"},
        "reference",
        "run takes x, w, eps; it is given x, w",
    ),
    "too few parameters": ({"reference": "def run(x):\n    return x\n"}, "reference", "run takes x; it lacks w"),
    "too few, without gradients": (
        {"reference": "import torch\n\n\n@torch.no_grad()\ndef run(x):\n    return x\n"},
        "reference",
        "run takes x; it lacks w",
    ),
    "too few by keyword": ({"reference": "def run(*, x=None):\n    return x\n"}, "reference", "takes x; it lacks w"),
    "other order": ({"reference": "def run(w, x):\n    return x\n"}, "reference", "the order of the inputs is x, w"),
    "keyword only": ({"reference": "def run(x, w, *, eps):\n    return x\n"}, "reference", "by keyword"),
    "needs another": (
        {"reference": "def run(x, eps, **rest):\n    return x\n"},
        "reference",
        "run needs eps, which is no input",
    ),
    "broken constraint": ({"constraints": ["n == h +"]}, "constraints[0]", "does not parse"),
    "unknown name in constraint": ({"constraints": ["n == q"]}, "constraints[0]", "unknown name 'q'"),
    "divides by zero": ({"constraints": ["n % (h - 8) == 1"]}, "constraints[0]", "n % (h - 8) divides by zero"),
    "false of constants": ({"constraints": ["n >= 1", "h == 9"]}, "constraints[1]", "'h == 9' does not hold for h = 8"),
    "constant without value": ({"axes": {"n": {"type": "var"}, "h": {"type": "const"}}}, "axes.h", "needs a 'value'"),
    "circular": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "expr", "expression": "n + 1"}}},
        "axes.n.expression",
        "follows from itself",
    ),
    "unknown in expression": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "expr", "expression": "k + 1"}}},
        "axes.n.expression",
        "unknown name 'k'",
    ),
    "no expression": ({"axes": {**samples.BASE["axes"], "n": {"type": "expr"}}}, "axes.n", "missing key 'expression'"),
    "words as expression": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "expr", "expression": "two words here now"}}},
        "axes.n.expression",
        "'two words here now' is not arithmetic over axes",
    ),
    "an expression of tensors": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "expr", "expression": "h.size(0) + 1"}}},
        "axes.n.expression",
        "is not arithmetic over axes",
    ),
    "own parent": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "var", "parent": "n"}}},
        "axes.n.parent",
        "its own parent",
    ),
    "unknown parent": (
        {"axes": {**samples.BASE["axes"], "n": {"type": "var", "parent": "hh"}}},
        "axes.n.parent",
        "did you mean 'h'?",
    ),
    "order of axes": (
        {"outputs": {"y": {**TENSOR, "dim_order": [0, 2]}}},
        "outputs.y.dim_order",
        "not an order of the 2 axes",
    ),
    "shaped string": (
        {"inputs": {**samples.BASE["inputs"], "x": {"shape": ["n"], "dtype": "string"}}},
        "inputs.x.dtype",
        "write null",
    ),
    "unknown dtype": (
        {"outputs": {"y": {"shape": ["n"], "dtype": "float23"}}},
        "outputs.y.dtype",
        "did you mean 'float32'?",
    ),
    "kind of axis": ({"axes": {**samples.BASE["axes"], "n": {"type": "vra"}}}, "axes.n.type", "did you mean 'var'?"),
    "negative size": (
        {"axes": {"n": {"type": "var"}, "h": {"type": "const", "value": -8}}},
        "axes.h.value",
        "-8 is less than 0",
    ),
    "name with a slash": ({"name": "../evil"}, "name", "holds a slash: no name may"),
    "wrong type": ({"inputs": ["x"]}, "inputs", "expected an object {...}, got a list [...]"),
    "init without function": ({"init": "x = 1"}, "init", "no function in it"),
    "custom inputs": ({"custom_inputs_entrypoint": "make"}, "custom_inputs_entrypoint", "no top-level function 'make'"),
}


@pytest.mark.parametrize("key", ["sources", "workload", "kernel_id", "conversation", "kernels"])
@pytest.mark.parametrize("document", [samples.BASE, samples.SIGNATURE, samples.DESCRIPTION], ids="312")
def test_keys_of_other_records_make_a_definition_no_other_record(tmp_path, document, key):
    loaded = load_definition(samples.write(tmp_path / "a.json", {key: [], **document}))
    assert loaded.value is not None
    assert samples.messages(check_definition(loaded)) == []
    assert loaded.value.extra[key] == []


@pytest.mark.parametrize("name", ["in", "None", "2d", "head-dim", "a b", "a.b", "", "n+1", "4"])
def test_axes_have_names_that_python_takes(tmp_path, name):
    document = samples.changed(
        samples.BASE,
        axes={**samples.BASE["axes"], name: {"type": "var"}},
        outputs={"y": {"shape": ["n", name or "n"], "dtype": "float32"}},
    )
    faults = [fault.message for fault in check(tmp_path, document) if fault.kind == "fault"]
    assert any(message.startswith(f"axis {name!r} is ") and "Python: rename it" in message for message in faults)


@pytest.mark.parametrize("name", ["N", "head_dim", "match", "größe", "_n2"])
def test_other_names_of_axes_are_fine(tmp_path, name):
    text = json.dumps(samples.BASE).replace('"n"', json.dumps(name))
    assert check(tmp_path, json.loads(text)) == ()


@pytest.mark.parametrize("name", RULES)
def test_rules(tmp_path, name):
    changes, where, message = RULES[name]
    found = [fault for fault in check(tmp_path, samples.changed(samples.BASE, **changes)) if fault.where == where]
    assert [fault.kind for fault in found] == ["fault"]
    assert message in found[0].message
    assert (tmp_path / "a.json").read_text().split("\n")[found[0].line - 1].strip()


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        ({"axes": {**samples.BASE["axes"], "unused": {"type": "var"}}}, "axes.unused", "is not used"),
        ({"constraints": ["the rows are independent"]}, "constraints[0]", "is in words"),
        ({"constraints": ["x.is_contiguous()"]}, "constraints[0]", "is not checked"),
        ({"outputs": {}}, "outputs", "nothing to compare"),
        ({"outputs": {"y": {**TENSOR, "param": "xx"}}}, "outputs.y.param", "is not an input; did you mean 'x'?"),
        (
            {"outputs": {"y": {**TENSOR, "param": "z"}}},
            "outputs.y.param",
            "'z' is not an input; name one of x, w, or leave param out",
        ),
    ],
)
def test_warnings(tmp_path, changes, where, message):
    found = [fault for fault in check(tmp_path, samples.changed(samples.BASE, **changes)) if fault.where == where]
    assert [fault.kind for fault in found] == ["warning"]
    assert message in found[0].message


@pytest.mark.parametrize(
    ("dtype", "meant"),
    [("bf61", "bfloat16"), ("fp6", "float64"), ("flaot32", "float32"), ("BF16x", "bfloat16"), ("bloat16", "bfloat16")],
)
def test_the_dtype_that_was_meant_is_named_also_where_its_short_name_was(tmp_path, dtype, meant):
    outputs = {"y": {**TENSOR, "dtype": dtype}}
    (fault,) = check(tmp_path, samples.changed(samples.BASE, outputs=outputs))
    assert fault.message == f'"{dtype}" is not allowed here; did you mean {meant!r}?'


@pytest.mark.parametrize("changes", [{}, {"dtype": "unknown"}, {"shape": ["n", "8"]}])
def test_outputs_in_place(tmp_path, changes):
    document = samples.changed(samples.BASE, outputs={"y": {**TENSOR, "param": "x", **changes}})
    assert check(tmp_path, document) == ()


DOUBLED = [
    (samples.BASE | {"assumptions": ["n > 0"]}, {"constraints": ["n > 1"]}, "assumptions"),
    (samples.DESCRIPTION, {"name": "other"}, "id"),
    (samples.DESCRIPTION, {"code": "def run(x, eps):\n    return eps\n"}, "code"),
    (samples.SIGNATURE, {"op_type": "other"}, "op"),
]


@pytest.mark.parametrize(("document", "more", "unread"), DOUBLED, ids=[each[2] for each in DOUBLED])
def test_two_keys_for_one_thing_are_warned_of(tmp_path, document, more, unread):
    """One of them is not read: what it says is lost on the contract."""
    loaded = load_definition(samples.write(tmp_path / "a.json", document | more))
    [warning] = [each for each in loaded.warnings if "is not read" in each.message]
    assert warning.where == unread
    assert json.dumps(unread) in (tmp_path / "a.json").read_text().splitlines()[warning.line - 1]
    same = load_definition(samples.write(tmp_path / "a.json", samples.BASE | {"constraints": [], "assumptions": []}))
    assert not [each for each in same.warnings if "is not read" in each.message]


@pytest.mark.parametrize(
    "reference",
    [
        "def run(*args):\n    return args[0]\n",
        "def run(x, w, extra=None):\n    return x\n",
        "def run(x, *, w=None):\n    return x\n",
        "def run(x, *, w):\n    return x\n",
        "def run(*, x, w):\n    return x\n",
        "def run(*, w, x=None):\n    return x\n",
        "def run(a, *, w=None):\n    return a\n",
        "def run(x, w, *, eps=1e-6):\n    return x\n",
        "def run(a, b):\n    return a\n",
        "import functools\nrun = functools.partial(print)\n",
        "try:\n    from there import run\nexcept ImportError:\n    run = None\n",
        "def run(x, w, y):\n    y.copy_(x)\n",
        "def run(x, w):\n    return 1\n\n\ndef run(x, w):\n    return x\n",
        "def split(f):\n    return lambda x, w: f((x, w))\n\n\n@split\ndef run(both):\n    return both[0]\n",
        "def run(both):\n    return both[0]\n\n\n_run = run\nrun = lambda x, w: _run((x, w))\n",
        "def run(both):\n    return both[0]\n\n\nglobals()['run'] = print\n",
        "import torch\n\n\n@torch.no_grad()\ndef run(x, w):\n    return x\n",
    ],
)
def test_references_that_fit(tmp_path, reference):
    assert check(tmp_path, samples.changed(samples.BASE, reference=reference)) == ()


def test_all_faults_are_told_at_once_in_the_order_of_lines(tmp_path):
    document = samples.changed(
        samples.BASE,
        axes={"n": {"type": "var"}, "h": {"type": "const", "value": "eight"}},
        outputs={"y": {"shape": ["m"], "dtype": "float23"}},
        tags=[1],
        op_type=...,
    )
    found = check(tmp_path, document)
    assert [fault.where for fault in found] == ["", "axes.h.value", "outputs.y.dtype", "tags[0]"]
    assert [fault.line for fault in found] == sorted(fault.line for fault in found)


def test_case_02b_missing_op_type(tmp_path):
    loaded = load_definition(samples.write(tmp_path / "a.json", samples.changed(samples.BASE, op_type=...)))
    assert loaded.value is None
    assert samples.messages(check_definition(loaded)) == [
        (
            f"{tmp_path}/a.json:1: missing key 'op_type': "
            "the kind of operation, such as 'gemm'; the folder has the same name"
        )
    ]


def test_case_02c_older_key_type(tmp_path):
    document = {"type" if key == "op_type" else key: value for key, value in samples.BASE.items()}
    loaded = load_definition(samples.write(tmp_path / "a.json", document))
    assert loaded.value.op_type == "elementwise"
    assert samples.messages(check_definition(loaded)) == [
        f"{tmp_path}/a.json:3: type: older key `type`: rename it to `op_type`"
    ]


def test_case_02d_folder_of_another_op_type(tmp_path):
    path = tmp_path / "elementwise" / "a.json"
    loaded = load_definition(samples.write(path, samples.changed(samples.BASE, op_type="norm")))
    (warning,) = check_folder(loaded, tmp_path)
    assert warning.kind == "warning"
    assert "op_type is 'norm', the folder 'elementwise'" in warning.message
    assert check_folder(load_definition(samples.write(path, samples.BASE)), tmp_path) == ()
    assert check_folder(load_definition(samples.write(tmp_path / "b.json", samples.BASE)), tmp_path) == ()


@pytest.mark.parametrize("document", [samples.BASE, samples.SIGNATURE, samples.DESCRIPTION, samples.DUMP, samples.SOL])
def test_a_file_is_named_after_its_definition_in_the_form_that_data_sets_have(tmp_path, document):
    loaded = load_definition(samples.write(tmp_path / "other.json", document))
    found = check_name(loaded)
    assert [(fault.kind, fault.where) for fault in found] == ([("warning", "name")] if document is samples.BASE else [])
    assert all("its name is 'scale_add_h8': call the file scale_add_h8.json" in fault.message for fault in found)
    assert check_name(load_definition(samples.write(tmp_path / f"{loaded.value.name}.json", document))) == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (samples.GOOD, "this is a solution, not a definition: move it under the solutions folder"),
        (samples.LINE, "this is a workload or trace line, not a definition"),
        (samples.LINE["workload"], "this is a workload, not a definition"),
        ([samples.BASE], "a definition is a JSON object, not a list"),
        ("3", "a definition is a JSON object, not a number"),
        ({"model": "m", "framework": "vLLM", "kernels": []}, "this is a kernel calling record"),
    ],
)
def test_documents_of_other_kinds_are_named(tmp_path, document, message):
    loaded = load_definition(samples.write(tmp_path / "a.json", document))
    assert loaded.value is None
    assert message in loaded.faults[0].message


def test_duplicate_keys_of_a_definition_are_faults(tmp_path):
    text = '{"name": "a",\n' + json.dumps(samples.BASE)[1:]
    loaded = load_definition(samples.write(tmp_path / "a.json", text))
    assert loaded.value.name == "scale_add_h8"
    assert "stands here a second time" in check_definition(loaded)[0].message


STOPS_NOBODY = {
    "overlap",  # values are compared by place, whatever they are called
    "constant without value",  # a workload may state it
    "unknown dtype", "no expression", "name with a slash",  # of the schema: whoever makes inputs needs no more
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_solutions_are_judged_only_by_definitions_that_say_what_is_right(tmp_path, name):
    changes, where, _ = RULES[name]
    loaded = load_definition(samples.write(tmp_path / "a.json", samples.changed(samples.BASE, **changes)))
    fault = why_unjudgeable(loaded)
    if name in STOPS_NOBODY or loaded.value is None:
        assert fault is None
    else:
        assert (fault.kind, fault.where) == ("fault", where)
        assert fault in check_definition(loaded)


@pytest.mark.parametrize(
    ("document", "key", "stops"),
    [
        (samples.BASE, "reference", True),
        (samples.BASE, "inputs", True),
        (samples.BASE, "description", False),
        (samples.BASE, "op_type", False),
        (samples.SIGNATURE, "code", True),
        (samples.SIGNATURE, "op", False),
    ],
)
def test_of_a_key_that_stands_there_twice_it_matters_which(tmp_path, document, key, stops):
    text = json.dumps(document)[:-1] + f', "{key}": {json.dumps(document.get(key, ""))}}}'
    text = text if key in document else f'{{"{key}": "",' + text[1:]
    loaded = load_definition(samples.write(tmp_path / "a.json", text))
    assert loaded.faults
    assert loaded.value is not None
    assert (why_unjudgeable(loaded) is not None) == stops


@pytest.mark.parametrize("axes", [{"a-b": {"type": "var"}}, {"class": {"type": "var"}}, {"unused": {"type": "var"}}])
def test_a_name_that_python_would_not_take_stops_nobody(tmp_path, axes):
    document = samples.changed(samples.BASE, axes={**samples.BASE["axes"], **axes})
    assert why_unjudgeable(load_definition(samples.write(tmp_path / "a.json", document))) is None


@pytest.mark.parametrize("key", ["flops", "bytes"])
@pytest.mark.parametrize("value", ["2 * n * h", "n * x.shape[1]", 12, 1.5e9, None])
def test_a_count_may_be_an_expression_or_a_number(tmp_path, key, value):
    assert check(tmp_path, samples.BASE | {key: value}) == ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2 * m", "unknown name 'm'"),
        ("n +", "does not parse"),
        ("about two per element", "is no expression over axes and inputs"),
        ({"n": 1}, "is no expression over axes and inputs"),
        ("open(n)", "function open() is not known here"),
    ],
)
def test_a_count_that_cannot_be_computed_is_a_warning(tmp_path, value, words):
    (fault,) = check(tmp_path, samples.BASE | {"flops": value})
    assert (fault.kind, fault.where) == ("warning", "flops")
    assert words in fault.message


NUMBERS = {
    **samples.BASE,
    "inputs": {
        **samples.BASE["inputs"],
        "cap": {"shape": None, "dtype": "float32"},
        "mode": {"shape": [], "dtype": "int32"},
        "few": {"shape": None, "dtype": "uint8"},
        "may": {"shape": None, "dtype": "float32", "optional": True},
    },
    "reference": "def run(x, w, cap, mode, few, may=None):\n    return x * w + 1\n",
}
EMPTY = {
    ("cap >= 0", "cap < 0"): "'cap' satisfies 'cap >= 0' and 'cap < 0'",
    ("cap > 1 and cap < 0.5",): "'cap' satisfies 'cap > 1 and cap < 0.5'",
    ("0 <= cap <= h", "n > 0", "not cap <= h"): "'cap' satisfies '0 <= cap <= h' and 'not cap <= h'",
    ("mode > 1", "mode < 2"): "'mode' satisfies 'mode > 1' and 'mode < 2'",
    ("mode in (1, 2)", "mode != 1", "mode != 2"): "'mode' satisfies 'mode in (1, 2)' and 'mode != 1' and 'mode != 2'",
    ("few < 0",): "'few' satisfies 'few < 0'",
    ("few > 255 or few == 300",): "'few' satisfies 'few > 255 or few == 300'",
    ("n > 4", "n % 2 == 0", "n <= 4"): "'n' satisfies 'n > 4' and 'n <= 4'",
    ("n < 0",): "'n' satisfies 'n < 0'",
}
POSSIBLE = [
    ("cap > 1", "cap < 2"), ("cap > 1", "cap < 1.0000001"), ("cap >= 0", "cap <= 0"), ("mode > 1", "mode < 3"),
    ("cap == 0 or cap > 5", "cap < 6"), ("few > 254",), ("n == 0",), ("n % 7 == 5", "n > 2", "n < 6"),
    ("cap * cap == 2",), ("may is None or may > 0", "may is None or may < 0"), ("cap > n", "cap < n + 1"),
    ("mode >= -2147483648",), ("cap > 1e30",), ("mode > few", "few > mode"), ("(x > 0).all()", "(x < 0).all()"),
]  # fmt: skip


@pytest.mark.parametrize("constraints", EMPTY, ids=" / ".join)
def test_constraints_that_leave_no_value_are_a_fault(tmp_path, constraints):
    [fault] = check(tmp_path, {**NUMBERS, "constraints": list(constraints)})
    assert fault.kind == "fault"
    assert fault.where == f"constraints[{len(constraints) - 1}]"
    assert fault.message == f"no value of {EMPTY[constraints]}: correct the constraints"


@pytest.mark.parametrize("constraints", POSSIBLE, ids=" / ".join)
def test_constraints_that_leave_a_value_are_none(tmp_path, constraints):
    assert check(tmp_path, {**NUMBERS, "constraints": list(constraints)}) == ()


OF_ELEMENTS = {  # constraints, and the part of each that is true or false of elements
    "a >= 0": "a >= 0",
    "0 <= a": "0 <= a",
    "-a < n": "-a < n",
    "a + b == 3": "a + b == 3",
    "n > 0 and a[1:] >= a[:-1]": "a[1:] >= a[:-1]",
    "not (a == b)": "a == b",
    "(a >= 0) & (a < n)": "(a >= 0) & (a < n)",
    "0 <= a < n": "0 <= a < n",
    "t[0] >= 0": "t[0] >= 0",
    "a": "a",
    "a >= 0 if n > 1 else n == 1": "a >= 0",
    "(a >= 0).all()": "",
    "a[0] == 0 and a[-1] == n": "",
    "a[:1] == 0 and a[-1:] <= n": "",
    "one >= 0": "",
    "a is not None": "",
    "n in (1, 2, 3)": "",
    "a.max() < n": "",
    "len(a) == n": "",
    "torch.equal(a, b)": "",
}


@pytest.mark.parametrize("text", OF_ELEMENTS)
def test_a_constraint_that_is_one_for_each_element_is_a_fault(tmp_path, text):
    """What is said of the text is what torch says of three elements."""
    axes = {"n": {"type": "var"}, "m": {"type": "var"}, "o": {"type": "const", "value": 1}}
    shapes = {"a": ["n"], "b": ["n"], "t": ["m", "n"], "one": ["o"]}
    inputs = {name: {"shape": shape, "dtype": "int32"} for name, shape in shapes.items()}
    reference = "import torch\ndef run(a, b, t, one):\n    return a + b + t.sum(0) + one\n"
    outputs = {"y": {"shape": ["n"], "dtype": "int32"}}
    base = {"axes": axes, "inputs": inputs, "outputs": outputs, "reference": reference, "constraints": [text]}
    faults = [fault for fault in check(tmp_path, samples.BASE | base) if "truth value" in fault.message]
    part = OF_ELEMENTS[text]
    told = [f"{text!r} has no truth value: write `({part}).all()`"] if part else []
    assert [fault.message for fault in faults] == told
    assert all(fault.kind == "fault" and fault.where == "constraints[0]" for fault in faults)
    tensors = {"a": torch.arange(3), "b": torch.arange(3), "t": torch.ones(2, 3), "one": torch.ones(1)}
    with pytest.raises(ConstraintError) if part else contextlib.nullcontext():
        parse(text).holds({"n": 3, "m": 2, **tensors})


COMPARED = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.integers(-3, 3))


@given(st.lists(COMPARED, min_size=1, max_size=4), st.sampled_from(["mode", "cap"]))
def test_a_contradiction_is_one_of_any_values(compared, name):
    texts = [f"{name} {sign} {limit}" for sign, limit in compared]
    definition = records.definition(translate({**NUMBERS, "constraints": texts}, Path("a.json")))
    values = range(-5, 6) if name == "mode" else [half / 2 for half in range(-10, 11)]
    possible = any(all(eval(text, {name: value}) for text in texts) for value in values)
    assert (not list(contradictions(definition))) == possible


@pytest.mark.parametrize(
    ("parameters", "kind", "said"),
    [
        ("x, gat, cap", "warning", "run takes 'gat', the input is called 'gate': is that meant?"),
        ("x, cap, gat", "fault", "run takes 'cap' where it is given 'gate': the order is x, gate, cap"),
        ("a, b, c", None, None),
        ("x, g, cap", None, None),
        ("x, gate, cap, more=1", None, None),
        ("x, gate_, cap", None, None),
        ("x, _gate, cap_", None, None),
        ("*args", None, None),
    ],
)
def test_names_of_parameters_are_compared_with_those_of_the_inputs(tmp_path, parameters, kind, said):
    inputs = {name: {"shape": ["n", "h"], "dtype": "float32"} for name in ("x", "gate", "cap")}
    reference = f"def run({parameters}):\n    return 1\n"
    found = check(tmp_path, {**samples.BASE, "inputs": inputs, "reference": reference})
    assert [(fault.kind, fault.message) for fault in found] == ([] if kind is None else [(kind, said)])
