"""Files of many megabytes, or of many small parts: a message within seconds, whatever they hold."""

import json
import time

import pytest

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data.extent import MAX_PARTS
from pytest_flashinfer.data.jsontext import MAX_LINES
from pytest_flashinfer.data.nearest import nearest
from pytest_flashinfer.data.traces import MAX_FAULTY, load_traces
from tests.data import samples

MIB = 1 << 20
MANY = MAX_PARTS // 2
VAR = {"type": "var"}
SPEC = {"language": "python", "entry_point": "a.py::run"}
LARGE = {
    "NaN": lambda: f"[{','.join(['NaN'] * (4 * MIB))}]",
    "integers": lambda: '{"a": [' + "1," * (8 * MIB) + ",,]}",
    "repeated keys": lambda: "{" + ",".join(['"a":1'] * (2 * MIB)) + "}",
    "repeated keys of one definition": lambda: "{" + '"name": "a",' * 30_000 + '"axes": {}}',
    "half characters": lambda: f"[{','.join([chr(92) + 'ud800'.join(chr(34) * 2)] * MIB)}]",
    "open brackets": lambda: "[" * (100 * MIB),
    "one string": lambda: f'"{"x" * (40 * MIB)}"',
    "late fault": lambda: '{"a": "' + "x" * (40 * MIB) + '" "b": 1}',
    "digits": lambda: '{"axes":' + "9" * (40 * MIB) + "}",
    "axes": lambda: json.dumps(samples.changed(samples.BASE, axes={f"a{n}": VAR for n in range(MANY // 2)})),
    "axes that follow": lambda: json.dumps(
        samples.changed(
            samples.BASE, axes={f"a{n}": {"type": "expr", "expression": f"a{n + 1} + 1"} for n in range(999)}
        )
    ),
    "axes that nest": lambda: json.dumps(
        samples.changed(samples.BASE, axes={f"a{n}": {"type": "var", "parent": f"a{n + 1}"} for n in range(999)})
    ),
    "unknown axes": lambda: json.dumps(
        samples.changed(
            samples.BASE,
            axes={f"axis_{n}": VAR for n in range(499)},
            inputs={"x": {"shape": [f"axes_{n}" for n in range(MANY)], "dtype": "float32"}},
        )
    ),
    "constraints": lambda: json.dumps(samples.changed(samples.BASE, constraints=[f"n == {n} +" for n in range(MANY)])),
    "long names": lambda: json.dumps(
        samples.changed(samples.BASE, axes={"n" * MIB: VAR}, inputs={"x": {"shape": ["m" * MIB], "dtype": "float32"}})
    ),
    "sources": lambda: json.dumps({**samples.GOOD, "sources": [{"path": "a.py", "content": ""}] * (MANY // 4)}),
    "long source": lambda: json.dumps(samples.changed(samples.BASE, reference="x = 1\n" * MIB)),
    "wrong calls": lambda: json.dumps(
        {"model": "m", "framework": "vLLM", "kernels": [{"id": "a", "count": -1}] * (MANY // 4)}
    ),
    "wrong conversation": lambda: json.dumps(
        {"model": "m", "annotation": "", "conversation": [{"role": "no", "content": 1}] * (MANY // 4)}
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_document_is_a_message_in_time(tmp_path, capsys, name):
    path = tmp_path / "a.json"
    path.write_text(LARGE[name]())
    start = time.perf_counter()
    assert main(["validate", str(path)]) == 1
    assert time.perf_counter() - start < 30
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) < 1500
    assert all(str(path) in line and len(line) < 3000 for line in lines)


@pytest.mark.parametrize("line", ["x", '{"a":1}', '{"workload": 1}', "[]"])
def test_a_file_of_many_wrong_lines_is_not_read_to_its_end(tmp_path, capsys, line):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{line}\n" * (4 * MIB))
    assert main(["validate", str(path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) <= MAX_FAULTY + 1
    assert any("the rest is not read" in line for line in told)


def test_a_file_of_very_many_lines_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_flashinfer.data.jsontext.MAX_LINES", 50)
    path = samples.write_lines(tmp_path / "a.jsonl", *[samples.LINE] * 60)
    read = load_traces(path)
    assert len(read) == 51
    assert "more than 50 lines" in str(read[-1].faults[0])
    assert MAX_LINES >= 10_000


def test_a_config_of_many_megabytes_is_not_parsed(tmp_path, capsys):
    (tmp_path / "config.toml").write_text("a = 1\n" * MIB)
    assert main(["validate", str(tmp_path / "config.toml")]) == 1
    assert "larger than 256 KiB" in capsys.readouterr().out


def test_no_name_is_looked_for_among_very_many_or_very_long_ones():
    assert nearest("hidden_sise", ["hidden_size", "seq_len"]) == "hidden_size"
    assert nearest("rmsnorm_h129", [f"rmsnorm_h{n}" for n in (512, 128, 192)]) == "rmsnorm_h128"
    assert nearest("hidden_sise", ["x" * 101, "hidden_size"]) == "hidden_size"
    assert nearest("h" * 101, ["h" * 100]) is None
    assert nearest("n1", [f"n{number}" for number in range(501)]) is None
