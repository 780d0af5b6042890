"""`merge`: the parts of a run put together, or one line that says why they do not go together."""

import json

import pytest

from pytest_flashinfer.cli.main import main

CASE = """<testcase classname="d" name="test_speed[{solution}-n4]"><properties>
<property name="fib_definition" value="d"/><property name="fib_solution" value="{solution}"/>
<property name="fib_author" value="me"/><property name="fib_check" value="test_speed"/>
<property name="fib_workload" value="w"/><property name="status" value="{status}"/>
<property name="latency_s" value="0.002"/><property name="speedup" value="2.0"/></properties>{end}</testcase>"""
FAILURE = '<failure message="x">TIMEOUT: no answer\n  case: n=4</failure>'


def benchmark(name, median=0.002, device="a card", spread=0.0):
    data = [median * (1 + spread * (number - 4.5)) for number in range(10)]
    return {"fullname": name, "stats": {"median": median, "data": data}, "extra_info": {"device": device}}


def part(folder, solution, status="PASSED", end="", **more):
    folder.mkdir(parents=True)
    case = CASE.format(solution=solution, status=status, end=end)
    (folder / "kernels.xml").write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    document = {"machine_info": {"node": "x"}, "version": "5", "benchmarks": [benchmark(solution, **more)]}
    (folder / "benchmark.json").write_text(json.dumps(document))
    (folder / "traces/op").mkdir(parents=True)
    (folder / "traces/op/d.jsonl").write_text(f'{{"both": 1}}\n{{"solution": "{solution}"}}\n')
    return folder


def merge(*arguments):
    return main(["merge", *map(str, arguments)])


def test_everything_is_joined(tmp_path, capsys):
    parts = [part(tmp_path / "1", "good"), part(tmp_path / "2", "bad", "TIMEOUT", FAILURE)]
    out = tmp_path / "merged"
    assert merge(*parts, "-o", out) == 0
    assert capsys.readouterr().out == f"3 files of 2 parts, 2 results of solutions: {out}\n"
    names = [each["fullname"] for each in json.loads((out / "benchmark.json").read_text())["benchmarks"]]
    assert names == ["bad", "good"]
    lines = (out / "traces/op/d.jsonl").read_text().splitlines()
    assert lines == ['{"both": 1}', '{"solution": "good"}', '{"solution": "bad"}']
    assert (out / "kernels.xml").read_text().count("<testsuite>") == 2
    text = (out / "summary.md").read_text()
    assert text.startswith("## Kernels: 1 of 2 solutions right, 1 definition\n")
    assert "TIMEOUT: no answer\n  case: n=4" in text
    assert "| <code>good</code> | <code>me</code> | 1/1 | 2 ms | 2.00x (2.00..2.00) |" in text


def test_a_second_merge_replaces_the_first(tmp_path):
    parts = [part(tmp_path / "all/1", "good"), part(tmp_path / "all/2", "fine")]
    for _ in range(2):
        assert merge(*parts, "-o", tmp_path / "all/merged") == 0
    assert (tmp_path / "all/merged/traces/op/d.jsonl").read_text().count("\n") == 3


def test_a_second_merge_of_a_folder_named_another_way_leaves_out_the_first(tmp_path, monkeypatch):
    part(tmp_path / "all/1", "good")
    monkeypatch.chdir(tmp_path)
    for source, out in (
        ("all", tmp_path / "all/merged"),
        (tmp_path / "all", "all/merged"),
        ("all", "all/../all/merged"),
    ):
        assert merge(source, "-o", out) == 0
    assert not (tmp_path / "all/merged/merged").exists()


def test_against_a_baseline(tmp_path):
    before = part(tmp_path / "before", "good", median=0.001) / "benchmark.json"
    out = tmp_path / "merged"
    assert merge(part(tmp_path / "1", "good"), part(tmp_path / "2", "new"), "-o", out, f"--baseline={before}") == 0
    text = (out / "summary.md").read_text()
    assert "1 timing compared at 5%: 1 SLOWER; 1 new, 0 gone." in text
    assert "| <code>good</code> | SLOWER | 1 ms | 2 ms | +100% |" in text


@pytest.mark.parametrize(
    ("median", "spread", "verdict"),
    [(0.0019, 0.0, "FASTER"), (0.00201, 0.0, "SAME"), (0.0023, 0.1, "UNDECIDED"), (0.0023, 0.0, "SLOWER")],
)
def test_the_verdicts_are_those_of_a_run_with_a_baseline(tmp_path, median, spread, verdict):
    """What scatters too much is no slowdown."""
    before = part(tmp_path / "before", "good") / "benchmark.json"
    now = part(tmp_path / "1", "good", median=median, spread=spread)
    assert merge(now, "-o", tmp_path / "merged", f"--baseline={before}") == 0
    text = (tmp_path / "merged/summary.md").read_text()
    assert f"1 timing compared at 5%: 1 {verdict}; 0 new, 0 gone." in text
    assert ("| <code>good</code> |" in text.partition("### Against the baseline")[2].partition("###")[0]) == (
        verdict in ("SLOWER", "FASTER")
    )


def test_a_run_that_timed_nothing_is_merged_like_any_other(tmp_path):
    before = part(tmp_path / "before", "good") / "benchmark.json"
    parts = [part(tmp_path / name, name, "TIMEOUT", FAILURE) for name in ("1", "2")]
    for folder in parts:
        (folder / "benchmark.json").unlink()
    assert merge(*parts, "-o", tmp_path / "merged", f"--baseline={before}") == 0
    assert "0 of 2 solutions right" in (tmp_path / "merged/summary.md").read_text()
    assert not (tmp_path / "merged/benchmark.json").exists()


def test_a_baseline_that_is_none_is_one_line(tmp_path, capsys):
    (tmp_path / "none.json").write_text("{")
    assert merge(part(tmp_path / "1", "good"), "-o", tmp_path / "merged", f"--baseline={tmp_path}/none.json") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --baseline: ")
    assert error.count("\n") == 1


def test_another_card_is_no_baseline(tmp_path):
    before = part(tmp_path / "before", "good", device="another") / "benchmark.json"
    assert merge(part(tmp_path / "1", "good"), "-o", tmp_path / "merged", f"--baseline={before}") == 0
    assert "Not compared" in (tmp_path / "merged/summary.md").read_text()


def test_no_baseline_yet(tmp_path, capsys):
    assert merge(part(tmp_path / "1", "good"), "-o", tmp_path / "merged", f"--baseline={tmp_path}/none.json") == 0
    assert "no baseline" in capsys.readouterr().err


def test_limit(tmp_path):
    parts = [part(tmp_path / str(number), f"s{number}", "TIMEOUT", FAILURE) for number in range(30)]
    assert merge(*parts, "-o", tmp_path / "merged", "--limit=3000") == 0
    assert (tmp_path / "merged/summary.md").stat().st_size <= 3000


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "benchmark.json").write_text("{"), "benchmark.json: "),
        (
            lambda folder: (folder / "benchmark.json").write_text('{"a": 1}'),
            "benchmark.json: not what --benchmark-json writes",
        ),
        (lambda folder: (folder / "kernels.xml").write_text("<a>"), "kernels.xml: "),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, spoil, words):
    """It names the part: who has eight of them looks for one."""
    folders = [part(tmp_path / name, name) for name in "12"]
    spoil(folders[1])
    assert merge(*folders, "-o", tmp_path / "merged") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folders[1]}/{words}")
    assert error.count("\n") == 1
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("out", ["1", "."])
def test_a_part_is_not_merged_into(tmp_path, capsys, out):
    """It would be left out, and what it holds overwritten."""
    folders = [part(tmp_path / name, name) for name in "12"]
    before = (folders[0] / "kernels.xml").read_text()
    assert merge(*folders, "-o", tmp_path / out) == 2
    assert f"-o {tmp_path / out}: {folders[0]}, which is a part, lies in there" in capsys.readouterr().err
    assert (folders[0] / "kernels.xml").read_text() == before


@pytest.mark.parametrize(
    ("name", "text"),
    [("summary.md", "# Mine\n"), ("benchmark.json", "{}"), ("kernels.xml", "<a/>"), ("traces/op/d.jsonl", b"\xff")],
)
def test_what_somebody_else_wrote_is_not_overwritten(tmp_path, capsys, name, text):
    mine = tmp_path / "merged" / name
    mine.parent.mkdir(parents=True)
    mine.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = mine.read_bytes()
    assert merge(part(tmp_path / "1", "good"), "-o", tmp_path / "merged") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {mine}: ")
    assert error.endswith(": it would be overwritten; name another folder\n")
    assert mine.read_bytes() == before


def test_parts_of_different_runs_are_refused(tmp_path, capsys):
    one = part(tmp_path / "1", "good")
    assert merge(one, part(tmp_path / "2", "good"), "-o", tmp_path / "merged") == 2
    assert "were they parts of one run?" in capsys.readouterr().err
    assert merge(one, part(tmp_path / "3", "bad", device="another"), "-o", tmp_path / "merged") == 2
    assert "timed on different devices" in capsys.readouterr().err


def test_a_folder_with_nothing_in_it(tmp_path, capsys):
    assert merge(tmp_path, "-o", tmp_path / "merged") == 2
    assert "no .jsonl, .json or .xml file" in capsys.readouterr().err
    assert merge(tmp_path / "none", "-o", tmp_path / "merged") == 2


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\x0c"])
def test_what_a_kernel_prints_breaks_no_line(tmp_path, end):
    folder = part(tmp_path / "1", "good")
    (folder / "traces/op/d.jsonl").write_text(f'{{"log": "a{end}b"}}\n', encoding="utf-8")
    assert merge(folder, "-o", tmp_path / "merged") == 0
    assert (tmp_path / "merged/traces/op/d.jsonl").read_text("utf-8") == f'{{"log": "a{end}b"}}\n'


def test_shares_of_a_card_are_read_as_numbers(tmp_path):
    folder = part(tmp_path / "1", "good")
    share = '<property name="roofline_s" value="0.001"/><property name="roofline_share" value="0.5"/></properties>'
    text = (folder / "kernels.xml").read_text().replace("</properties>", share)
    (folder / "kernels.xml").write_text(text)
    assert merge(folder, "-o", tmp_path / "merged") == 0
    assert "50%" in (tmp_path / "merged/summary.md").read_text()


@pytest.mark.parametrize(("old", "new"), [('value="2.0"', 'value="much"'), ('name="fib_definition"', 'name="other"')])
def test_a_report_that_another_tool_wrote_is_one_line(tmp_path, capsys, old, new):
    folder = part(tmp_path / "1", "good")
    (folder / "kernels.xml").write_text((folder / "kernels.xml").read_text().replace(old, new))
    assert merge(folder, "-o", tmp_path / "merged") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_same_part_twice_is_refused(tmp_path, capsys):
    folder = part(tmp_path / "1", "good")
    assert merge(folder, folder, "-o", tmp_path / "merged") == 2
    assert "the same folder twice" in capsys.readouterr().err
