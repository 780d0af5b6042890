import pytest

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.dialects.entry import strip_wrapper, wrapper
from pytest_flashinfer.data.rules import check_definition
from tests.data import samples


def load(tmp_path, document, name="sample.json"):
    return load_definition(samples.write(tmp_path / name, document))


def test_canonical_form_is_read_as_it_is(tmp_path):
    loaded = load(tmp_path, samples.BASE)
    definition = loaded.value
    assert (loaded.faults, loaded.notes, loaded.warnings) == ((), (), ())
    assert (definition.name, definition.op_type, definition.entry, definition.form) == (
        "scale_add_h8",
        "elementwise",
        "run",
        3,
    )
    assert (definition.const_axes, definition.var_axes) == ({"h": 8}, ("n",))
    assert definition.inputs["x"].shape == ("n", "h")
    assert definition.outputs["y"].dtype == "float32"


def test_unknown_keys_are_kept(tmp_path):
    document = samples.changed(
        samples.BASE, licence="MIT", axes={"n": {"type": "var", "unit": "rows"}, "h": samples.BASE["axes"]["h"]}
    )
    definition = load(tmp_path, document).value
    assert definition.extra == {"licence": "MIT"}
    assert definition.axes["n"].extra == {"unit": "rows"}


def test_kernel_signature(tmp_path):
    loaded = load(tmp_path, samples.SIGNATURE, "gemm_small.json")
    definition = loaded.value
    assert loaded.faults == ()
    assert (definition.name, definition.op_type, definition.entry, definition.form) == (
        "gemm_small",
        "gemm",
        "forward",
        1,
    )
    assert definition.const_axes == {"n": 64, "g": 4}
    assert [tensor.dtype for tensor in definition.inputs.values()] == ["bfloat16", "int4", "float16"]
    assert definition.inputs["a"].dim_order == (1, 0)
    assert definition.outputs["d"].dtype == "float32"
    assert {"key 'op' read as 'op_type'", "axis 'g': value '64 / 16' read as 4"} <= set(loaded.notes)
    assert check_definition(loaded) == ()


def test_kernel_description(tmp_path):
    loaded = load(tmp_path, samples.DESCRIPTION)
    definition = loaded.value
    assert loaded.faults == ()
    assert (definition.name, definition.op_type, definition.form) == ("shifted", "unspecified", 2)
    assert definition.axes["q"].parent == "b"
    assert definition.constraints == ("h == 4",)
    assert definition.inputs["x"].dtype == "float16"
    assert definition.inputs["eps"].shape == ()  # a 0-d tensor or a Python scalar: the workload says which
    assert definition.outputs["peak"].shape is None
    assert definition.outputs["y"].dtype == "float8_e4m3fn"
    assert check_definition(loaded) == ()


def test_reference_that_writes_into_its_outputs_is_seen_by_its_signature(tmp_path):
    code = "def run(x, eps, y, peak):\n    y.copy_(x + eps)\n    peak.fill_(1)\n"
    definition = load(tmp_path, samples.changed(samples.DESCRIPTION, reference_code=code)).value
    assert definition.reference_style == "destination"
    assert load(tmp_path, samples.DESCRIPTION).value.reference_style == "return"


@pytest.mark.parametrize(
    "code",
    ["def run(x, w, flag=None):\n    return x\n", "def run(x, w, y):\n    return x\n", "def run(*args):\n    pass\n"],
)
def test_value_returning_references_are_not_taken_for_destination_style(tmp_path, code):
    assert load(tmp_path, samples.changed(samples.BASE, reference=code)).value.reference_style == "return"


def test_dump_of_the_flashinfer_api(tmp_path):
    loaded = load(tmp_path, samples.DUMP)
    definition = loaded.value
    assert loaded.faults == ()
    assert (definition.entry, definition.form) == ("_rope_reference", 5)
    assert definition.outputs["q"].param == "q"
    assert definition.axes["d"].value is None
    assert definition.inputs["mask"].optional
    assert definition.init.startswith("def _rope_init")
    assert definition.check.startswith("def check")
    assert definition.extra == {"definition": "rope_in_place"}
    assert any("constant without a value" in warning.message for warning in loaded.warnings)
    assert samples.messages(check_definition(loaded)) == []


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("def a_reference(q): pass\ndef b_reference(q): pass\ndef helper(): pass\n", "b_reference"),
        ("def run(q): pass\ndef helper(): pass\n", "run"),
        ("def first(q): pass\ndef last(q): pass\n", "last"),
        ("def broken(:\n", "run"),
    ],
)
def test_entry_of_a_dump(tmp_path, code, entry):
    assert load(tmp_path, samples.changed(samples.DUMP, reference=code)).value.entry == entry


def test_dump_without_a_reference_is_a_warning(tmp_path):
    loaded = load(tmp_path, samples.changed(samples.DUMP, reference=...))
    assert loaded.value.reference is None
    assert any("no reference" in warning.message for warning in loaded.warnings)
    assert samples.messages(check_definition(loaded)) == []


def test_canonical_form_without_a_reference_is_a_fault(tmp_path):
    loaded = load(tmp_path, samples.changed(samples.BASE, reference=...))
    assert "missing key 'reference'" in loaded.faults[0].message


def test_sol_execbench(tmp_path):
    loaded = load(tmp_path, samples.SOL)
    definition = loaded.value
    assert loaded.faults == ()
    assert (definition.op_type, definition.custom_inputs, definition.form) == ("unspecified", "make", 6)
    assert definition.axes["dim"].expression == "hidden // heads"
    assert samples.messages(check_definition(loaded)) == []


def test_sol_problem_is_known_by_its_file_name(tmp_path):
    document = samples.changed(samples.BASE, op_type=...)
    assert load(tmp_path, document, "definition.json").value.form == 6
    assert load(tmp_path, document, "other.json").value is None


def test_optional_inputs_of_the_data_set(tmp_path):
    inputs = samples.BASE["inputs"] | {"bias": {"shape": ["h"], "dtype": "float32", "optional": True}}
    code = "def run(x, w, bias=None):\n    return x * w\n"
    loaded = load(tmp_path, samples.changed(samples.BASE, inputs=inputs, reference=code))
    assert loaded.value.form == 4
    assert loaded.value.inputs["bias"].optional
    assert not loaded.value.inputs["x"].optional
    assert check_definition(loaded) == ()


@pytest.mark.parametrize(
    ("value", "size"), [(8.0, 8), ("8", 8), ("4096 / 32", 128), ("2 ** 3 + 1", 9), ("(3 + 5) // 2", 4)]
)
def test_sizes_may_be_arithmetic(tmp_path, value, size):
    loaded = load(
        tmp_path, samples.changed(samples.BASE, axes={"n": {"type": "var"}, "h": {"type": "const", "value": value}})
    )
    assert loaded.value.axes["h"].value == size
    assert loaded.notes


@pytest.mark.parametrize("value", ["4097 / 32", "n", "import os", "9 ** 9 ** 9", True, 8.5, [8], "x" * 5000])
def test_sizes_that_are_no_whole_number_are_faults(tmp_path, value):
    loaded = load(
        tmp_path, samples.changed(samples.BASE, axes={"n": {"type": "var"}, "h": {"type": "const", "value": value}})
    )
    assert loaded.value is None
    assert [fault.where for fault in loaded.faults] == ["axes.h.value"]


@pytest.mark.parametrize(
    ("dtype", "read"),
    [
        ("fp32", "float32"),
        ("half", "float16"),
        ("torch.bfloat16", "bfloat16"),
        ("fp8_e5m2", "float8_e5m2"),
        ("fp4_e2m1", "float4_e2m1"),
    ],
)
def test_other_names_of_dtypes(tmp_path, dtype, read):
    inputs = {"x": {"shape": ["n", "h"], "dtype": dtype}, "w": samples.BASE["inputs"]["w"]}
    loaded = load(tmp_path, samples.changed(samples.BASE, inputs=inputs))
    assert loaded.value.inputs["x"].dtype == read
    assert loaded.notes == (f"'x': dtype {dtype!r} read as {read!r}",)


def test_numbers_in_shapes_are_kept_as_digits(tmp_path):
    loaded = load(
        tmp_path,
        samples.changed(
            samples.BASE,
            inputs={"x": {"shape": ["n", 8], "dtype": "float32"}, "w": {"shape": ["8"], "dtype": "float32"}},
        ),
    )
    assert (loaded.value.inputs["x"].shape, loaded.value.inputs["w"].shape) == (("n", "8"), ("8",))
    assert check_definition(loaded) == ()


def test_places_are_named_by_the_keys_of_the_file(tmp_path):
    inputs = samples.changed(samples.SIGNATURE["input"], a={"shape": ["m", "zz"], "dtype": "fp16"})
    loaded = load(tmp_path, samples.changed(samples.SIGNATURE, input=inputs))
    fault = check_definition(loaded)[0]
    assert fault.where == "input.a.shape[1]"
    assert fault.line == 1 + (tmp_path / "sample.json").read_text().split('"zz"')[0].count("\n")


@pytest.mark.parametrize("entry", ["forward", "_some_reference"])
def test_wrapper_can_be_taken_off(entry):
    source = f"def {entry}(x):\n    return x"
    assert strip_wrapper(source + wrapper(entry), entry) == source
    scope: dict[str, object] = {}
    exec(source + wrapper(entry), scope)
    assert scope["run"](3) == 3
