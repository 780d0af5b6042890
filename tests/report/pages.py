"""A report with several definitions, cards and authors, and names, sources and logs that try to be markup."""

from __future__ import annotations

import json

from pytest_flashinfer.data.model import Axis, Definition, Solution, SourceFile, TensorSpec
from pytest_flashinfer.report.html import boards
from pytest_flashinfer.report.html.rows import Row, Rows, Told

H100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA B200"
LIBS = {"torch": "2.13.0", "triton": "3.7.1"}
SPEEDS = {"fast": ("ann", 4.0), "steady": ("bo", 2.0), "slow": ("ann", 0.5), "broken": ("cy", 6.0)}
HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"><svg onload=window.hacked=1>&lt;b&gt;'",
    "javascript:window.hacked=1",
    "<!--<script>",
    "<a href='https://example.org/'>link</a>%{x}<a href='javascript:window.hacked=1'>link</a><br>{{ 7 * 7 }}",
    "\u2028\x00\x1b[31m\ud800 ]]></style><style>*{display:none}</style>",
)


def definition(name: str, op_type: str, description: str | None = None) -> Definition:
    spec = TensorSpec(("m", "k"), "bfloat16")
    axes = {"m": Axis("var"), "pages": Axis("var"), "k": Axis("const", 4096)}
    return Definition(name, op_type, axes, {"x": spec}, {"y": spec}, "def run(x): ...", description=description)


def solution(
    name: str, of: str, author: str, source: str = "import torch\n\n\ndef run(x):\n    return x  # the same\n"
):
    return Solution(name, of, author, "python", "main.py", "run", (SourceFile("main.py", source),))


def board(rows: Rows, told: Told, name: str, op_type: str, cards: tuple[str, ...]) -> None:
    told.definitions[name] = definition(name, op_type, f"What {name} is about.")
    for who, (author, speed) in SPEEDS.items():
        told.solutions[name, who] = solution(who, name, author)
        for card in cards:
            for step in range(1, 8):
                size = 4**step
                wrong = who == "broken" and step in (3, 5)
                floor = 8e-7 + size * 1e-9
                reference = 4e-6 + size * 8e-9
                rows.add(
                    Row(
                        name,
                        who,
                        card,
                        f"uuid-{size}",
                        {"m": size, "pages": 1 + size // 64},
                        "INCORRECT_NUMERICAL" if wrong else "PASSED",
                        None if wrong else reference / speed,
                        None if wrong else speed,
                        floor,
                        log=f"E  INCORRECT_NUMERICAL: y[0, {size}]: 1 instead of 2\n" if wrong else "",
                    ),
                    LIBS,
                )


def plain_report(trace: str | None = None) -> boards.Report:
    rows, told = Rows(), Told()
    board(rows, told, "gemm_n128", "gemm", (H100, B200))
    board(rows, told, "gemm_n1024", "gemm", (H100,))
    board(rows, told, "rmsnorm_h128", "rmsnorm", (H100,))
    told.solutions["rmsnorm_h128", "only_here"] = solution("only_here", "rmsnorm_h128", "dee")
    rows.add(Row("rmsnorm_h128", "only_here", H100, "uuid-4", {"m": 4, "pages": 1}, "PASSED", 2e-6, 1.5, 1e-6), LIBS)
    if trace is not None:
        told.conversations["rmsnorm_h128", "fast"] = trace
    return boards.make(rows, told, "Kernels of the week", ["flashinfer: cuda:0"])


def hostile_report(folder) -> boards.Report:
    rows, told = Rows(), Told()
    for number, text in enumerate(HOSTILE):
        told.definitions[text] = definition(text, text, text)
        for suffix in ("", " again"):
            name = text + suffix
            told.solutions[text, name] = solution(name, text, text, text)
            for size, status in ((1, "PASSED"), (2, "PASSED"), (3, "RUNTIME_ERROR")):
                axes = {text: size, "m": size}
                log = f"RUNTIME_ERROR: {text}\n{text}" if status != "PASSED" else ""
                times = (1e-6 * size, 2.0, 5e-7) if status == "PASSED" else (None, None, None)
                rows.add(Row(text, name, text, f"{text}{size}", axes, status, *times, log=log), {text: text})
        path = folder / f"{number}.trace.json"
        path.write_text(json.dumps(conversation(text)))
        told.conversations[text, text] = str(path)
    return boards.make(rows, told, HOSTILE[0], HOSTILE, HOSTILE)


def conversation(text: str) -> dict:
    call = {"id": "1", "type": "function", "function": {"name": text, "arguments": json.dumps({"command": text})}}
    if "\ud800" in text:
        text = text.replace("\ud800", "")
        call["function"] = {"name": text, "arguments": text}
    return {
        "model": text,
        "conversation": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": text},
        ],
    }
