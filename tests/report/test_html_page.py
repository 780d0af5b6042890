"""The file of the HTML report: one, self-contained, escaped, small; what is packed in it reads back."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytest_flashinfer.report.html import boards, conversation, payload
from pytest_flashinfer.report.html.rows import Row, Rows, Told

from .pages import H100, HOSTILE, hostile_report, plain_report, solution

for needed in ("jinja2", "plotly"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
from pytest_flashinfer.report.html import page  # noqa: E402


class Tags(HTMLParser):
    """Every element with its attributes, and the text of scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._inside = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._inside = dict(attrs).get("id", "")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        self._inside = None if tag == "script" else self._inside

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts[self._inside] += data


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "deep" / "report.html"
    size = page.write(path, plain_report())
    text = path.read_text()
    assert len(text.encode()) == size
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    return text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    page.write(folder / "report.html", hostile_report(folder))
    return (folder / "report.html").read_text(errors="strict")


def test_a_small_speedup_has_digits(tmp_path):
    rows = Rows()
    rows.add(Row("d", "slow", H100, "u", {"m": 4}, "PASSED", 1e-3, 0.0042, 1e-6), {})
    page.write(tmp_path / "report.html", boards.make(rows, Told(), "slow"))
    text = (tmp_path / "report.html").read_text()
    assert text.count(">0.0042\u00d7<") == 2
    assert ">0.0042 … 0.0042<" in text


def test_nothing_comes_from_elsewhere(plain):
    for tag, attributes in Tags(plain).tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form" if "action" in attributes else "")
        assert not {"src", "srcset", "data", "action", "background"} & attributes.keys()
        assert attributes.get("href", "#").startswith("#")
    styles = re.findall(r"<style>(.*?)</style>", plain, re.DOTALL)
    assert not re.search(r"url\(|@import|//", "".join(styles))


def test_only_the_scripts_of_the_policy_run(plain):
    tags = Tags(plain)
    [policy] = [each["content"] for tag, each in tags.tags if tag == "meta" and "http-equiv" in each]
    own, library = tags.scripts[""], gzip.decompress(base64.b64decode(tags.scripts["plotly"])).decode()
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (own, library)]
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}'; ")
    assert "unsafe-eval" not in policy
    assert [each.get("type") for tag, each in tags.tags if tag == "script"].count(None) == 1
    assert "Plotly" in library


def test_no_script_reads_text_as_markup():
    own = page._script()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", own)


def test_hostile_texts_make_no_element(hostile, plain):
    kinds = {tag for tag, _ in Tags(plain).tags}
    tags = Tags(hostile)
    assert {tag for tag, _ in tags.tags} <= kinds
    assert not any(name.startswith("on") for _, attributes in tags.tags for name in attributes)
    assert all(each.get("href", "#").startswith("#") for _, each in tags.tags)
    names = {each.get("data-name") for _, each in tags.tags} - {None}
    assert len(names) == len(HOSTILE)
    islands = [text for name, text in tags.scripts.items() if name]
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", text) for text in islands)


def test_numbers_read_back(plain):
    found = unpacked(Tags(plain).scripts["numbers-1"])
    assert (found["name"], found["axes"]) == ("gemm_n1024", ["m", "pages"])
    assert found["sizes"][0] == [4**step for step in range(1, 8)]
    [board] = found["boards"]
    fast, broken = board["solutions"][0], board["solutions"][-1]
    assert (fast["name"], fast["status"], fast["times"]) == ("fast", 0, [4.0] * 7)
    assert fast["us"][0] == pytest.approx((4 + 4 * 8e-3) / 4, rel=1e-3)
    assert broken["us"][2] is None
    assert broken["status"][2] == "INCORRECT_NUMERICAL"
    assert board["roofline"][0] == [0, 0.804]
    assert board["failures"] == [
        {
            "solution": 3,
            "status": "INCORRECT_NUMERICAL",
            "count": 2,
            "drawn": False,
            "axes": {"m": 64, "pages": 2},
            "workload": "uuid-64",
        }
    ]
    texts = unpacked(Tags(plain).scripts["texts-1"])
    assert texts["logs"] == [["E  INCORRECT_NUMERICAL: y[0, 64]: 1 instead of 2\n"]]
    assert texts["solutions"]["fast"]["files"][0][0] == "main.py"


def test_without_a_roofline_there_is_no_line(tmp_path):
    rows = Rows()
    rows.add(Row("d", "s", "card", "w", {"m": 1}, "PASSED", 1e-6, 2.0))
    [chapter] = boards.make(rows, Told(), "t").chapters
    assert payload.numbers(chapter)["boards"][0]["roofline"] is None
    assert page.write(tmp_path / "r.html", boards.make(rows, Told(), "t"))


def test_an_empty_report_says_so(tmp_path):
    page.write(tmp_path / "r.html", boards.make(Rows(), Told(), "t"))
    assert "there is nothing to rank" in (tmp_path / "r.html").read_text()


def test_sources_are_cut_and_said_to_be(monkeypatch):
    monkeypatch.setattr(payload, "SOURCE_CHARACTERS", 10)
    report = boards.make(_one(), Told(solutions={("d", "s"): solution("s", "d", "me", "x" * 25)}), "t")
    texts = unpacked(payload.Texts(report).of(report.chapters[0]))
    assert texts["solutions"]["s"]["files"] == [["main.py", "x" * 10, 15]]


def test_a_full_file_leaves_texts_out_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(payload, "TEXT_BYTES", 100)
    report = boards.make(_one(), Told(solutions={("d", "s"): solution("s", "d", "me")}), "t")
    page.write(tmp_path / "r.html", report)
    tags = Tags((tmp_path / "r.html").read_text())
    assert "left out" in unpacked(tags.scripts["texts-0"])["note"]
    assert "sources and logs of 1 solutions left out" in (tmp_path / "r.html").read_text()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        page.write(tmp_path / "report.html", plain_report())
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def _one():
    rows = Rows()
    rows.add(Row("d", "s", H100, "w", {"m": 1}, "PASSED", 1e-6, 2.0))
    return rows


def trace_file(tmp_path, document):
    path = tmp_path / "s.trace.json"
    path.write_text(json.dumps(document))
    return str(path)


CALL = {"id": "1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls\\npwd"}'}}
ASKED = {"role": "user", "content": [{"type": "text", "text": "Write it."}, {"type": "image_url"}]}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL]}
GIVEN = {"role": "tool", "tool_call_id": "1", "content": "main.py"}
DONE = {"role": "assistant", "content": "Done.", "reasoning_content": "It was easy."}


def request(messages, answer):
    response = {"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
    return {"type": "llm_request", "model": "m1", "conversation": messages, "response": response}


def test_each_message_of_a_trace_is_told_once(tmp_path):
    tool = {"type": "tool_call", "tool_name": "shell", "arguments": {"command": "ls"}, "result": "main.py"}
    entries = [request([ASKED], ANSWER), tool, request([ASKED, ANSWER, GIVEN], DONE), {"type": "mcp", "server": "x"}]
    turns, notes = conversation.turns(trace_file(tmp_path, entries))
    assert notes == []
    assert turns == [
        {"role": "user", "text": "Write it.\n[image_url]"},
        {"role": "assistant", "calls": [("shell", "command: ls\npwd")], "model": "m1"},
        {"role": "tool", "text": "main.py", "calls": [("shell", "command: ls")]},
        {"role": "assistant", "text": "Done.", "thought": "It was easy."},
        {"role": "mcp", "text": "server: x"},
    ]


def test_long_turns_and_long_traces_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation, "TURN_CHARACTERS", 10)
    monkeypatch.setattr(conversation, "TRACE_CHARACTERS", 100)
    talk = {"model": "m", "conversation": [{"role": "user", "content": "y" * 50}] * 9}
    turns, notes = conversation.turns(trace_file(tmp_path, talk))
    assert turns[0]["text"] == "yyyyyyyyyy\n[... 40 more characters]"
    assert 0 < len(turns) < 9
    assert f"{9 - len(turns)} of 9 turns left out" in notes[0]


def test_a_broken_trace_is_told(tmp_path):
    turns, notes = conversation.turns(trace_file(tmp_path, {"model": "m"}))
    assert turns == []
    assert "s.trace.json:1: " in notes[0]


MEASURED = """
import resource, sys
from pytest_flashinfer.cli.main import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
# Its own peak in kB: what getrusage says is at least what the process that started it held.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(used.ru_utime + used.ru_stime, peak)
sys.exit(code)
"""


def test_a_hundred_thousand_lines(tmp_path):
    """The seconds are those of a processor: a busy machine must not fail this."""
    root = Path(__file__).parents[2]
    sys.path.insert(0, str(root / "benchmarks"))
    try:
        import large_traces
    finally:
        sys.path.pop(0)
    large_traces.write(tmp_path)
    command = [sys.executable, "-c", MEASURED, "report", str(tmp_path / "traces"), "-o", str(tmp_path / "report.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=root)
    seconds, memory = map(float, done.stdout.split()[-2:])
    assert "100,000 evaluations of 25 definitions" in done.stdout
    assert seconds < 20
    assert memory < 1e6  # kB
    assert (tmp_path / "report.html").stat().st_size < 20e6
