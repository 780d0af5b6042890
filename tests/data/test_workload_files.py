import json
import math

import pytest

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.traces import load_traces, load_workloads, stable_uuid
from pytest_flashinfer.data.workload_rules import check_workload, check_workloads
from tests.data import samples


@pytest.fixture
def base(tmp_path):
    return load_definition(samples.write(tmp_path / "base.json", samples.BASE)).value


@pytest.fixture
def lines(tmp_path):
    """Write lines and read them as workloads of the base definition."""

    def read(*documents, name="scale_add_h8.jsonl"):
        return load_workloads(samples.write_lines(tmp_path / name, *documents), "scale_add_h8")

    return read


def found(loaded, definition, root=None):
    return samples.messages(check_workload(loaded, definition, root))


def test_plain_line(base, lines):
    (loaded,) = lines(samples.LINE)
    assert loaded.value.uuid == "w-0001"
    assert loaded.value.axes == {"n": 4}
    assert [spec.kind for spec in loaded.value.inputs.values()] == ["random", "random"]
    assert (loaded.notes, check_workload(loaded, base)) == ((), ())


def test_lines_have_their_numbers(lines):
    second = samples.workload_line(uuid="w-0002")
    assert [loaded.line for loaded in lines(samples.LINE, "", second, '{"broken": }')] == [1, 3, 4]


def test_empty_solution_and_evaluation_are_null(tmp_path):
    path = samples.write_lines(tmp_path / "a.jsonl", samples.changed(samples.LINE, solution="", evaluation={}))
    (loaded,) = load_traces(path)
    assert (loaded.value.solution, loaded.value.evaluation) == (None, None)
    assert loaded.notes == ("'solution': '' read as null", "'evaluation': {} read as null")


def test_missing_uuid_follows_from_the_content(lines):
    first, again, other = lines(
        samples.workload_line(uuid=...), samples.workload_line(uuid=""), samples.workload_line(uuid=..., axes={"n": 5})
    )
    assert first.value.uuid == again.value.uuid == stable_uuid(samples.changed(samples.LINE["workload"], uuid=...))
    assert first.value.uuid != other.value.uuid
    assert len(first.value.uuid) == 36


def test_bare_workload(base, lines):
    bare = samples.LINE["workload"] | {"tolerance": {"max_atol": 0.01, "max_rtol": 0.02, "required_matched_ratio": 0.9}}
    (loaded,) = lines(bare)
    assert loaded.value.tolerance.required_matched_ratio == 0.9
    assert loaded.value.tolerance.max_error_cap is None
    assert check_workload(loaded, base) == ()
    (wrong,) = lines(samples.changed(bare, axes={"m": 4}))
    assert "unknown axis 'm'" in found(wrong, base)[-1]
    assert ": axes.m: " in found(wrong, base)[-1]


@pytest.mark.parametrize("bare", [False, True])
def test_of_a_line_its_text_is_kept_and_parsed_again_for_the_rules(base, lines, bare):
    """A large data set has thousands: their parsed values would take more memory than all else of them."""
    (loaded,) = lines({**samples.LINE["workload"], "odd": 1} if bare else samples.changed(samples.LINE, odd=1))
    assert loaded.lines.document.value is None
    assert loaded.claim == "scale_add_h8", "known without parsing it again"
    again = loaded.canonical()
    assert again["workload"]["axes"] == {"n": 4}
    assert (again["workload"] if bare else again)["odd"] == 1
    assert again == loaded.canonical()
    assert check_workload(loaded, base) == ()


def test_unknown_keys_of_a_workload_are_kept(lines):
    (loaded,) = lines(samples.workload_line(recipe={"seed": 3}))
    assert loaded.value.extra == {"recipe": {"seed": 3}}


def test_list_of_lines_in_a_json_file(tmp_path):
    path = samples.write(
        tmp_path / "scale_add_h8.json", [samples.LINE, samples.workload_line(uuid="b", axes={"n": "x"})]
    )
    first, second = load_workloads(path, "scale_add_h8")
    assert first.value.uuid == "w-0001"
    assert second.value is None
    assert second.faults[0].where == "[1].workload.axes.n"
    assert path.read_text().split("\n")[second.faults[0].line - 1].strip() == '"n": "x"'


def test_line_for_another_definition(lines):
    (loaded,) = lines(samples.changed(samples.LINE, definition="other"))
    assert loaded.value is None
    assert "this line is for 'other', its file for 'scale_add_h8'" in loaded.faults[0].message


def test_one_broken_line_leaves_the_others(lines):
    loaded = lines(samples.LINE, '{"definition": "scale_add_h8",}', samples.workload_line(uuid="w-0002"))
    assert [line.value is not None for line in loaded] == [True, False, True]
    assert str(loaded[1].faults[0]).split(".jsonl:")[1].startswith("2:30: not JSON: trailing comma")


def test_a_definition_among_the_lines_is_named(lines):
    assert "this is a definition, not a workload or trace line" in lines(samples.BASE)[0].faults[0].message


RULES = {
    "missing axis": ({"axes": {}}, "missing axis n: give its size"),
    "unknown axis": ({"axes": {"n": 4, "nn": 4}}, "unknown axis 'nn'; did you mean 'n'?"),
    "constant": ({"axes": {"n": 4, "h": 9}}, "axis 'h' is the constant 8, not 9"),
    "recipe": ({"recipe": 5}, "workload.recipe: expected an object {...}, got 5: how inputs of type 'random' are made"),
    "no seed": ({"recipe": {}}, "workload.recipe: missing key 'seed'"),
    "a seed in words": ({"recipe": {"seed": "x"}}, "recipe.seed: expected a whole number"),
    "a family of numbers": ({"recipe": {"seed": 1, "family": 3}}, "recipe.family: expected a string"),
    "a structure of nothing": ({"recipe": {"seed": 1, "structure": None}}, "recipe.structure: expected a string"),
    "absent null": ({"recipe": {"seed": 1, "absent": None}}, "recipe.absent: expected a list"),
    "absent number": ({"recipe": {"seed": 1, "absent": [3]}}, "recipe.absent[0]: expected a string"),
    "layout": ({"recipe": {"seed": 1, "layout": "odd"}}, "recipe.layout: "),
    "scalars null": ({"recipe": {"seed": 1, "scalars": None}}, "recipe.scalars: expected an object"),
    "a list as scalar": ({"recipe": {"seed": 1, "scalars": {"c": [1]}}}, "recipe.scalars.c: expected a number"),
    "unknown key of a recipe": ({"recipe": {"seed": 1, "sede": 1}}, "'sede'"),
    "negative": ({"axes": {"n": -1}}, "-1 is less than 0"),
    "no number": ({"axes": {"n": "4"}}, 'expected a whole number, got "4"'),
    "true": ({"axes": {"n": True}}, "expected a whole number, got true"),
    "missing input": ({"inputs": {"w": {"type": "random"}}}, "missing input x"),
    "unknown input": (
        {"inputs": {**samples.LINE["workload"]["inputs"], "ww": {"type": "random"}}},
        "unknown input 'ww'",
    ),
    "scalar for a tensor": (
        {"inputs": {"x": {"type": "scalar", "value": 1}, "w": {"type": "random"}}},
        "x is a tensor [n, h]",
    ),
    "unknown kind": (
        {"inputs": {"x": {"type": "zeros"}, "w": {"type": "random"}}},
        "'random', 'scalar', 'safetensors'",
    ),
    "no path": (
        {"inputs": {"x": {"type": "safetensors"}, "w": {"type": "random"}}},
        "missing keys 'path', 'tensor_key'",
    ),
    "no value": ({"inputs": {"x": {"type": "scalar"}, "w": {"type": "random"}}}, "missing key 'value'"),
    "custom": ({"inputs": {"x": {"type": "custom"}, "w": {"type": "random"}}}, "names no 'custom_inputs_entrypoint'"),
    "ratio": ({"tolerance": {"required_matched_ratio": 1.5}}, "1.5 is more than 1"),
    "no inputs": ({"inputs": ...}, "missing input x"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(base, lines, name):
    changes, message = RULES[name]
    (loaded,) = lines(samples.workload_line(**changes))
    text = " | ".join(found(loaded, base))
    assert message in text or (name == "unknown kind" and "'zeros' is not allowed here" in text.replace('"', "'"))


@pytest.mark.parametrize(("name", "said"), [("z", "no such output; there are y"), ("yy", "did you mean 'y'?")])
def test_a_tolerance_by_name_of_no_output_is_warned_of(base, lines, name, said):
    (loaded,) = lines(samples.workload_line(tolerance={name: {"rtol": 1}, "y": {"rtol": 1}, "max_atol": 1}))
    (fault,) = check_workload(loaded, base)
    assert (fault.kind, fault.line, fault.where) == ("warning", 1, f"workload.tolerance.{name}")
    assert said in fault.message


def test_all_faults_of_a_line_at_once(base, lines):
    (loaded,) = lines(samples.workload_line(axes={"m": -1}, inputs={"q": {"type": "random"}}))
    assert len(found(loaded, base)) == 6


def test_constants_may_be_repeated(base, lines):
    (loaded,) = lines(samples.workload_line(axes={"n": 4, "h": 8}))
    assert check_workload(loaded, base) == ()


@pytest.mark.parametrize(
    ("expression", "sizes", "message"),
    [
        ("2 * n", {"n": 4, "m": 8}, None),
        ("2 * n", {"n": 4}, None),
        ("2 * n", {"n": 4, "m": 9}, "axis 'm' comes to 8, not 9: 2 * n"),
        ("n * h", {"n": 4, "m": 9}, "axis 'm' comes to 32, not 9: n * h"),
        ("n / 2", {"n": 3, "m": 1}, "axis 'm': 'n / 2' is 1.5, not a whole number"),
        ("2 * k", {"n": 4, "k": 5, "m": 10}, None),
        ("2 * k", {"n": 4, "m": 11}, "axis 'm' comes to 10, not 11: 2 * k"),
        ("2 * k", {"n": 4, "k": 6, "m": 12}, "axis 'k' comes to 5, not 6: n + 1"),
    ],
)
def test_sizes_that_follow_may_be_given_but_not_against_their_expression(tmp_path, lines, expression, sizes, message):
    computed = {name: {"type": "expr", "expression": text} for name, text in (("k", "n + 1"), ("m", expression))}
    document = samples.changed(samples.BASE, axes={**samples.BASE["axes"], **computed})
    definition = load_definition(samples.write(tmp_path / "e.json", document)).value
    (loaded,) = lines(samples.workload_line(axes=sizes))
    told = [fault.split(": ", 2)[-1] for fault in found(loaded, definition)]
    assert told == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("constraints", "needed"),
    [
        ([], False),
        (["kept == x.count_nonzero()"], False),
        (["kept == (x > 0).sum()", "n > 0"], False),
        (["kept <= 2 * n"], True),
        (["kept == (x > 0).sum()", "kept <= 4096"], True),
    ],
)
def test_a_size_that_only_data_decide_may_be_left_out(tmp_path, lines, constraints, needed):
    """The line of a drawn case cannot have it: nothing tells the number of rows before the call."""
    outputs = {"y": {"shape": ["kept"], "dtype": "float32"}}
    own = {**samples.BASE["axes"], "kept": {"type": "var"}}
    document = samples.changed(samples.BASE, axes=own, outputs=outputs, constraints=constraints)
    definition = load_definition(samples.write(tmp_path / "k.json", document)).value
    (loaded,) = lines(samples.workload_line(axes={"n": 4}))
    told = [fault.split(": ", 2)[-1] for fault in found(loaded, definition)]
    assert told == (["missing axis kept: give its size"] if needed else [])


def test_duplicate_uuids(base, lines):
    loaded = lines(samples.LINE, samples.workload_line(axes={"n": 5}))
    (fault,) = check_workloads(loaded, base)
    assert (fault.line, fault.where) == (2, "workload.uuid")
    assert "scale_add_h8.jsonl:1 too" in fault.message


@pytest.mark.parametrize(
    ("dtype", "value", "good"),
    [
        ("int32", 3, True), ("int32", 3.0, True), ("int32", 3.5, False), ("float32", 3, True), ("bool", True, True),
        ("float32", "x", False), ("string", "NHD", True), ("string", 3, False), ("float32", None, False),
        ("unknown", "x", True), ("unknown", True, True), ("int32", True, False), ("float32", False, False),
        ("bool", 0, True), ("bool", 1, True), ("bool", 2.5, False), ("bool", 2, False), ("bool", "x", False),
        ("int8", 127, True), ("int8", -128, True), ("int8", 1000, False), ("int8", -129, False), ("uint8", -1, False),
        ("uint8", 255, True), ("uint8", 256.0, False), ("int32", 2**40, False), ("int32", 2**31 - 1, True),
        ("int64", 2**63, False), ("uint64", 2**64 - 1, True), ("int32", math.inf, False), ("int4", 8, False),
        ("float32", 1e300, False), ("float32", -1e39, False), ("float32", 3.4028235e38, True), ("float64", 1e300, True),
        ("float32", -math.inf, True), ("float16", 65504, True), ("float16", 65536, False), ("float32", 10**50, False),
        ("bfloat16", -3.4e38, False), ("float8_e4m3fn", 448, True), ("float8_e4m3fn", 500, False),
    ],
)  # fmt: skip
def test_scalars(tmp_path, lines, dtype, value, good):
    document = samples.changed(
        samples.BASE,
        inputs={**samples.BASE["inputs"], "s": {"shape": None, "dtype": dtype}},
        reference="def run(x, w, s): pass",
    )
    definition = load_definition(samples.write(tmp_path / "s.json", document)).value
    inputs = {**samples.LINE["workload"]["inputs"], "s": {"type": "scalar", "value": value}}
    (loaded,) = lines(samples.workload_line(inputs=inputs))
    assert bool(found(loaded, definition)) is not good


STEP = {
    "name": "step_h8",
    "op_type": "step",
    "axes": samples.BASE["axes"],
    "inputs": {
        "x": {"shape": ["n", "h"], "dtype": "float32"},
        "state": {"shape": ["n", "h"], "dtype": "float32", "optional": True},
    },
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}, "new_state": {"shape": ["n", "h"], "dtype": "float32"}},
    "reference": "def run(x, state):\n    return x, x if state is None else x + state\n",
}


@pytest.mark.parametrize(
    ("variant", "inputs", "faults"),
    [
        ("a", {"x": {"type": "random"}}, 0),
        ("b", {"x": {"type": "random"}, "state": {"type": "random"}}, 0),
        ("null", {"x": {"type": "random"}, "state": None}, 0),
        ("c", {"state": {"type": "random"}}, 1),
    ],
)
def test_case_03_optional_input_left_out(tmp_path, variant, inputs, faults):
    definition = load_definition(samples.write(tmp_path / "step.json", STEP)).value
    line = {"definition": "step_h8", "workload": {"uuid": "u", "axes": {"n": 2}, "inputs": inputs}}
    (loaded,) = load_workloads(samples.write_lines(tmp_path / "step_h8.jsonl", line), "step_h8")
    texts = found(loaded, definition)
    assert len(texts) == faults
    assert variant != "c" or "missing input x" in texts[0]


RAGGED = {
    "name": "ragged_sum_h8",
    "op_type": "ragged",
    "axes": {**{name: {"type": "var"} for name in ("b", "len_indptr", "total")}, "h": {"type": "const", "value": 8}},
    "inputs": {
        "x": {"shape": ["total", "h"], "dtype": "float32"},
        "indptr": {"shape": ["len_indptr"], "dtype": "int32"},
    },
    "outputs": {"y": {"shape": ["b", "h"], "dtype": "float32"}},
    "constraints": ["len_indptr == b + 1", "total == indptr[-1].item()", "segments may be empty but never overlap"],
    "reference": "def run(x, indptr):\n    return x\n",
}


def test_case_04_listed_workload_that_violates_a_constraint(tmp_path):
    definition = load_definition(samples.write(tmp_path / "ragged.json", RAGGED)).value
    inputs = {"x": {"type": "random"}, "indptr": {"type": "random"}}
    line = {
        "definition": "ragged_sum_h8",
        "workload": {"uuid": "u", "axes": {"b": 3, "len_indptr": 9, "total": 5}, "inputs": inputs},
    }
    (loaded,) = load_workloads(samples.write_lines(tmp_path / "ragged_sum_h8.jsonl", line))
    (text,) = found(loaded, definition)
    assert "constraint 'len_indptr == b + 1' does not hold for b = 3, len_indptr = 9, b + 1 = 4" in text
    line["workload"]["axes"]["len_indptr"] = 4
    (loaded,) = load_workloads(samples.write_lines(tmp_path / "ragged_sum_h8.jsonl", line))
    assert found(loaded, definition) == []


SCALED = samples.changed(
    samples.BASE,
    inputs={
        **samples.BASE["inputs"],
        "cap": {"shape": None, "dtype": "float32"},
        "most": {"shape": None, "dtype": "int32"},
        "may": {"shape": None, "dtype": "float32", "optional": True},
    },
    constraints=[
        "cap >= 0",
        "most.item() >= n",
        "may is None or may > cap",
        "(w < cap).all()",
        "cap.dtype == 'float32'",
    ],
    reference="def run(x, w, cap, most, may=None):\n    return x * w + 1\n",
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cap": 0.0, "most": 4}, None),
        ({"cap": 0.5, "most": 9, "may": 1.0}, None),
        ({"cap": 0.5, "most": 9, "may": None}, None),
        ({"cap": -1, "most": 4}, "workload.inputs.cap.value: constraint 'cap >= 0' does not hold for cap = -1"),
        (
            {"cap": 1.0, "most": 3},
            "workload.inputs.most.value: constraint 'most.item() >= n' does not hold for most = 3",
        ),
        (
            {"cap": 1.0, "most": 4, "may": 0.5},
            "workload.inputs.cap.value: constraint 'may is None or may > cap' does not",
        ),
    ],
)
def test_a_listed_number_keeps_to_the_constraints(tmp_path, lines, values, said):
    definition = load_definition(samples.write(tmp_path / "scaled.json", SCALED)).value
    scalars = {name: {"type": "scalar", "value": value} for name, value in values.items()}
    (loaded,) = lines(samples.workload_line(inputs={**samples.LINE["workload"]["inputs"], **scalars}))
    told = found(loaded, definition)
    assert len(told) == (said is not None)
    assert all(said in text for text in told), told


ROUNDED = 0.10000000149011612  # 0.1 as float32 has it
LISTED = [
    ("s <= 0.1", "float32", ROUNDED, True),
    ("s * 3 <= 0.3", "float32", ROUNDED, True),
    ("s * 3 <= 0.3", "float32", 0.1, True),
    ("not s > 0.1", "float32", ROUNDED, True),
    ("0 < s <= 0.1", "bfloat16", 0.10009765625, True),
    ("s in (0.1, 0.5)", "float32", ROUNDED, True),
    ("s == 1 / math.sqrt(128)", "float32", 128**-0.5, True),
    ("s == 1 / math.sqrt(128)", "unknown", 128**-0.5, True),
    ("~s", "bool", False, True),
    ("(~s) == True", "bool", False, True),
    ("s in (torch.float16, torch.bfloat16)", "dtype", "torch.float16", True),
    ("s <= 0.1", "float32", 0.1000001, False),
    ("s <= 0.1", "float32", 0.10009765625, False),
    ("s > 0", "float32", 0.0, False),
    ("s < 1", "float32", 1.0, False),
    ("s != 0.5", "float32", 0.5, False),
    ("s == 16777216", "int32", 16777217, False),
    ("~s", "bool", True, False),
    ("s == torch.float16", "dtype", "torch.bfloat16", False),
]


@pytest.fixture
def told_of(tmp_path, lines):
    def check(constraint, spec, value):
        inputs = {**samples.BASE["inputs"], "s": spec}
        reference = "def run(x, w, s):\n    return x * w + 1\n"
        record = samples.changed(samples.BASE, inputs=inputs, constraints=[constraint], reference=reference)
        definition = load_definition(samples.write(tmp_path / "scaled.json", record)).value
        listed = {**samples.LINE["workload"]["inputs"], "s": {"type": "scalar", "value": value}}
        (loaded,) = lines(samples.workload_line(inputs=listed))
        return found(loaded, definition)

    return check


@pytest.mark.parametrize(("constraint", "dtype", "value", "holds"), LISTED)
def test_a_listed_number_is_as_its_dtype_has_it(told_of, constraint, dtype, value, holds):
    told = told_of(constraint, {"shape": None, "dtype": dtype}, value)
    assert [f"constraint {constraint!r} does not hold" in text for text in told] == [True] * (not holds)


@pytest.mark.parametrize(("constraint", "dtype", "value"), [("s <= 0.1", "float32", 0.2), ("s - 5 > 0", "uint8", 3)])
def test_a_tensor_of_one_number_is_judged_in_a_run(told_of, constraint, dtype, value):
    assert told_of(constraint, {"shape": [], "dtype": dtype}, value) == []


def test_sizes_that_follow_are_checked_too(tmp_path):
    definition = load_definition(
        samples.write(tmp_path / "sol.json", samples.changed(samples.SOL, constraints=["dim == t"]))
    ).value
    inputs = {"x": {"type": "custom"}, "p": {"type": "custom"}}
    for size, count in ((16, 0), (15, 1)):
        path = samples.write_lines(tmp_path / "w.jsonl", {"uuid": "u", "axes": {"t": size}, "inputs": inputs})
        (loaded,) = load_workloads(path, "split_heads")
        assert len(found(loaded, definition)) == count


PASSED = {
    "status": "PASSED",
    "environment": {"hardware": "a card", "libs": {"torch": "2.9"}},
    "timestamp": "2026-01-01T00:00:00",
    "log": "",
    "correctness": {"max_relative_error": 1e-6, "max_absolute_error": "NaN", "extra": {"ratio": 1}},
    "performance": {"latency_ms": 0.5, "reference_latency_ms": 1.0, "speedup_factor": 2},
}


def test_evaluated_trace(tmp_path):
    path = samples.write_lines(tmp_path / "t.jsonl", samples.changed(samples.LINE, solution="s", evaluation=PASSED))
    (loaded,) = load_traces(path)
    evaluation = loaded.value.evaluation
    assert (evaluation.status, evaluation.performance.speedup_factor) == ("PASSED", 2.0)
    assert evaluation.correctness.max_absolute_error != evaluation.correctness.max_absolute_error
    assert evaluation.correctness.extra == {"extra": {"ratio": 1}}
    assert loaded.value.solution == "s"


def test_older_environment(tmp_path):
    old = samples.changed(PASSED, environment={"device": "a card"})
    path = samples.write_lines(tmp_path / "t.jsonl", samples.changed(samples.LINE, solution="s", evaluation=old))
    (loaded,) = load_traces(path)
    assert loaded.value.evaluation.environment.hardware == "a card"
    assert loaded.notes == ("older key 'device' read as 'hardware'",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "GOOD"}, "is not allowed here"),
        ({"performance": None}, "expected an object"),
        ({"status": "TIMEOUT"}, "expected null"),
        ({"status": "INCORRECT_NUMERICAL"}, "expected null"),
        ({"timestamp": ...}, "missing key 'timestamp'"),
    ],
)
def test_evaluations_that_do_not_fit_their_status(base, lines, changes, message):
    evaluation = samples.changed(PASSED, **changes)
    (loaded,) = lines(samples.changed(samples.LINE, solution="s", evaluation=evaluation))
    assert message in " | ".join(found(loaded, base))


def test_nan_in_old_trace_files_is_let_pass(tmp_path):
    text = json.dumps(samples.changed(samples.LINE, solution="s", evaluation=PASSED)).replace('"NaN"', "NaN")
    (loaded,) = load_traces(samples.write_lines(tmp_path / "t.jsonl", text))
    assert loaded.faults == ()
