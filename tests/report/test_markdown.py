"""Tables in Markdown: failures first, no larger than GitHub takes, and strangers' texts are text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.report import markdown
from pytest_flashinfer.report.results import Broken, Result

HOSTILE = [
    "| a | b |",
    "</code></details><script>alert(1)</script>",
    "`code` **bold** [link](javascript:alert(1)) ![](https://tracker)",
    "@everybody #1 https://evil.example",
    "two\nlines\r\nand \x1b[31m\u202e",
    "```\n# heading\n```",
    "&lt;img src=x onerror=alert(1)&gt;",
]


def result(outcome="passed", *, solution="s", definition="d", details="", **more):
    message = details.partition("\n")[0]
    return Result(definition, solution, "me", "test_correct", "w", outcome, message=message, details=details, **more)


def test_failures_come_before_tables_and_best_comes_first():
    text = markdown.summary([
        result(solution="slow", latency=2e-3, speedup=1.5),
        result(solution="fast", latency=1e-3, speedup=3.0),
        result("failed", solution="wrong", status="TIMEOUT", details="TIMEOUT: no answer\n  case: n=1"),
    ])
    assert text.startswith("## Kernels: 2 of 3 solutions right, 1 definition\n")
    order = ["### Failures", "TIMEOUT&#58; no answer", "  case: n=1", "### <code>d</code>", "fast", "slow", "wrong"]
    places = [text.index(word, text.index("### <code>d") if word in ("fast", "slow") else 0) for word in order[:-1]]
    assert places == sorted(places)
    assert text.rindex("wrong") > text.rindex("slow")


def test_nothing_is_written_of_nothing():
    assert markdown.summary([]) == ""


def test_a_run_without_failures_has_no_such_heading():
    assert "Failures" not in markdown.summary([result()])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.json:3: no\nb.json:4: no", "a.json:3: no"),
        ("def f():\n>   g()\nE   ValueError: odd\nE   more", "ValueError: odd"),
        ('import x\nE     File "c.py", line 1\nE       def (\nE   SyntaxError: bad', "c.py:1: SyntaxError: bad"),
        (">   assert a\nE   assert 1 == 2\nE    +  where", "assert 1 == 2"),
        ("\n", ""),
    ],
)
def test_the_line_that_says_why(text, message):
    assert Broken("item", text).message == message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('/usr/lib/python3.11/ast.py:50: in parse\nE     File "/a/c.py", line 4\nE   SyntaxError: bad', ("/a/c.py", 4)),
        ("a/c.py:2: in <module>\n    import d\nd.py:7: in <module>\n    1/0\nE   ZeroDivisionError: 0", ("d.py", 7)),
        ("c.py:2: in <module>\n/x/site-packages/t/u.py:9: in f\n<frozen i>:1: in g\nE   ValueError: 0", ("c.py", 2)),
        ("no such thing", None),
    ],
)
def test_the_line_of_code_that_says_why(text, place):
    assert Broken("item", text).place == place


def test_failures_of_no_solution_come_first_and_fit():
    broken = [Broken(f"d{n}::test_schema", f"d{n}.json:1: no\n{'x' * 5000}") for n in range(500)]
    text = markdown.summary([result("failed", details="TIMEOUT: no", status="TIMEOUT")], broken=broken)
    assert text.startswith("## Kernels: 0 of 1 solution right, 1 definition; 500 failures of no solution\n")
    assert text.index("### Failures of no solution") < text.index("### Failures\n") < text.index("### <code>d</code>")
    assert "failure's texts left out" in text
    assert len(markdown.summary([], 3000, broken=broken).encode()) <= 3000


@given(st.sampled_from(HOSTILE) | st.text(max_size=300))
def test_a_cell_is_one_line_of_text(text):
    found = markdown.cell(text)
    assert "\n" not in found
    inner = found.removeprefix("<code>").removesuffix("</code>")
    assert not set("|<>`*_[]!@:\\~") & set(inner)
    assert not re.search(r"&(?!#\d+;)|(?<!&)#", inner)


@given(st.sampled_from(HOSTILE) | st.text(alphabet="`~a\n \r", max_size=60))
def test_a_block_of_code_ends_where_it_should(text):
    fence, *inner, last = markdown.fenced(text).rstrip("\n").split("\n")
    ticks = fence.removesuffix("text")
    assert set(ticks) == {"`"}
    assert last == ticks
    assert not any(ticks in line for line in inner)


def test_hostile_names_and_texts_make_no_structure():
    results = [result("failed", solution=text, definition=text, details=text, status="FAILED") for text in HOSTILE]
    text = markdown.summary(results)
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in outside
    assert "<img" not in outside
    assert "javascript:" not in outside
    assert outside.count("### ") == 1 + len(HOSTILE)


def test_a_large_run_fits_and_says_what_is_left_out():
    long = "INCORRECT_NUMERICAL: " + "x" * 3000
    results = [
        result("failed", solution=f"s{n}", definition=f"d{n % 700}", details=long, status="INCORRECT_NUMERICAL")
        for n in range(3000)
    ]
    text = markdown.summary(results)
    assert len(text.encode()) <= markdown.LIMIT < 1 << 20
    assert len(re.findall(r"more (wrong solution|failure's text|table)s left out", text)) >= 1
    assert "Kernels: 0 of 3,000 solutions right" in text


@given(st.integers(0, 5000))
def test_any_limit_holds(limit):
    results = [result("failed", solution=f"s{n}", details="text " * 50) for n in range(20)]
    assert len(markdown.summary(results, limit).encode()) <= max(limit, 600)
