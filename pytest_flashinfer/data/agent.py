"""Agent traces: the conversation in which a kernel came to be, brought into OpenAI's message form.

Two forms are found: one conversation, and a list of `llm_request`, `tool_call` and `mcp` entries. What SGLang and vLLM
write differently in messages and responses is rewritten; an `mcp` entry has no settled form and stays as it is.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import schema
from pytest_flashinfer.data.discover import TRACE_SUFFIX
from pytest_flashinfer.data.faults import Loaded
from pytest_flashinfer.data.jsontext import read_json
from pytest_flashinfer.data.places import Places
from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.data.solution_rules import unsafe_path

if TYPE_CHECKING:
    from pathlib import Path

_EMPTY = ("tool_calls", "function_call", "refusal", "audio", "annotations", "name", "tool_call_id", "reasoning_content")


@dataclass(frozen=True, slots=True)
class AgentTrace:
    """A trace in OpenAI's message form; `document` is the one conversation, or the list of entries."""

    document: Any


def load_agent(path: Path) -> Loaded[AgentTrace]:
    """Read an agent trace of either form; never raises on bad content, which is told as faults."""
    document = read_json(path)
    if not document.readable:
        return Loaded(None, path, document.faults, document.notes)
    raw, notes = normalised(document.value)
    loaded: Loaded[AgentTrace] = Loaded(None, path, lines=Places(document), raw=raw)
    faults = (*document.faults, *schema.check("agent", loaded))
    value = None if faults else AgentTrace(raw)
    return Loaded(value, path, faults, (*document.notes, *notes), lines=loaded.lines, raw=raw)


def beside(path: Path, name: str) -> Path | None:
    """Return the trace of a solution that lies at `path`: `<solution>.trace.json`, by its file's or its own name."""
    place = path.parent if path.name == CONFIG else path
    stem = place.name if place.is_dir() else place.stem
    names = [stem] if "/" in name or unsafe_path(name) else [stem, name]
    folders = [place.parent, place] if place.is_dir() else [place.parent]
    found = (folder / f"{each}{TRACE_SUFFIX}" for folder in folders for each in names)
    return next((file for file in found if os.path.isfile(file)), None)  # noqa: PTH113 - a name may be too long for Path


def normalised(value: Any) -> tuple[Any, list[str]]:
    """Bring a trace into OpenAI's message form; the second part are notes on what was changed. Nothing is checked."""
    raw, notes = copy.deepcopy(value), []
    for number, entry in enumerate(raw if isinstance(raw, list) else [raw]):
        if not isinstance(entry, dict) or entry.get("type") in ("tool_call", "mcp"):
            continue
        found = [*_messages(entry.get("conversation")), *_response(entry)]
        notes += [f"[{number}]: {note}" if isinstance(raw, list) else note for note in dict.fromkeys(found)]
    return raw, notes


def _messages(messages: Any) -> list[str]:
    listed = messages if isinstance(messages, list) else []
    return [note for message in listed if isinstance(message, dict) for note in _message(message)]


def _response(entry: dict[str, Any]) -> list[str]:
    response, notes = entry.get("response"), []
    if isinstance(response, dict) and "choices" not in response and isinstance(response.get("text"), str):
        information = response.get("meta_info")
        reason = information.get("finish_reason") if isinstance(information, dict) else None
        response["choices"] = [{"index": 0, "text": response.pop("text"), "finish_reason": reason}]
        notes.append("a response of SGLang's own interface: 'text' read as the only choice")
    choices = response.get("choices") if isinstance(response, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            notes += _choice(choice)
    return notes


def _choice(choice: dict[str, Any]) -> list[str]:
    notes = []
    if "message" not in choice and isinstance(choice.get("text"), str):
        choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        notes.append("a completion's 'text' read as the assistant's message")
    reason = choice.get("finish_reason")
    if isinstance(reason, dict) and isinstance(reason.get("type"), str):
        choice["finish_reason"] = reason["type"]
        notes.append("finish_reason: an object read as its 'type'")
    for key in ("stop_reason", "matched_stop"):
        if key in choice:
            del choice[key]
            notes.append(f"{key!r} left out")
    return notes + (_message(choice["message"]) if isinstance(choice.get("message"), dict) else [])


def _message(message: dict[str, Any]) -> list[str]:
    notes = []
    if "reasoning" in message and "reasoning_content" not in message:
        message["reasoning_content"] = message.pop("reasoning")
        notes.append("key 'reasoning' read as 'reasoning_content'")
    if isinstance(message.get("function_call"), dict) and not message.get("tool_calls"):
        message["tool_calls"] = [{"type": "function", "function": message.pop("function_call")}]
        notes.append("older key 'function_call' read as 'tool_calls'")
    for key in _EMPTY:
        if key in message and message[key] in (None, []):
            del message[key]
            notes.append(f"empty {key!r} left out")
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            notes += _call(call)
    return notes


def _call(call: dict[str, Any]) -> list[str]:
    notes = []
    if isinstance(call.get("name"), str) and "function" not in call:
        call["function"] = {key: call.pop(key) for key in ("name", "arguments") if key in call}
        notes.append("a bare tool call read as one of a function")
    if call.get("type") is None:
        call["type"] = "function"
    for key in ("id", "index"):
        if key in call and (call[key] is None or key == "index"):
            del call[key]
            notes.append(f"tool call's {key!r} left out")
    function = call.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), (dict, type(None))):
        function["arguments"] = json.dumps(function.get("arguments") or {}, ensure_ascii=False)
        notes.append("arguments: an object read as its JSON text")
    return notes
