"""A key that is all but one of the format is told of; any other unknown key is kept, and nothing is said of it."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.misspelt import misspelt
from pytest_flashinfer.data.rules import check_definition
from pytest_flashinfer.data.solution_rules import check_solution
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workload
from tests.data import samples
from tests.data.test_solution_files import CODE, CONFIG, MODULE

FORMS = (samples.BASE, samples.SIGNATURE, samples.DESCRIPTION, samples.DUMP, samples.SOL)
LOSSES = {  # optional keys, and a value that each may have
    "definition": {"constraints": ["n > 0"], "flops": "n * h", "init": CODE, "check": CODE, "description": "x"},
    "axis": {"parent": "h", "description": "rows"},
    "input": {"optional": True, "dim_order": [0, 1], "param": "x", "description": "values"},
    "spec": {"destination_passing_style": False, "dependencies": ["triton"], "binding": "torch"},
    "workload": {"tolerance": {"max_atol": 1.0}, "recipe": {"seed": 1}},
    "tolerance": {"max_error_cap": 1.0, "required_matched_ratio": 0.9, "allow_negative_inf": True},
}


def told(faults):
    """The keys in question and what they may mean, in order."""
    slips = [fault for fault in faults if "unknown key" in fault.message]
    assert all(fault.kind == "warning" for fault in slips)
    return [tuple(fault.message.split("'")[1:4:2]) for fault in slips]


def at(kind, key, value):
    """A record with one more key in an object of some kind; the kind of the record comes first."""
    if kind in ("workload", "tolerance"):
        changes = {"tolerance": {key: value}} if kind == "tolerance" else {key: value}
        return "trace", samples.workload_line(**changes)
    if kind == "spec":
        plain = samples.changed(samples.GOOD["spec"], destination_passing_style=..., dependencies=...)
        return "solution", samples.changed(samples.GOOD, spec=plain | {key: value})
    document = samples.changed(samples.BASE)
    place = {"definition": document, "axis": document["axes"]["n"], "input": document["inputs"]["x"]}[kind]
    place[key] = value
    return "definition", document


def check(root, name, document):
    if name == "trace":
        definition = load_definition(samples.write(root / "base.json", samples.BASE)).value
        (line,) = load_workloads(samples.write_lines(root / "w.jsonl", document), "scale_add_h8")
        return check_workload(line, definition)
    path = samples.write(root / "record.json", document)
    return check_definition(load_definition(path)) if name == "definition" else check_solution(load_solution(path))


@st.composite
def slips(draw):
    """An optional key with a letter left out, doubled or changing places with the next, and where it may stand."""
    kind = draw(st.sampled_from(sorted(LOSSES)))
    key = draw(st.sampled_from(sorted(LOSSES[kind])))
    number = draw(st.integers(0, len(key) - 2))
    pair = key[number : number + 2]
    wrong = draw(st.sampled_from([pair[0], pair[0] + pair, pair[::-1] if len(key) > 4 else pair[1]]))
    return kind, key, key[:number] + wrong + key[number + 2 :]


@settings(max_examples=80, deadline=None)
@given(slip=slips())
def test_a_slip_of_the_pen_is_told_and_the_key_itself_is_not(slip, tmp_path_factory):
    root = tmp_path_factory.mktemp("slip")
    kind, key, wrong = slip
    value = LOSSES[kind][key]
    assert told(check(root, *at(kind, key, value))) == []
    assert told(check(root, *at(kind, wrong, value))) == ([] if wrong == key else [(wrong, key)])


@pytest.mark.parametrize("document", FORMS)
def test_no_form_has_one(tmp_path, document):
    assert told(check_definition(load_definition(samples.write(tmp_path / "a.json", document)))) == []


@pytest.mark.parametrize("key", ["assumtions", "constrains", "Constraints"])
def test_older_forms_have_them_too(tmp_path, key):
    document = samples.changed(samples.DESCRIPTION, assumptions=...) | {key: ["h == 4"]}
    loaded = load_definition(samples.write(tmp_path / "a.json", document))
    assert loaded.value.form == 2
    assert loaded.value.extra[key] == ["h == 4"]
    assert [wrong for wrong, _ in told(check_definition(loaded))] == [key]


def test_one_line_has_the_place_and_the_key_that_was_meant(tmp_path):
    document = samples.changed(samples.BASE, constrains=["n > 0"])
    path = samples.write(tmp_path / "a.json", document)
    line = path.read_text()[: path.read_text().index("constrains")].count("\n") + 1
    (fault,) = check_definition(load_definition(path))
    assert str(fault).startswith(f"{path}:{line}: constrains: unknown key 'constrains'; did you mean 'constraints'?")


def test_a_key_that_reading_supplies_is_missing_all_the_same(tmp_path):
    """A problem of SOL-ExecBench may lack an operation type, and a solution an author."""
    document = samples.changed(samples.SOL, op_type=...) | {"op_tpye": "gemm"}
    assert told(check(tmp_path, "definition", document)) == [("op_tpye", "op_type")]
    samples.write(tmp_path / "kit/kernel.py", CODE)
    samples.write(tmp_path / "kit/config.toml", CONFIG.replace("author", "auhtor"))
    assert told(check_solution(load_solution(tmp_path / "kit"))) == [("auhtor", "author")]


def test_a_required_key_is_told_of_once(tmp_path):
    document = samples.changed(samples.BASE, inputs=..., outputs=...)
    faults = check(tmp_path, "definition", document | dict.fromkeys(("inpts", "outptus"), samples.BASE["inputs"]))
    assert told(faults) == []
    assert "missing keys 'inputs', 'outputs' (there is 'inpts', 'outptus')" in str(faults[0])


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("definition", "constants", {"eps": 1e-6}),
        ("definition", "constrains", None),
        ("definition", "checked", True),
        ("definition", "assumption", 3),
        ("axis", "values", [1, 2, 4]),
        ("input", "option", "x"),
        ("workload", "tolerances", 0.1),
        ("spec", "languages", ["cuda"]),
        ("spec", "build_steps", ["make"]),
    ],
)
def test_what_was_hardly_meant_so_is_left_alone(tmp_path, kind, key, value):
    assert told(check(tmp_path, *at(kind, key, value))) == []


def test_a_key_beside_the_one_that_it_is_near_to_is_no_slip(tmp_path):
    document = samples.changed(samples.BASE, constraints=["n > 0"], constrains=["n > 1"], descriptions="x")
    assert told(check(tmp_path, "definition", document)) == [("descriptions", "description")]
    line = samples.workload_line(tolerance={"max_rtol": 0.1, "max_tol": 0.1})
    assert told(check(tmp_path, "trace", line)) == [("max_tol", "max_atol")]
    document = samples.changed(samples.DESCRIPTION, assumption=["n > 1"])
    assert told(check(tmp_path, "definition", document)) == []


def test_a_config_toml_tells_the_line(tmp_path):
    samples.write(tmp_path / "kit/kernel.py", CODE)
    text = CONFIG.replace("passing", "pasing") + 'source = "https://example.org"\n'
    path = samples.write(tmp_path / "kit/config.toml", text)
    (fault,) = check_solution(load_solution(path.parent))
    assert (fault.line, fault.kind) == (text[: text.index("destination_pasing")].count("\n") + 1, "warning")
    assert told([fault]) == [("destination_pasing_style", "destination_passing_style")]


@pytest.mark.parametrize(
    ("line", "slip"),
    [
        ('langauge = "triton"', ("langauge", "language")),
        ("destination_pasing_style = False", ("destination_pasing_style", "destination_passing_style")),
        ('dependecies = ("numpy",)', ("dependecies", "dependencies")),
        ("languages = 3", None),
        ('names = "x"', None),
        ('_author = make("x")', None),
        ('authors = "x"  # beside an author', None),
    ],
)
def test_a_module_says_little_of_itself_and_may_hold_any_names(tmp_path, line, slip):
    text = MODULE.replace("target_hardware", f"{line}\ntarget_hardware")
    faults = check_solution(load_solution(samples.write(tmp_path / "s.py", text)))
    assert told(faults) == ([slip] if slip else [])
    assert [fault.line for fault in faults] == ([6] if slip else [])


def test_a_module_that_nearly_names_its_definition_says_where(tmp_path):
    loaded = load_solution(samples.write(tmp_path / "s.py", MODULE.replace("definition", "defintion")))
    assert [str(fault) for fault in loaded.faults] == [
        f"{tmp_path / 's.py'}:4: no module-level definition = \"<name>\" (there is 'defintion'): rename it"
    ]
    assert loaded.claim == "scale_add_h8"


def test_very_many_unknown_keys_take_no_time():
    class Nothing:
        def has(self, where):
            return False

    many = {f"descriptoin{number}": "x" for number in range(99_000)}
    begun = time.perf_counter()
    assert len(list(misspelt("definition", many, Nothing()))) <= 1000
    assert time.perf_counter() - begun < 5
