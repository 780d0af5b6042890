"""An agent trace as the turns of one conversation, each message told once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.agent import load_agent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TURN_CHARACTERS = 8_000  # of one text in a turn
TRACE_CHARACTERS = 400_000  # of all turns of one trace
Turn = dict[str, Any]


def turns(path: str) -> tuple[list[Turn], list[str]]:
    """Return the turns of a trace and what was left out; a file with faults has none, and the first is told.

    A turn has `role` and those of `text`, `thought`, `calls` (pairs of a name and its arguments) and `model` that
    there are.
    """
    loaded = load_agent(Path(path))
    if loaded.value is None:
        return [], [str(loaded.faults[0])]
    kept: list[Turn] = []
    left = TRACE_CHARACTERS
    told = list(_told(loaded.value.document))
    for turn in told:
        left -= sum(len(str(value)) for value in turn.values())
        if left < 0:
            return kept, [f"{path}: {len(told) - len(kept)} of {len(told)} turns left out, the last"]
        kept.append(turn)
    return kept, []


def _told(document: Any) -> Iterator[Turn]:
    before: list[Any] = []
    model, seen = None, set[str]()  # what entries of tools have told of already
    for entry in document if isinstance(document, list) else [document]:
        if entry.get("type") in ("tool_call", "mcp"):
            turn = _tool(entry)
            seen.add(turn["text"])
            yield turn
            continue
        messages = list(entry.get("conversation") or ())
        answers = [choice.get("message") for choice in (entry.get("response") or {}).get("choices") or ()]
        for message in (*_new(before, messages), *answers):
            turn = _turn(message)
            if turn["role"] == "assistant" and entry["model"] != model:
                turn["model"] = model = entry["model"]
            if turn["role"] != "tool" or turn.get("text") not in seen:
                yield turn
        before = [*messages, *answers[:1]]


def _new(before: Sequence[Any], messages: Sequence[Any]) -> Sequence[Any]:
    """Return what a request adds: each repeats the conversation so far."""
    same = 0
    while same < min(len(before), len(messages)) and _core(before[same]) == _core(messages[same]):
        same += 1
    return messages[same:]


def _core(message: dict[str, Any]) -> tuple[Any, ...]:
    return message.get("role"), message.get("content"), message.get("tool_calls")


def _turn(message: dict[str, Any]) -> Turn:
    parts = {
        "text": _cut(_plain(message.get("content"))),
        "thought": _cut(_plain(message.get("reasoning_content"))),
        "calls": [_call(call["function"]) for call in message.get("tool_calls") or ()],
    }
    return {"role": message["role"], **{key: value for key, value in parts.items() if value}}


def _call(function: dict[str, Any]) -> tuple[str, str]:
    return function["name"], _cut(_pretty(function["arguments"]))


def _tool(entry: dict[str, Any]) -> Turn:
    """Read an entry of a tool: what was asked of it and what it gave; `mcp` has no settled form."""
    if entry["type"] == "mcp":
        rest = {key: value for key, value in entry.items() if key != "type"}
        return {"role": "mcp", "text": _cut(_pretty(rest))}
    text = "\n".join(filter(None, (_plain(entry["result"]), _plain(entry.get("cli_output")))))
    return {"role": "tool", "text": _cut(text), "calls": [(entry["tool_name"], _cut(_pretty(entry["arguments"])))]}


def _pretty(arguments: Any) -> str:
    """Write arguments for people: one key a line, strings with their own line breaks."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return str(arguments)
    if not isinstance(value, dict):
        return str(arguments)
    return "\n".join(f"{key}: {part if isinstance(part, str) else json.dumps(part)}" for key, part in value.items())


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(filter(None, map(_plain, content)))
    if isinstance(content, dict):
        return str(content["text"]) if isinstance(content.get("text"), str) else f"[{content.get('type', 'part')}]"
    return content if isinstance(content, str) else ""


def _cut(text: str) -> str:
    left = len(text) - TURN_CHARACTERS
    return text if left <= 0 else f"{text[:TURN_CHARACTERS]}\n[... {left:,} more characters]"
