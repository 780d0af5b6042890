"""What the oracle is asked for while something else goes on."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.asking import HANDLER, Oracle
from pytest_flashinfer.judge.truth import OutputSpec
from pytest_flashinfer.worker.errors import CallFailed
from pytest_flashinfer.worker.pool import Pool

SOURCE = "import torch\n\n\ndef run(x):\n    assert x[0] >= 0, 'odd'\n    return x * 2\n"
OUTPUTS = {"y": OutputSpec("float32", (4,))}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    pool = Pool("cpu", cache=tmp_path_factory.mktemp("cache"))
    made = Oracle(pool.worker(HANDLER), "cpu")
    made.build(SOURCE, tmp_path_factory.mktemp("reference"))
    yield made
    made.close()
    pool.close()


@pytest.fixture
def asked(oracle, monkeypatch):
    found, begin = [], oracle.worker.begin

    def noted(request, timeout):
        found.append(request)
        return begin(request, timeout)

    monkeypatch.setattr(oracle.worker, "begin", noted)
    return found


def inputs(fill):
    return {"x": torch.full((4,), float(fill))}


def native(oracle, values):
    return oracle.ask(values, OUTPUTS).outputs["y"].native.tolist()


def test_what_was_begun_is_not_asked_for_again(oracle, asked):
    one, two = inputs(1), inputs(2)
    oracle.begin(one, OUTPUTS)
    assert native(oracle, one) == [2.0] * 4
    assert len(asked) == 1
    assert native(oracle, two) == [4.0] * 4
    assert native(oracle, one) == [2.0] * 4
    assert len(asked) == 3


def test_what_was_begun_is_dropped_where_something_else_is_asked_for(oracle, asked):
    one, two, three = map(inputs, (1, 2, 3))
    oracle.begin(one, OUTPUTS)
    assert native(oracle, two) == [4.0] * 4
    assert native(oracle, one) == [2.0] * 4, "not what lies there by now"
    oracle.begin(one, OUTPUTS)
    oracle.begin(three, OUTPUTS)
    assert native(oracle, three) == [6.0] * 4
    assert oracle.shapes(one, OUTPUTS, seed=0)[0]["size"] == [4]
    assert len(asked) == 5


def test_what_was_begun_and_fails_says_so_when_it_is_asked_for(oracle):
    odd = inputs(-1)
    oracle.begin(odd, OUTPUTS)
    with pytest.raises(CallFailed, match="odd"):
        native(oracle, odd)
    oracle.begin(odd, OUTPUTS)
    assert native(oracle, inputs(1)) == [2.0] * 4
