import json
import os
from pathlib import Path

import pytest

from pytest_flashinfer.data import jsontext
from pytest_flashinfer.data.jsontext import parse_json, read_json, read_json_lines

HERE = Path("x.json")

MENDS = [
    ('{"a": 1,}', 1, 8, "trailing comma: remove the ',' before '}'"),
    ('{"a": [1, 2,\n]}', 1, 12, "trailing comma: remove the ',' before ']'"),
    ('{"a": [1]\n "b": 2}', 1, 10, "missing comma"),
    ('{"a": 1 "b": 2}', 1, 8, "missing comma"),
    ('{"a": {"h == 2"}}', 1, 7, "a list stands in braces"),
    ("{'a': 1}", 1, 2, "double quotes"),
    ("{a: 1}", 1, 2, "keys take double quotes"),
    ('{"a": True}', 1, 7, "write true for True"),
    ('{"a": None}', 1, 7, "write null for None"),
    ('{"a": 1 // one\n}', 1, 9, "no comments"),
    ('{"a": 1, # one\n "b": 2}', 1, 10, "no comments"),
    ('{"a" 1}', 1, 5, "missing ':'"),
    ('{"a": [1, 2}', 1, 12, "'}' cannot close the '[' of line 1"),
    ('{"a": 1', 1, 7, "the line ends before the '}' that closes the '{' of column 1"),
    ('{"a":\n [1', 2, 3, "the file ends before the ']' that closes the '[' of line 2"),
    ('{"a":', 1, 5, "ends before the '}'"),
    ('["a": 1]', 1, 5, "inside [ ]"),
    ('{"a": 1}}', 1, 9, "one '}' too many"),
    ('{"a": 1}\n{"b": 2}', 2, 1, "a second document"),
    ('{"a": 1}I', 1, 9, "text after the end"),
    (' "a": 1}', 1, 2, "'{' is missing at the start"),
    ('"a": [1, 2', 1, 1, "'{' is missing at the start"),
    ('"a", 1}', 1, 4, "text after the end"),
    ('{"a": ...}', 1, 7, "'...' is not JSON"),
    ('{"a": "x\ny"}', 1, 9, "line break or control character"),
    ('{"a": "\\e"}', 1, 8, "invalid escape"),
    ('{"a": "b}', 1, 7, "never closed"),
    ('{"a": 1,, "b": 2}', 1, 9, "a value is missing"),
    ('{"a": @}', 1, 7, "is not a JSON value"),
    ('{"a"}', 1, 1, "a list stands in braces"),
    ('{"a": {"b", 3}}', 1, 8, 'the key "b" has no value'),
    ('{\n "a": 1,\n "",b": 2\n}', 3, 2, 'the key "" has no value'),
    ('{"a": 1,\n "b"\n}', 2, 2, 'the key "b" has no value'),
    ('{"a": 1,\n "b \\\\\\" c", 2}', 2, 2, 'the key "b \\\\\\" c" has no value'),
    ('{"a": 1,\n "\\\\" , 2}', 2, 2, 'the key "\\\\" has no value'),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), MENDS, ids=range(len(MENDS)))
def test_a_fault_has_its_place_and_the_likely_mend(text, line, column, message):
    document = parse_json(text, HERE)
    first = document.faults[0]
    assert (first.line, first.column) == (line, column)
    assert message in first.message
    assert document.value is None
    assert not document.readable


def test_all_syntax_faults_are_told_with_the_columns_of_the_file():
    text = '{\n  "a": ["x"\n   "y", "z",],\n  "b": {"p", "q"},\n  "c": 1 "d": 2,\n}'
    places = [(fault.line, fault.column) for fault in parse_json(text, HERE).faults]
    assert places == [(2, 12), (3, 12), (4, 8), (5, 9), (5, 16)]


def test_fault_reads_as_file_line_column_and_message():
    assert str(parse_json('{"a": 1,}', HERE).faults[0]).startswith("x.json:1:8: not JSON: trailing comma")


def test_positions_of_keys_elements_and_of_what_is_missing():
    document = parse_json('{"a": {"b": [1,\n  {"c": 2}]},\n "d":\n 3}', HERE)
    assert document.position(("a",)) == (1, 2)
    assert document.position(("a", "b", 0)) == (1, 14)
    assert document.position(("a", "b", 1)) == (2, 3)
    assert document.position(("a", "b", 1, "c")) == (2, 4)
    assert document.position(("d",)) == (3, 2)
    assert document.position(("a", "b", 1, "missing", 5)) == (2, 3)
    assert document.position(("missing",)) == (1, 1)


def test_positions_are_not_fooled_by_strings():
    document = parse_json(json.dumps({"a": '"]}{[,:\\', "é": [",", {"\n": 1}]}, indent=1), HERE)
    assert document.line_of(("é", 1, "\n")) == 6


def test_duplicate_keys_are_told_and_the_last_one_counts():
    document = parse_json('{"a": 1,\n "b": {"c": 1,\n "c": 2},\n "a": 3}', HERE)
    assert document.value == {"a": 3, "b": {"c": 2}}
    assert [(fault.line, fault.where) for fault in document.faults] == [(3, "b.c"), (4, "a")]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_nan_is_told_unless_it_is_let_pass(token):
    text = f'{{"a": [1, {token}]}}'
    assert parse_json(text, HERE).faults[0].where == "a[1]"
    assert not parse_json(text, HERE, nan_ok=True).faults


@pytest.mark.parametrize("token", ["1e999", "-1e999", "9" * 5000])
def test_numbers_beyond_reason_are_told(token):
    assert "too large" in parse_json(f'{{"a": {token}}}', HERE, nan_ok=True).faults[0].message


def test_half_a_surrogate_pair_is_refused():
    document = parse_json('{"a": "\\ud83d"}', HERE)
    assert "surrogate" in document.faults[0].message
    assert not document.readable
    assert parse_json('{"a": "\\ud83d\\ude00"}', HERE).value == {"a": "\U0001f600"}


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 150 + "]" * 150, '{"a":' * 500 + "1" + "}" * 500])
def test_deep_nesting_is_told(text):
    document = parse_json(text, HERE)
    assert document.value is None
    assert len(document.faults) == 1


def test_nesting_within_reason_is_read():
    assert parse_json("[" * 90 + "]" * 90, HERE).readable


def test_byte_order_mark_is_accepted_with_a_note(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a": 1,\n"b": 2}')
    document = read_json(path)
    assert document.value == {"a": 1, "b": 2}
    assert "byte-order mark" in document.notes[0]
    assert document.position(("a",)) == (1, 2)


@pytest.mark.parametrize("data", [b"", b"  \n\t", b"\xef\xbb\xbf"])
def test_empty_files_are_called_so(tmp_path, data):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert "empty file" in read_json(path).faults[0].message


@pytest.mark.parametrize(
    ("data", "message"), [(b'{"a": "\xe4"}', "not UTF-8: byte 0xe4"), ('{"a": 1}'.encode("utf-16"), "UTF-16")]
)
def test_other_encodings_are_told(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert message in read_json(path).faults[0].message


def test_what_cannot_be_opened_is_told(tmp_path):
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)  # opening it would wait for ever
    for path, message in ((tmp_path / "no.json", "No such file"), (loop, "cannot be read"), (pipe, "not a regular")):
        assert message in read_json(path).faults[0].message
        assert message in next(read_json_lines(path)).faults[0].message
    assert "not a regular file" in read_json(tmp_path).faults[0].message
    assert "cannot be read" in read_json(Path("a\0b")).faults[0].message


def test_files_over_the_limit_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": "x" * (2 << 20)}))
    assert read_json(path).readable
    monkeypatch.setattr(jsontext, "MAX_BYTES", 1 << 20)
    assert "larger than 1 MiB" in read_json(path).faults[0].message
    assert "more than 1 MiB" in next(read_json_lines(path)).faults[0].message


def test_lines_have_their_numbers_and_are_independent(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff{"a": 1}\n\n{"b": 2,}\r\n  \n{"c": {"d": 3}}', encoding="utf-8")
    first, second, third = read_json_lines(path)
    assert (first.value, first.line) == ({"a": 1}, 1)
    assert (second.faults[0].line, second.faults[0].column) == (3, 8)
    assert third.position(("c", "d")) == (5, 8)


def test_a_broken_line_of_bytes_does_not_stop_the_others(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": "\xff"}\n{"c": 3}\n')
    assert [document.readable for document in read_json_lines(path)] == [True, False, True]


def test_a_file_that_is_not_lines_is_given_up(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("{\n" * 1000)
    documents = list(read_json_lines(path))
    assert len(documents) == jsontext.MAX_BROKEN_LINES + 1
    assert "one whole object per line" in documents[-1].faults[0].message
