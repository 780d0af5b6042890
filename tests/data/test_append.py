"""Several processes may add lines to one file: each line is whole, and one that is to be there once is there once."""

import multiprocessing

import pytest

from pytest_flashinfer.data.append import append_once


def add(path, mine):
    for number in range(20):
        append_once(path, f"common {number} {'x' * 5000}".encode())
        append_once(path, f"{mine} {number} {'y' * 5000}".encode())


def test_what_processes_append_at_once_is_there_once_and_whole(tmp_path):
    path = tmp_path / "folder" / "a.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add, args=(path, name)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 20 * 5
    assert {len(line.split()[2]) for line in lines} == {5000}


@pytest.mark.parametrize(("before", "after"), [("", ""), ("a\n", "a\n"), ("a", "a\n"), ("a\r\n", "a\r\n")])
def test_the_last_line_is_ended_first(tmp_path, before, after):
    path = tmp_path / "a.jsonl"
    path.write_bytes(before.encode())
    assert append_once(path, b"b")
    assert not append_once(path, b"b")
    assert path.read_bytes() == f"{after}b\n".encode()


def test_a_line_that_ends_in_another_way_is_the_same(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"b\r\na")
    assert not append_once(path, b"b")
    assert not append_once(path, b"a")


def test_a_line_of_the_same_key_is_the_same(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"a 1\r\n")
    assert not append_once(path, b"a 2", lambda line: line[:1])
    assert append_once(path, b"b 2", lambda line: line[:1])
    assert path.read_bytes() == b"a 1\r\nb 2\n"


def test_a_place_that_cannot_be_written_is_an_error_of_the_system(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="File exists"):
        append_once(tmp_path / "file" / "a.jsonl", b"a")
