"""Agent traces: both forms, and what SGLang and vLLM write differently."""

import json

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data import schema
from pytest_flashinfer.data.agent import beside, load_agent, normalised
from tests.data import samples

ASKED = {"role": "user", "content": "write a kernel"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "compile", "arguments": '{"file": "a.cu"}'}}
PLAIN = {"role": "assistant", "content": "I compile it.", "tool_calls": [CALL]}
CHAT = {"model": "m", "annotation": "first try", "conversation": [ASKED, PLAIN, {"role": "tool", "content": "ok"}]}
ANSWER = {"model": "m", "choices": [{"index": 0, "message": PLAIN, "finish_reason": "tool_calls"}]}
REQUEST = {"type": "llm_request", "model": "m", "conversation": [ASKED], "response": ANSWER}
TOOL = {"type": "tool_call", "tool_name": "compile", "arguments": {"file": "a.cu"}, "result": "ok", "cli_output": "x"}
MCP = {"type": "mcp", "whatever": [1, {"tool_calls": None}], "conversation": "as given"}
OTHER = {"type": "llm_request", "model": "n", "conversation": [ASKED, {"role": "user"}], "response": {"choices": []}}


@pytest.mark.parametrize("document", [CHAT, [REQUEST, TOOL, MCP, OTHER], []])
def test_openais_form_stays_as_it_is(tmp_path, document):
    loaded = load_agent(samples.write(tmp_path / "a.trace.json", document))
    assert (loaded.faults, loaded.notes) == ((), ())
    assert loaded.value.document == document


VLLM = {
    "id": "chatcmpl-1",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "reasoning": "hm",
                "content": "done",
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
            },
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
}
SGLANG = {
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": None,
                "tool_calls": [
                    {"id": None, "index": -1, "function": {"name": "compile", "arguments": {"file": "ä.cu"}}}
                ],
            },
            "finish_reason": {"type": "tool_calls", "length": 3},
            "matched_stop": None,
        }
    ],
}
NATIVE = {"text": "done", "meta_info": {"finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": 3}}
COMPLETION = {"model": "m", "choices": [{"index": 0, "text": "done", "finish_reason": "stop"}]}
RESPONSES = [
    (VLLM, {"role": "assistant", "content": "done", "reasoning_content": "hm"}, "stop"),
    (
        SGLANG,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "compile", "arguments": '{"file": "ä.cu"}'}}],
        },
        "tool_calls",
    ),
    (NATIVE, {"role": "assistant", "content": "done"}, "stop"),
    (COMPLETION, {"role": "assistant", "content": "done"}, "stop"),
]


@pytest.mark.parametrize(("response", "message", "reason"), RESPONSES, ids=["vllm", "sglang", "native", "completion"])
def test_other_servers_responses_become_openais(tmp_path, response, message, reason):
    loaded = load_agent(samples.write(tmp_path / "a.trace.json", [samples.changed(REQUEST, response=response)]))
    assert loaded.faults == ()
    assert loaded.notes
    [choice] = loaded.value.document[0]["response"]["choices"]
    assert choice == {"index": 0, "message": message, "finish_reason": reason}
    assert normalised(loaded.value.document) == (loaded.value.document, [])


def test_what_else_a_response_says_is_kept(tmp_path):
    loaded = load_agent(samples.write(tmp_path / "a.trace.json", [samples.changed(REQUEST, response=NATIVE)]))
    assert loaded.value.document[0]["response"]["meta_info"] == NATIVE["meta_info"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": None, "function": {"name": "f", "arguments": None}}],
        },
    ],
)
def test_messages_in_a_conversation_are_rewritten_too(message):
    document, notes = normalised(samples.changed(CHAT, conversation=[ASKED, message]))
    assert notes
    [call] = document["conversation"][1]["tool_calls"]
    assert call == {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert list(schema.findings("agent", document)) == []


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (samples.changed(CHAT, conversation=[{"role": "robot"}]), "conversation[0].role"),
        ([samples.changed(TOOL, arguments="a.cu")], "[0].arguments"),
        ([{"type": "thought"}], "[0].type"),
        (5, "an object"),
    ],
)
def test_what_is_neither_form_is_told(tmp_path, document, said):
    loaded = load_agent(samples.write(tmp_path / "a.trace.json", document))
    assert loaded.value is None
    assert any(said in str(fault) for fault in loaded.faults), loaded.faults


def test_a_trace_lies_beside_its_solution(tmp_path):
    for path in ("a/one.json", "a/two.py", "a/three/config.toml", "a/four/config.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for path in ("a/one.trace.json", "a/second.trace.json", "a/three.trace.json", "a/four/four.trace.json"):
        (tmp_path / path).write_text("{}")
    place = tmp_path / "a"
    assert beside(place / "one.json", "first") == place / "one.trace.json"
    assert beside(place / "two.py", "second") == place / "second.trace.json"
    assert beside(place / "two.py", "third") is None
    assert beside(place / "three", "x") == beside(place / "three/config.toml", "x") == place / "three.trace.json"
    assert beside(place / "four", "x") == place / "four/four.trace.json"
    assert beside(place / "two.py", "../a/one") is None
    assert beside(place / "two.py", "x" * 5000) is None
    assert beside(place / "two.py", "nul\0l") is None


def test_convert_writes_openais_form(tmp_path):
    source = samples.write(tmp_path / "a.trace.json", [samples.changed(REQUEST, response=VLLM)])
    assert main(["convert", str(source), str(tmp_path / "b.trace.json")]) == 0
    written = json.loads((tmp_path / "b.trace.json").read_text())
    assert written[0]["response"]["choices"][0]["message"]["content"] == "done"
    assert main(["validate", str(source), str(tmp_path / "b.trace.json")]) == 0
