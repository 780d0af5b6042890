"""What the oracle is asked for while something else goes on."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.judge.oracle.client import HANDLER, Oracle
from pytest_flashinfer.judge.oracle.mutated_inputs import MUTATES, MutatedInputs
from pytest_flashinfer.judge.oracle.truth import OutputSpec
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


def test_what_was_begun_goes_on_where_it_is_begun_again(oracle, asked):
    one = inputs(1)
    oracle.begin(one, OUTPUTS)
    oracle.begin(one, OUTPUTS)
    assert native(oracle, one) == [2.0] * 4
    assert len(asked) == 1


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


MUTATOR = """
def run(x, state, again):
    state += x
    if again:
        x *= 2
    return state * 3
"""


@pytest.fixture
def mutator(tmp_path):
    pool = Pool("cpu", cache=tmp_path / "cache")
    told = []
    made = Oracle(pool.worker(HANDLER), "cpu", MutatedInputs("d", told.append))
    made.build(MUTATOR, tmp_path)
    yield made, told
    made.close()
    pool.close()


def values(*, again):
    return {"x": torch.ones(4), "state": torch.full((4,), 2.0), "again": again}


def test_inputs_that_the_reference_writes_into_are_learned_once(mutator, monkeypatch):
    oracle, told = mutator
    asked, begin = [], oracle.worker.begin
    monkeypatch.setattr(oracle.worker, "begin", lambda *request: asked.append(request) or begin(*request))
    given = values(again=False)
    oracle.begin(given, OUTPUTS)
    assert native(oracle, given) == [9.0] * 4, "on inputs that are laid down anew"
    assert native(oracle, given) == [9.0] * 4
    assert (len(asked), oracle.mutated.listed) == (3, ["state"])
    more = values(again=True)
    oracle.begin(more, OUTPUTS)
    assert oracle.shapes(more, OUTPUTS, seed=0)[0]["size"] == [4]
    assert native(oracle, more) == [9.0] * 4, "what was begun did not know of all"
    assert oracle.mutated.listed == ["state", "x"]
    assert [text.partition(",")[0] for text in told] == [
        "d: the reference writes into state",
        "d: the reference writes into x",
    ]


def test_rows_of_a_reference_that_mutates(mutator):
    oracle, told = mutator
    options = {"rows": ["x", "state"], "case": "one", "last": True, "seed": 0}
    found = oracle.ask_rows(values(again=False), OUTPUTS, slice(0, 4), **options)
    assert found.outputs["y"].native.tolist() == [9.0] * 4
    assert len(told) == 1


def test_names_that_are_no_inputs_are_not_taken_from_a_worker():
    told, asked = [], []
    mutated = MutatedInputs("d", told.append)

    def ask():
        asked.append(mutated.listed)
        raise CallFailed(MUTATES, "the reference writes into its inputs: weights, x: y, x\x1b")

    with pytest.raises(CallFailed):
        mutated.settled(inputs(1), ask)
    assert (asked, told) == ([[], []], [])
