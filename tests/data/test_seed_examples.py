"""The examples of the three older specifications: their shapes, and the slips of the pen that they have."""

import json
import re
from pathlib import Path

import pytest

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.jsontext import parse_json
from pytest_flashinfer.data.rules import check_definition
from tests.data import samples


def sizes(**axes):
    """Axes from numbers (constants), `None` (variable) and names (variable within a parent)."""
    return {
        name: {"type": "const", "value": size}
        if isinstance(size, int)
        else {"type": "var"} | ({"parent": size} if size else {})
        for name, size in axes.items()
    }


def tensors(**shapes):
    """Tensors from texts such as `m k float16`; `null` is a scalar."""
    result = {}
    for name, text in shapes.items():
        *shape, dtype = text.split()
        result[name] = {"shape": None if shape == ["null"] else shape, "dtype": dtype}
    return result


GEMM = {
    "axes": sizes(m=None, n=4096, k=4096),
    "inputs": tensors(a="m k float16", b="n k float16"),
    "outputs": tensors(c="m n float16"),
}
QUANTISED = {
    "axes": sizes(m=None, n=4096, k=4096, n_group=128, k_group=128),
    "inputs": tensors(
        a="m k float8_e4m3fn", b="n k float8_e4m3fn", a_scale="m k_group float32", b_scale="n_group k_group float32"
    ),
    "outputs": tensors(c="m n bfloat16"),
}
GROUPED = {
    "axes": sizes(g=None, m=None, n=4096, k=4096),
    "inputs": tensors(a="g m k float16", b="g k n float16"),
    "outputs": tensors(c="g m n float16"),
}
GROUPED_QUANTISED = {
    "axes": sizes(g=None, m=None, n=4096, k=4096, k_group=128),
    "inputs": tensors(
        a="g m k float8_e4m3fn", b="g k n float8_e4m3fn", a_scale="g m k_group float32", b_scale="g k_group n float32"
    ),
    "outputs": tensors(c="g m n bfloat16"),
}
NORM = {
    "axes": sizes(batch=None, hidden=4096),
    "inputs": tensors(x="batch hidden float16", weight="hidden float16", eps="null float32"),
    "outputs": tensors(y="batch hidden float16"),
}
ATTENTION = {
    "axes": sizes(b=None, q_len=None, kv_len=None, h_qo=None, h_kv=None, h_r=4, d_qk=128, d_vo=128),
    "constraints": ["h_qo == h_kv * h_r"],
    "inputs": tensors(q="b q_len h_qo d_qk float16", k="b kv_len h_kv d_qk float16", v="b kv_len h_kv d_vo float16"),
    "outputs": tensors(out="b q_len h_qo d_vo float16", lse="b q_len h_qo float32"),
}
DEFINITIONS = {
    "gemm": GEMM,
    "quantised_gemm": QUANTISED,
    "grouped_gemm": GROUPED,
    "quantised_grouped_gemm": GROUPED_QUANTISED,
    "rmsnorm": NORM,
    "attention": ATTENTION,
}


def body(document):
    return f"def run({', '.join(document['inputs'])}):\n    return None\n"


def canonical(name, document):
    return {
        "name": name,
        "op_type": name,
        "tags": ["status:draft", "model:some_model"],
        **document,
        "reference": body(document),
    }


def description(name, document):
    """Form 2: `name` or `id`, `code`, `assumptions`, ragged sizes, `[]` for scalars."""
    old = samples.changed(document, constraints=...)
    if "constraints" in document:
        old["assumptions"] = document["constraints"]
    for tensor in old["inputs"].values():
        tensor["shape"] = [] if tensor["shape"] is None else tensor["shape"]
        tensor["dtype"] = tensor["dtype"].replace("e4m3fn", "e4m3")
    if "m" in old["axes"] and "g" in old["axes"]:
        old["axes"]["m"]["parent"] = "g"
    return {"name": f"{name}(old)", **old, "code": body(document)}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definition_examples(tmp_path, name):
    loaded = load_definition(samples.write(tmp_path / "a.json", canonical(name, DEFINITIONS[name])))
    assert check_definition(loaded) == ()
    assert loaded.value.tags == ("status:draft", "model:some_model")


@pytest.mark.parametrize("name", DEFINITIONS)
def test_description_examples(tmp_path, name):
    loaded = load_definition(samples.write(tmp_path / "a.json", description(name, DEFINITIONS[name])))
    assert samples.messages(check_definition(loaded)) == []
    assert loaded.value.name == f"{name}(old)"
    assert loaded.value.form == 2
    assert "key 'code' read as 'reference'" in loaded.notes


def test_description_example_with_an_id(tmp_path):
    document = {"id": "gemm", **GEMM, "reference_code": body(GEMM)}
    assert load_definition(samples.write(tmp_path / "a.json", document)).value.name == "gemm"


@pytest.mark.parametrize("name", ["gemm", "quantised_gemm", "grouped_gemm"])
def test_signature_examples(tmp_path, name):
    document = samples.changed(DEFINITIONS[name])
    inputs = {
        key: {**tensor, "dim_order": list(range(len(tensor["shape"])))} for key, tensor in document["inputs"].items()
    }
    for tensor in inputs.values():
        tensor["dtype"] = {"float16": "fp16", "float32": "fp32", "float8_e4m3fn": "int4"}[tensor["dtype"]]
    axes = document["axes"]
    if "n_group" in axes:
        axes["n_group"] = {"type": "const", "value": "4096 / 32"}
    if "g" in axes:
        axes["m"]["parent"] = "g"
    code = body(document).replace("run", "forward")
    old = {"op": name, "axes": axes, "input": inputs, "output": document["outputs"], "code": code}
    loaded = load_definition(samples.write(tmp_path / f"{name}.json", old))
    assert samples.messages(check_definition(loaded)) == []
    assert loaded.value.name == name
    assert loaded.value.axes.get("n_group") is None or loaded.value.axes["n_group"].value == 128


def test_an_example_with_the_older_key_type(tmp_path):
    document = {"type" if key == "op_type" else key: value for key, value in canonical("norm", NORM).items()}
    loaded = load_definition(samples.write(tmp_path / "a.json", document))
    assert loaded.value.op_type == "norm"
    assert [fault.message for fault in loaded.faults] == ["older key `type`: rename it to `op_type`"]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_slips_of_the_examples_are_named(name):
    """A comma missing after the tags, one too many before the end: as the published examples have them."""
    text = json.dumps(canonical(name, DEFINITIONS[name]), indent=2)
    text = text.replace('  ],\n  "axes"', '  ]\n  "axes"').replace('"\n}', '",\n}')
    first, last = parse_json(text, Path("a.json")).faults
    assert "missing comma" in first.message
    assert first.line == text[: text.index('"axes"')].count("\n")
    assert "trailing comma" in last.message
    assert last.line == text.count("\n")


def test_assumptions_in_braces_are_named():
    text = json.dumps(description("attention", ATTENTION), indent=2)
    text = re.sub(r'"assumptions": \[(.*?)\]', r'"assumptions": {\1}', text, flags=re.DOTALL)
    fault = parse_json(text, Path("a.json")).faults[0]
    assert "a list stands in braces: write '[' and ']'" in fault.message
    assert fault.line == text[: text.index('"assumptions"')].count("\n") + 1


CALL = {"id": "call_7", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Oslo"}'}}
CHAT = {
    "model": "some-model",
    "annotation": "a question and its answer",
    "conversation": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4"},
    ],
}
CHAT_WITH_CALL = {
    "model": "some-model",
    "conversation": [
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
        {"role": "tool", "content": "3 degrees, cloudy"},
        {"role": "user"},
    ],
}
REQUEST = {
    "type": "llm_request",
    "conversation": [{"role": "user", "content": "Make it faster."}],
    "response": {
        "model": "some-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
                "finish_reason": "stop",
            }
        ],
    },
    "model": "some-model",
}
TOOL = {"type": "tool_call", "tool_name": "compile", "arguments": {"file": "a.cu"}, "result": "ok", "cli_output": ""}
RECORDS = {
    "calls": [
        {
            "model": "some/model",
            "framework": "SGLang",
            "kernels": [{"id": "silu_and_mul", "count": 4}, {"id": "rmsnorm", "count": 2}],
        }
    ],
    "result": [
        {
            "device": {"name": "A card"},
            "kernel_id": "gemm",
            "source": "me",
            "compiled": True,
            "time": 0.25,
            "speedup": 2.0,
            "max_diff": 1e-6,
        },
        {"device": {"name": "A card"}, "kernel_id": "gemm", "source": "me", "compiled": False, "compile_error": "no"},
    ],
    "agent": [CHAT, CHAT_WITH_CALL, [REQUEST, TOOL, {"type": "mcp", "anything": 1}], []],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, group in RECORDS.items() for number in range(len(group))]
)
def test_other_records(name, number):
    document = parse_json(json.dumps(RECORDS[name][number], indent=1), Path("a.json"))
    assert schema.check_document(name, document) == ()


@pytest.mark.parametrize(
    ("name", "document", "where", "message"),
    [
        ("calls", samples.changed(RECORDS["calls"][0], framework="vllm"), "framework", "did you mean 'vLLM'?"),
        ("calls", samples.changed(RECORDS["calls"][0], kernels=[{"id": "a"}]), "kernels[0]", "missing key 'count'"),
        ("result", samples.changed(RECORDS["result"][0], time=...), "", "missing key 'time'"),
        ("result", samples.changed(RECORDS["result"][1], compile_error=...), "", "missing key 'compile_error'"),
        (
            "agent",
            samples.changed(CHAT, conversation=[{"role": "robot"}]),
            "conversation[0].role",
            '"robot" is not allowed',
        ),
        ("agent", [samples.changed(REQUEST, response=...)], "[0]", "missing key 'response'"),
        ("agent", [samples.changed(TOOL, arguments="a.cu")], "[0].arguments", "expected an object"),
    ],
)
def test_other_records_that_are_wrong(name, document, where, message):
    faults = schema.check_document(name, parse_json(json.dumps(document), Path("a.json")))
    assert [fault.where for fault in faults] == [where]
    assert message in faults[0].message


@pytest.mark.parametrize("name", schema.NAMES)
def test_schemas_are_schemas(name):
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(json.loads(schema.schema_text(name)))


def test_unknown_schema():
    with pytest.raises(KeyError):
        schema.schema_text("../pyproject")
