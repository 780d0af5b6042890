"""Documents made from the schemas, as they are and damaged: both commands end with messages of one line."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data import schema
from tests.data.from_schema import ANYTHING, documents
from tests.data.test_fuzz import ODD, paths

fuzzed = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
FILES = {"trace": "a.jsonl", "workload": "a.jsonl", "agent": "a.trace.json", "result": "a.jsonl"}


@st.composite
def damaged(draw, name):
    """A document of a schema with up to three of its parts replaced, removed, doubled or put elsewhere."""
    document = draw(documents(name))
    for _ in range(draw(st.integers(0, 3))):
        places = [path for path in paths(document) if path]
        if not places:
            break
        *above, last = draw(st.sampled_from(places))
        holder = document
        for step in above:
            holder = holder[step]
        action = draw(st.sampled_from(["replace", "move", "remove"]))
        if action == "replace":
            holder[last] = copy.deepcopy(draw(st.sampled_from(ODD) | ANYTHING))
        elif action == "move":
            holder[last] = copy.deepcopy(document)
        else:
            del holder[last]
    return document


def texts(document):
    """A document as text, or with a repeated key, NaN, bytes that are no UTF-8, deep nesting, or its end cut off."""
    plain = json.dumps(document).encode()
    return st.sampled_from([plain] * 6) | st.sampled_from(
        [
            plain.replace(b"{", b'{"name": 1, "name": 2, ', 1),
            plain.replace(b": ", b": NaN, ", 1),
            plain.replace(b'"', b'"\xff', 1),
            b'{"a": ' * 3000 + plain,
            plain[: len(plain) // 2],
            b"\xef\xbb\xbf" + plain,
            plain.decode().encode("utf-16"),
            plain.replace(b'"', b'"\\ud800', 1),
        ]
    )


@pytest.mark.parametrize("name", schema.NAMES)
@fuzzed
@given(data=st.data())
def test_both_commands_end_with_lines(name, tmp_path, capsys, data):
    path = tmp_path / FILES.get(name, "a.json")
    path.write_bytes(data.draw(texts(data.draw(damaged(name)))))
    assert main(["validate", "-v", str(path)]) in (0, 1)
    for target in ("out.json", "out.jsonl", "out"):
        assert main(["convert", "--force", str(path), str(tmp_path / target)]) in (0, 1, 2)
    told = capsys.readouterr()
    assert "internal error" not in told.err
    assert "Traceback" not in told.out + told.err
    assert all(line.isprintable() for line in (told.out + told.err).splitlines())


@pytest.mark.parametrize("name", ["definition", "trace", "workload", "solution", "agent"])
@fuzzed
@given(data=st.data())
def test_what_converts_says_the_same_again(name, tmp_path, capsys, data):
    """`convert` compares what it wrote with what it read, and says so where they differ: it never has to."""
    path = tmp_path / FILES.get(name, "a.json")
    path.write_text(json.dumps(data.draw(documents(name))))
    target = tmp_path / f"out{path.suffix}"
    main(["convert", "--force", str(path), str(target)])
    assert "does not read back" not in capsys.readouterr().err
