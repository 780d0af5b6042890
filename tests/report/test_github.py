"""Workflow commands: whatever strangers write stays within the message it belongs to."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.report import github
from pytest_flashinfer.report.github import Failure

ROOT = Path("/repository")


def undo(text):
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, char)
    return text


@given(st.text(), st.text())
def test_a_command_is_one_line_and_reads_back(message, title):
    line = github.command("error", message, title=title)
    assert not set("\r\n") & set(line)
    match = re.fullmatch(r"::error title=([^,:]*)::(.*)", line, re.DOTALL)
    assert (undo(match[1]), undo(match[2])) == (title, message)


def test_a_hostile_text_is_no_command():
    line = github.command("error", "a\n::set-env name=PATH::/evil\r::error::b", file="x,line=1::y", line=3)
    assert line == (
        "::error file=x%2Cline=1%3A%3Ay,line=3::a%0A::set-env name=PATH::/evil%0D::error::b"
    )


def test_same_failures_are_one_annotation_and_paths_are_those_of_the_repository():
    failures = [Failure("/repository/a.py", 7, "t", text) for text in ("first", "second")]
    assert list(github.errors(failures, ROOT)) == [
        "::error file=a.py,line=7,title=t::first%0A(and 1 more of the same)"
    ]
    assert list(github.errors([Failure("/else/where.py", 1, "t", "x")], ROOT)) == [
        "::error file=/else/where.py,line=1,title=t::x"
    ]


def test_no_more_than_github_shows():
    lines = list(github.errors([Failure("a.py", n, "t", "x" * 5000) for n in range(25)], ROOT))
    assert len(lines) == github.SHOWN + 1
    assert lines[-1] == "::notice::15 more failures are in the log and in the summary of the job"
    assert max(map(len, lines)) < 2200
    *_, last = github.errors([Failure("a.py", n, "t", "x") for n in range(25)], ROOT, "faults")
    assert last == "::notice::15 more faults are in the log and in the summary of the job"
