"""Tolerances from every place: where integers may be off, and that none is without an effect and says nothing."""

from __future__ import annotations

import json

import pytest

from pytest_flashinfer.judge.tolerance import Tolerance, ToleranceError
from pytest_flashinfer.settings.tolerances import checked

QUANT = """import torch

def run(x, w):
    scale = x.abs().amax(-1) / 127
    q = (x / scale[:, None]).round().to(torch.int8)
    return {q}, scale, x > 0
"""
OUTPUTS = {
    "q": {"shape": ["n", "h"], "dtype": "int8"},
    "scale": {"shape": ["n"], "dtype": "float32"},
    "mask": {"shape": ["n", "h"], "dtype": "bool"},
}
FIXTURE = (
    "import pytest\nfrom pytest_flashinfer.judge.tolerance import Tolerance\n\n"
    "@pytest.fixture\ndef tolerance():\n    return Tolerance(outputs={outputs})\n"
)
NAME = "quant_h8"


@pytest.fixture
def quant(repository):
    """A quantizer beside the usual definition, and a solution that is off by one at most."""
    repository.define(name=NAME, op_type="quantize", reference=QUANT.format(q="q"), outputs=OUTPUTS)
    repository.sizes(4, name=NAME, folder="quantize")
    repository.solve("near", QUANT.format(q="q - q.sign()"), of=NAME)
    return repository


def run(quant, *options):
    return quant.run("-k", f"test_correct and {NAME}", *options)


def warned(done):
    marks = ("--fib-tolerance: ", "ini key fib_tolerance: ")
    found = [line for line in done.output.splitlines() if "command line:0: RunWarning: " in line]
    lines = [line for line in found if any(m in line for m in marks)]
    return [line[min(line.index(m) for m in marks if m in line) :] for line in lines]


@pytest.mark.parametrize(
    "options",
    [
        ("--fib-tolerance=q:atol=1",),
        ("--fib-tolerance=q:atol=1 q:comparison=values",),
        ("--fib-tolerance=quantize: q:atol=1",),
        ("--fib-tolerance=quantize:q:atol=1",),
        ("--fib-tolerance=quant_*:q:atol=1",),
        ("-o", "fib_tolerance=q:atol=1"),
        ("-o", "fib_tolerance=quantize:q:atol=1"),
        ("-o", "fib_tolerance=quant_h8: q:rtol=0.01 q:atol=1"),
    ],
)
def test_integers_are_off_by_what_lines_say(quant, options):
    done = run(quant, *options)
    assert done["test_correct[near"].outcome == "passed", done.output
    assert warned(done) == []


def test_integers_are_off_by_what_a_fixture_says(quant):
    quant.write("definitions/quantize/conftest.py", FIXTURE.format(outputs='{"q": Tolerance(atol=1)}'))
    assert run(quant)["test_correct[near"].outcome == "passed"
    done = run(quant, "--fib-tolerance=q:atol=0")
    assert done["test_correct[near"].outcome == "failure", "the command line wins"
    quant.write("definitions/quantize/conftest.py", FIXTURE.format(outputs='{"q": Tolerance(atol=300)}'))
    text = run(quant)["test_correct[near"].text
    assert text.startswith("INVALID_REFERENCE: the tolerance of q proves nothing: with rtol 0, atol 300 zeros would")


@pytest.mark.parametrize("own", [{"atol": 1}, {"max_atol": 1}])
def test_integers_are_off_by_what_a_workload_says(quant, own):
    random = {"type": "random"}
    line = {"uuid": "w-1", "axes": {"n": 4}, "inputs": {"x": random, "w": random}, "tolerance": {"q": own}}
    quant.lines(line, name=NAME, folder="quantize")
    assert run(quant)["test_correct[near"].outcome == "passed"
    line["tolerance"] = {"qq": own, "max_atol": 1.0}
    quant.lines(line, name=NAME, folder="quantize")
    done = run(quant)
    assert done["test_correct[near"].outcome == "failure"
    place = quant.root / f"workloads/quantize/{NAME}.jsonl"
    assert f"{place}:1: workload.tolerance: quant_h8 has no output 'qq'; did you mean 'q'?" in done.output


@pytest.mark.parametrize("words", ["", "atol=1 rtol=1", "required_matched_ratio=0.5", "mask:required_matched_ratio=1"])
def test_without_a_name_integers_are_exact(quant, words):
    case = run(quant, *([f"--fib-tolerance={words}"] if words else []))["test_correct[near"]
    assert case.outcome == "failure"
    assert "largest error 1 absolute" in case.text
    assert ("limits for all outputs leave integers exact, q:atol=1 does not" in case.text) is words.startswith("atol")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("qq:rtol=1e-3", "no output, no definition and no op_type of this run is 'qq'"),
        ("skale:rtol=1e-3", "... is 'skale'; did you mean 'scale'?"),
        ("quant_h9:rtol=1 atol=2", "... is 'quant_h9'; did you mean 'quant_h8'?"),
        ("quantise*:rtol=1", "... is 'quantise*'; did you mean 'quantize'?"),
        ("quant_h8: skale:rtol=1", "skale:rtol has no effect: quant_h8 has no output 'skale'; did you mean 'scale'?"),
        ("quantize:y:rtol=1", "y:rtol has no effect: quant_h8 has no output 'y'"),
        ("rtol=1 b:atol=1 b:scale=2", "b:atol, b:scale has no effect: scale_add_h8 and 1 more have no output 'b'"),
        ("q:scale=2", "q:scale has no effect: int8 is compared as integers, for which rtol, atol, "),
        ("q:comparison=topk q:atol=1", "q:atol has no effect: comparison=topk judges ids"),
        ("q:comparison=exact q:atol=1", "q:atol has no effect: comparison=exact asks for equal bits"),
        ("mask:atol=1", "mask:atol has no effect: bool is compared exactly"),
        ("scale:comparison=topk", "scale:comparison has no effect: float32 is not compared as ids"),
        ("q:comparison=values", "q:comparison has no effect: int8 is compared as integers, for which rtol, atol, "),
    ],
)
@pytest.mark.parametrize("place", ["line", "ini"])
def test_what_has_no_effect_is_said_once(quant, place, line, said):
    given = (f"--fib-tolerance={line}",) * 2 if place == "line" else ("-o", f"fib_tolerance={line}")
    (warning,) = warned(quant.run("-k", "test_schema", *given))
    where = "--fib-tolerance" if place == "line" else "ini key fib_tolerance"
    start = "no output, no definition and no op_type of this run is"
    assert warning.startswith(f"{where}: {said.replace('... is', start)}")


@pytest.mark.parametrize(
    "line",
    ["scale:rtol=1 y:rtol=1", "quant_h8:rtol=1", "quantize:rtol=1 q:atol=1", "quant*: scale:rtol=1", "rtol=1 scale=2"],
)
@pytest.mark.parametrize("option", ["--fib-tolerance={}", "-ofib_tolerance={}"])
def test_what_has_an_effect_is_not(quant, option, line):
    assert warned(quant.run("-k", "test_schema", option.format(line))) == []


def test_a_line_of_the_ini_file_may_be_for_definitions_of_other_runs(quant):
    done = quant.run("-k", "test_schema", "-o", "fib_tolerance=gemm*: rtol=1 lse:atol=1")
    assert warned(done) == []


def test_limits_for_all_outputs_where_none_is_a_number_are_said_to_be_idle(repository):
    source = "import torch\n\ndef run(x, w):\n    return x.argmax(-1)\n"
    ids = {"id": {"shape": ["n"], "dtype": "int64"}}
    repository.define(name="best_h8", op_type="best", reference=source, outputs=ids)
    words = "rtol for all outputs has no effect: id is int64: say id:rtol=..."
    assert warned(repository.run("-k", "test_schema", "--fib-tolerance=best*:rtol=1")) == [f"--fib-tolerance: {words}"]
    assert warned(repository.run("-k", "test_schema", "-o", "fib_tolerance=rtol=1")) == []


def test_a_name_without_a_blank_is_the_whole_lines(quant):
    """What follows it is not for other definitions."""
    quant.solve("off", "def run(x, w):\n    return x * w + 1.001\n")
    for line in ("quant_h8:scale=3 atol=1e-2", "quant_h8: scale=3 atol=1e-2"):
        assert quant.run("-k", "test_correct", f"--fib-tolerance={line}")["test_correct[off"].outcome == "failure"
    for line in ("scale_add*:atol=1e-2", "elementwise:scale=3 atol=1e-2", "y:atol=1e-2", "scale:scale=3 atol=1e-2"):
        assert quant.run("-k", "test_correct", f"--fib-tolerance={line}")["test_correct[off"].outcome == "passed"


def test_a_name_of_both_kinds_is_taken_for_the_output_and_said_to_be_ambiguous(quant):
    quant.define(name="scale", op_type="other")
    quant.sizes(4, name="scale", folder="other")
    quant.solve("off", "def run(x, w):\n    return x * w + 1.001\n", of="scale")
    done = quant.run("-k", "test_correct", "--fib-tolerance=scale:atol=1e-2")
    assert done["test_correct[off"].outcome == "failure"
    (line,) = warned(done)
    assert line.startswith("--fib-tolerance: 'scale' is taken as the output of quant_h8; scale is called so as well")
    done = quant.run("-k", "test_correct", "--fib-tolerance=scale: atol=1e-2")
    assert done["test_correct[off"].outcome == "passed"
    assert warned(done) == []


def test_a_fixture_that_names_no_output_is_an_error_that_names_those_there_are(quant):
    quant.write("definitions/quantize/conftest.py", FIXTURE.format(outputs='{"skale": Tolerance(atol=1)}'))
    case = run(quant)["test_correct[near"]
    assert case.outcome == "error"
    assert case.properties["status"] == "INVALID_REFERENCE"
    place = "INVALID_REFERENCE: definitions/quantize/conftest.py:4: fixture tolerance"
    assert f"{place}: quant_h8 has no output 'skale'; did you mean 'scale'?; there are q, scale, mask" in case.text
    quant.write("definitions/quantize/conftest.py", FIXTURE.format(outputs='{"mask": Tolerance(atol=1)}'))
    text = run(quant)["test_correct[near"].text
    assert "fixture tolerance: mask:atol has no effect: bool is compared exactly" in text


def test_a_fixture_that_gives_no_tolerance_is_an_error_of_a_line(quant):
    text = FIXTURE.format(outputs="{}")
    quant.write("definitions/quantize/conftest.py", text.replace("Tolerance(outputs={})", '{"atol": 1e-3}'))
    quant.write("definitions/elementwise/conftest.py", text.replace("outputs={}", "abs_tol=1"))
    done = quant.run("-k", "test_correct", "--fib-results=results.jsonl")
    assert set(done.outcomes().values()) == {"error"}
    for line in (quant.root / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        assert (result["status"], result["compiled"]) == ("INVALID_REFERENCE", False)
        assert "conftest.py:" in result["reason"]
    dict_given, misspelt = (done[f"test_correct[{name}"].text for name in ("near", "good"))
    place = "definitions/quantize/conftest.py:4"
    said = f"{place}: fixture tolerance is {{'atol': 0.001}}, not a Tolerance(...): see docs/extending.md"
    assert dict_given.startswith(f"INVALID_REFERENCE: {said}")
    said = "definitions/elementwise/conftest.py:6: fixture tolerance: TypeError: Tolerance.__init__() got an unexpected"
    assert misspelt.startswith(f"INVALID_REFERENCE: {said}")
    for text in (dict_given, misspelt):
        assert ".py" not in text.replace("conftest.py", "")


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (None, "here is None, not a Tolerance(...): see docs/extending.md"),
        (1e-3, "here is 0.001, not a Tolerance(...): see docs/extending.md"),
        (Tolerance, "here is <class 'pytest_flashinfer.judge.toleranc, not a Tolerance(...): see docs/extending.md"),
        (Tolerance(outputs=1), "here: outputs is 1, not Tolerance(...) by name"),
        (Tolerance(outputs={"q": {"atol": 1}}), "here: q is {'atol': 1}, not a Tolerance(...): see docs/extending.md"),
        (Tolerance(atol="much"), "here: atol: atol needs a number, not 'much'"),
        (Tolerance(outputs={"q": Tolerance(rtol=-1)}), "here: q: rtol: rtol is zero or positive, and finite"),
        (Tolerance(comparison="top"), "here: comparison: comparison is one of auto, exact, values, topk, sampling"),
    ],
)
def test_what_a_fixture_gives_is_read_as_other_tolerances_are(own, said):
    with pytest.raises(ToleranceError) as raised:
        checked(own, "here")
    assert str(raised.value) == said


@pytest.mark.parametrize(
    "own",
    [
        Tolerance(),
        Tolerance(atol=1e-3, equal_nan=True),
        Tolerance(scale=2, outputs={"scale": Tolerance(operands="exact")}),
    ],
)
def test_what_is_allowed_stays_as_it_is(own):
    assert checked(own, "here") == own


def test_a_fixture_may_name_outputs_of_other_definitions_of_the_run(quant):
    outputs = '{"q": Tolerance(atol=1), "y": Tolerance(atol=1e-2)}'
    quant.write("definitions/conftest.py", FIXTURE.format(outputs=outputs))
    done = quant.run("-k", "test_correct")
    assert set(done.outcomes().values()) == {"passed"}


@pytest.mark.parametrize(("line", "refused"), [("y:rtol=1", True), ("y:rtol=1e-2", False), ("y:atol=1e9", True)])
def test_a_tolerance_by_which_zeros_pass_at_all_drawn_sizes_is_refused(repository, line, refused):
    """A definition without workloads has no other check that runs a solution."""
    repository.solve("zeros", "def run(x, w):\n    return x * 0\n")
    done = repository.run("-k", "test_sizes", f"--fib-tolerance={line}")
    good, zeros = done["test_sizes[good"], done["test_sizes[zeros"]
    assert zeros.outcome == "failure"
    assert good.outcome == ("failure" if refused else "passed"), done.output
    assert ("zeros would pass" in good.text) is refused
    assert ("zeros would pass" in zeros.text) is refused


PATTERN = """import torch

def run(x, w):
    return 100 * (1 + torch.arange(x.numel(), dtype=torch.float32).view(x.shape)) + x * w
"""


@pytest.mark.parametrize(("line", "refused"), [("rtol=0.2", True), ("rtol=1e-6", False), ("", False)])
def test_a_tolerance_by_which_the_previous_answer_would_pass_is_refused(repository, line, refused):
    """What is the same in every answer hides what is not."""
    repository.define(name="pattern_h8", op_type="pattern", reference=PATTERN)
    repository.sizes(4, name="pattern_h8", folder="pattern")
    for name in ("one", "two"):
        repository.solve(name, PATTERN, of="pattern_h8")
    done = repository.run("-k", "test_correct and pattern_h8", *([f"--fib-tolerance={line}"] if line else ()))
    for name in ("one", "two"):
        found = done[f"test_correct[{name}"]
        assert found.outcome == ("failure" if refused else "passed"), done.output
        assert ("rtol 0.2, atol 0 the previous answer would pass" in found.text) is refused


HELD = """import torch

def run(x, w):
    inside = torch.sigmoid(x.float() * w.float())
    return inside @ torch.arange(64.0).sin().view(8, 8)
"""


@pytest.fixture
def products(repository):
    """A product of what is computed inside from 16-bit inputs, and a solution that holds it in 16 bits."""
    inputs = {name: {"shape": shape, "dtype": "bfloat16"} for name, shape in (("x", ["n", "h"]), ("w", ["h"]))}
    repository.define(name="inside_h8", op_type="inside", reference=HELD, inputs=inputs)
    repository.sizes(64, name="inside_h8", folder="inside")
    repository.solve("held", HELD.replace("inside @", "inside.bfloat16().float() @"), of="inside_h8")
    repository.solve("exact", HELD, of="inside_h8")
    return repository


def test_operands_held_in_16_bits_inside_are_no_excuse_where_that_is_said(products):
    done = products.run("-k", "inside_h8 and (test_correct or test_sizes)")
    assert set(done.outcomes().values()) == {"passed"}
    done = products.run("-k", "inside_h8 and (test_correct or test_sizes)", "--fib-tolerance=operands=exact")
    assert {name: case.outcome for name in ("held", "exact") for case in done.of(f"[{name}")} == {
        "held": "failure",
        "exact": "passed",
    }
    assert all(case.outcome == "failure" for case in done.of("[held")), "listed and drawn"


def test_that_is_not_said_of_one_output(products):
    (warning,) = warned(products.run("-k", "test_schema", "--fib-tolerance=y:operands=exact"))
    assert warning == (
        "--fib-tolerance: y:operands has no effect: what a kernel may hold inside is said of all outputs: operands=... "
        "without a name"
    )
