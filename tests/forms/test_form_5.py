"""Form 5: dumps of an API, with a reference bound by name, `init`, `check`, outputs in place and open constants."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .conftest import RANDOM

ROWS = {"shape": ["n", "d"], "dtype": "float32"}


def dump(name, inputs, outputs, reference, **more):
    axes = {"n": {"type": "var"}, "d": {"type": "const", "value": 4}}
    base = {"name": name, "op_type": "op", "tags": [f"fi_api:lib.{name}"], "axes": axes}
    reference = None if reference is None else dedent(reference)
    return {**base, "inputs": inputs, "outputs": outputs, "reference": reference, **more}


def outcomes(ran, name, solution):
    """Return the outcomes of a solution by check."""
    found = {case.name.partition("[")[0]: case for case in ran.of(f"[{name}_{solution}")}
    return {check: case.outcome for check, case in found.items()}


# An output in place, parameters in another order, an axis as a parameter, `**kwargs`, torch without an import, and
# `init`, which says what the inputs are: sorted rows, which random ones are not.
TURN = dump(
    "turn",
    {"x": ROWS, "W": {"shape": ["d"], "dtype": "float32"}, "layout": {"shape": None, "dtype": "string"}},
    {"x": ROWS},
    """
    def _scaled(x: Tensor, w) -> Tensor:
        return torch.exp(-x.abs()) * w

    def _turn_reference(w, x, d, **kwargs):
        assert d == 4 and kwargs["layout"] == "NHD"
        assert bool((x.diff(dim=-1) >= 0).all()), "rows are sorted"
        return _scaled(x, w)
    """,
    init=dedent(
        """
        def _turn_init(*, n, d, device="cuda", seed=0):
            generator = torch.Generator(device).manual_seed(seed)
            x = torch.randn(n, d, generator=generator, device=device).sort(dim=-1).values
            return {"plan": {"layout": "NHD"}, "run": {"x": x, "w": torch.rand(d, generator=generator)}}
        """
    ),
    constraints=["layout in ('NHD', 'HND')"],
)
TURNS = {
    "in_place": (True, "import torch\ndef run(x, w, layout):\n    x.copy_(torch.exp(-x.abs()) * w)\n"),
    "returns": (False, "import torch\ndef run(x, w, layout):\n    return torch.exp(-x.abs()) * w\n"),
    "silent": (False, "import torch\ndef run(x, w, layout):\n    x.copy_(torch.exp(-x.abs()) * w)\n    return {}\n"),
    "idle": (True, "def run(x, w, layout):\n    pass\n"),
    "wrong": (False, "import torch\ndef run(x, w, layout):\n    return torch.exp(-x) * w\n"),
}
# A check that is looser than the computed bound, through a library that is not here.
LOOSE = dump(
    "loose",
    {"x": ROWS},
    {"y": ROWS},
    "def _loose_reference(x):\n    return x * 3\n",
    check=dedent(
        """
        def _helper(reference_outputs, actual_outputs, **settings):
            from flashinfer.trace import default_check
            return default_check(reference_outputs, actual_outputs, **settings)

        def _loose_check(reference_outputs, actual_outputs, *, rtol=0.05, atol=0.05, max_mismatch_pct=0.0,
                         min_cos_sim=None):
            return _helper(reference_outputs, actual_outputs, rtol=rtol, atol=atol)
        """
    ),
)
LOOSES = {
    "near": "def run(x):\n    return x * 3.01\n",
    "far": "def run(x):\n    return x * 4\n",
    "nan": "def run(x):\n    y = x * 3\n    y[0, 0] = float('nan')\n    return y\n",
    "shape": "def run(x):\n    return (x * 3)[:, :1]\n",
}
# A check that passes everything, and one that refuses everything.
BLIND = dump(
    "blind", {"x": ROWS}, {"y": ROWS}, "def _blind_reference(x):\n    return x * 3\n",
    check="def c(reference_outputs, actual_outputs, *, rtol, atol, max_mismatch_pct, min_cos_sim):\n    return True\n",
)  # fmt: skip
BLINDS = {
    "nan": "def run(x):\n    return x * float('nan')\n",
    "shape": "def run(x):\n    return (x * 3)[:1]\n",
    "zeros": "def run(x):\n    return x * 0\n",
}
STERN = dump(
    "stern", {"x": ROWS}, {"y": ROWS}, "def _stern_reference(x):\n    return x * 3\n",
    check="def c(reference_outputs, actual_outputs, **settings):\n    return bool((actual_outputs == -1).all())\n",
)  # fmt: skip
# Dtypes that the canonical form lacks, a constant without a value, an output of unknown dtype.
TYPES = dump(
    "types",
    {
        "a": {"shape": ["n", "d"], "dtype": "uint8"},
        "b": {"shape": ["n"], "dtype": "float64"},
        "c": {"shape": ["n", "d"], "dtype": "uint32"},
        "u": {"shape": ["n", "d"], "dtype": "unknown"},
        "mode": {"shape": None, "dtype": "string", "optional": True},
    },
    {"y": {"shape": ["n", "d"], "dtype": "float64"}, "z": {"shape": ["n", "d"], "dtype": "uint32"},
     "v": {"shape": ["n", "d"], "dtype": "unknown"}, "k": {"shape": ["n"], "dtype": "uint8"}},
    """
    def _types_reference(a, b, c, u, mode=None):
        return a.double() * b[:, None], c.clone(), (u * 2).half(), a[:, 0].clone()
    """,
    axes={"n": {"type": "var"}, "d": {"type": "const"}},
)  # fmt: skip
TYPED = """
import torch
def run(a, b, c, u, mode):
    return a.to(torch.float64) * b[:, None], c.clone(), (u * 2).to(torch.float16), a[:, 0].clone()
"""
NONE = dump("none", {"x": ROWS}, {"y": ROWS}, None)
LACKS = dump("lacks", {"x": ROWS}, {"y": ROWS}, "def _lacks_reference(x):\n    return _elsewhere(x)\n")
ABSENT = dump(
    "absent", {"x": ROWS}, {"y": ROWS},
    "def _absent_reference(x):\n    import not_installed_here\n    return not_installed_here.f(x)\n",
)  # fmt: skip
OPEN = dump(
    "open", {"x": ROWS}, {"y": ROWS}, "def _open_reference(x):\n    return x + 1\n",
    axes={"n": {"type": "var"}, "d": {"type": "const"}},
)  # fmt: skip
INIT_ABSENT = dump(
    "init_absent", {"x": ROWS}, {"y": ROWS}, "def _init_reference(x):\n    return x + 1\n",
    init="def _i(*, n, device, seed):\n    import not_installed_here\n",
)  # fmt: skip
INIT_OTHER = dump(
    "init_other", {"x": ROWS}, {"y": ROWS}, "def _init_reference(x):\n    return x + 1\n",
    init="def _i(*, n, device, seed):\n    return {'plan': {'rows': n}, 'run': {'workspace': torch.ones(n)}}\n",
)  # fmt: skip
ADD = "def run(x):\n    return x + 1\n"


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("form_5")
    for document in (TURN, LOOSE, BLIND, STERN, TYPES, NONE, LACKS, ABSENT, OPEN, INIT_ABSENT, INIT_OTHER):
        forms.define(document)
        sizes = {"n": 3, "d": 6} if document is TYPES else {"n": 3}
        inputs = {name: RANDOM for name in document["inputs"] if name != "mode"}
        if document is TURN:
            inputs["layout"] = {"type": "scalar", "value": "NHD"}
        forms.lines(document["name"], {"uuid": f"w-{document['name']}", "axes": sizes, "inputs": inputs})
    for name, (destination, source) in TURNS.items():
        forms.solve("turn", f"turn_{name}", source, destination=destination)
    for of, sources in (("loose", LOOSES), ("blind", BLINDS)):
        for name, source in sources.items():
            forms.solve(of, f"{of}_{name}", source)
    forms.solve("stern", "stern_right", "def run(x):\n    return x * 3\n")
    forms.solve("types", "types_right", TYPED)
    forms.solve("types", "types_wrong", TYPED.replace("c.clone()", "c.clone().fill_(7)"))
    for name in ("none", "lacks", "absent", "open", "init_absent", "init_other"):
        forms.solve(name, f"{name}_add", ADD)
    return forms.run("-rA", "--fib-examples=8", "--benchmark-skip")


def test_outputs_in_place_both_ways(ran):
    for name in ("in_place", "returns", "silent"):
        assert outcomes(ran, "turn", name) == {"test_correct": "passed", "test_sizes": "passed"} | SKIPPED, name
    assert outcomes(ran, "turn", "idle")["test_correct"] == "failure"
    assert outcomes(ran, "turn", "wrong")["test_correct"] == "failure"
    assert ran["test_reference[n3-w_turn"].outcome == "passed"


SKIPPED = {"test_speed": "skipped"}  # by --benchmark-skip


def test_the_check_of_the_definition_decides_about_values(ran):
    assert outcomes(ran, "loose", "near") == {"test_correct": "passed", "test_sizes": "passed"} | SKIPPED
    for name in ("far", "nan", "shape"):
        assert outcomes(ran, "loose", name)["test_correct"] == "failure", name
    assert "definition's own check" in ran["test_correct[loose_far"].text
    assert outcomes(ran, "stern", "right")["test_correct"] == "failure"


def test_no_check_passes_another_shape_nan_or_zeros(ran):
    for name in BLINDS:
        wanted = "skipped" if name == "zeros" else "failure"
        assert outcomes(ran, "blind", name)["test_correct"] == wanted, name
    said = "the definition's own check proves nothing: zeros would pass"
    assert said in ran["test_correct[blind_zeros"].message
    assert [case.outcome for case in ran.of("test_reference") if said in case.message] == ["failure"]


def test_dtypes_beyond_the_canonical_ones_and_a_constant_that_a_workload_gives(ran):
    assert ran["test_reference[n3-w_types"].outcome == "passed", ran["test_reference[n3-w_types"].text
    assert outcomes(ran, "types", "right") == {"test_correct": "passed", "test_sizes": "passed"} | SKIPPED
    assert outcomes(ran, "types", "wrong")["test_correct"] == "failure"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "no reference"),
        ("lacks", "_elsewhere"),
        ("absent", "not_installed_here"),
        ("open", "constant without a value"),
    ],
)
def test_what_cannot_be_known_is_skipped_with_the_reason(ran, name, reason):
    cases = [case for case in ran.of(f"[{name}_add") if not case.name.startswith("test_speed")]
    cases.append(ran[f"test_reference[n3-w_{name}"[:24]])
    assert [case.outcome for case in cases] == ["skipped"] * 3
    assert all(reason in case.message + case.text for case in cases)


def test_an_init_whose_module_is_not_installed_leaves_the_inputs_to_the_contract(ran):
    assert outcomes(ran, "init_absent", "add") == {"test_correct": "passed", "test_sizes": "passed"} | SKIPPED
    assert "inputs follow from the contract alone" in ran.output


def test_an_init_that_makes_no_input_is_named(ran):
    assert outcomes(ran, "init_other", "add") == {"test_correct": "passed", "test_sizes": "passed"} | SKIPPED
    assert "contract alone, for `init` makes none of x; it makes rows, workspace" in ran.output
