"""Which items of a run stay together under pytest-xdist, and which process takes which card."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.run.distribution import Distribution, group_of, sharers, take_over_only, turn_of
from pytest_flashinfer.run.scheduler import BySolution, choose

FILE = "definitions/gemm/a.json"


@pytest.mark.parametrize(
    ("item", "group"),
    [
        ("test_correct[good-n4-w_0004]", (FILE, "good")),
        ("test_speed[good-n4-w_0004]", (FILE, "good")),
        ("test_sizes[good]", (FILE, "good")),
        ("test_sizes[v1.2_x]", (FILE, "v1.2_x")),
        ("test_reference[n4-w_0004]", (FILE, "")),
        ("test_schema", (FILE, "")),
    ],
)
def test_groups(item, group):
    assert group_of(f"{FILE}::{item}") == group


@pytest.mark.parametrize("nodeid", ["tests/test_a.py::test_correct[good]", "tests/test_a.py::test_b", "a.json"])
def test_items_of_other_files_stand_alone(nodeid):
    assert group_of(nodeid) == (nodeid, "")


@pytest.mark.parametrize(("processes", "cards", "share"), [(None, 4, 1), (4, 4, 1), (8, 1, 8), (5, 2, 3), (2, 0, 2)])
def test_processes_that_share_a_card_share_its_memory(processes, cards, share):
    told = {} if processes is None else {"workerinput": {"workercount": processes}}
    assert sharers(SimpleNamespace(**told), cards) == share


def test_a_process_goes_on_with_its_definition_then_takes_a_new_one_then_helps():
    waiting = ["a\nx", "b\nx", "a\ny", "c\nx"]
    assert choose(waiting, "c", {"a"}) == "c\nx"
    assert choose(waiting, "d", {"a", "b"}) == "c\nx"
    assert choose(waiting, None, {"a", "b", "c"}) == "a\nx"


class Node:
    shutting_down = False

    def __init__(self, name):
        self.gateway = SimpleNamespace(id=name)
        self.workerinput, self.ran, self.ended = {}, [], False

    def send_runtest_some(self, indices):
        self.ran += indices

    def shutdown(self):
        self.ended = self.shutting_down = True


class Config:
    option = SimpleNamespace(loadscopereorder=True)

    @staticmethod
    def getvalue(name):
        return ["2*popen"] if name == "tx" else None


def started(nodes, items):
    scheduler = BySolution(Config, SimpleNamespace(loadscopesched=lambda *_: None))
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, items)
    scheduler.schedule()
    return scheduler


def test_a_whole_run():
    """Two processes, three definitions: no solution is split, and at first no definition either."""
    items = [f"{name}.json::test_correct[{solution}-n{n}-w]" for name in "abc" for solution in "xyz" for n in range(3)]
    nodes = [Node("gw0"), Node("gw1")]
    scheduler = started(nodes, items)
    done = [0, 0]
    while not all(node.ended for node in nodes):
        for number, node in enumerate(nodes):
            if done[number] < len(node.ran):
                scheduler.mark_test_complete(node, node.ran[done[number]])
                done[number] += 1
    ran = [[items[index] for index in node.ran] for node in nodes]
    assert sorted(ran[0] + ran[1]) == sorted(items)
    groups = [list(OrderedDict.fromkeys(map(group_of, each))) for each in ran]
    assert not set(groups[0]) & set(groups[1])
    assert [[file for file, _ in each[:3]] for each in groups] == [["a.json"] * 3, ["b.json"] * 3]


@given(st.sets(st.integers(0, 7)), st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_an_item_that_crashes_its_process_is_run_once_and_all_others_are_run(crashing, counts):
    items = [f"a.json::test_correct[{name}-n{n}-w]" for name, k in zip("wxyz", counts, strict=False) for n in range(k)]
    nodes = [Node("gw0"), Node("gw1")]
    scheduler = started(nodes, items)
    ran, crashed = [], []
    while nodes:
        node = nodes.pop(0)
        if not node.ran:
            assert node.ended, "a process waits for ever"
            assert scheduler.remove_node(node) is None
            continue
        ran.append(node.ran.pop(0))
        assert ran.count(ran[-1]) == 1, "run again"
        if ran[-1] not in crashing:
            scheduler.mark_test_complete(node, ran[-1])
            nodes.append(node)
            continue
        crashed.append(scheduler.remove_node(node))
        other = Node("another")
        scheduler.add_node(other)
        scheduler.add_node_collection(other, items)
        scheduler.schedule()
        nodes.append(other)
    assert sorted(ran) == list(range(len(items)))
    assert crashed == [items[index] for index in ran if index in crashing]


@pytest.mark.parametrize(
    ("dist", "nodeid", "scope"),
    [
        ("load", f"{FILE}::test_sizes[x]", f"{FILE}\nx"),
        ("loadgroup", f"{FILE}::test_sizes[x]", f"{FILE}\nx"),
        ("loadgroup", "test_a.py::test_b@mine", "mine"),
        ("loadgroup", "test_a.py::test_b[x@y]", "test_a.py::test_b[x@y]\n"),
        ("load", "a@b/test_a.py::test_b", "a@b/test_a.py::test_b\n"),
    ],
)
def test_groups_of_the_users_own_stay_what_they_are(dist, nodeid, scope):
    own = SimpleNamespace(option=None, getvalue=lambda name: dist if name == "dist" else ["popen"])
    scheduler = BySolution(own, SimpleNamespace(loadscopesched=None))
    assert scheduler._split_scope(nodeid) == scope


def distribution(**option):
    return Distribution(SimpleNamespace(config=config(**option), options=SimpleNamespace(seed=7)))


def config(workerinput=None, **option):
    made = SimpleNamespace(option=SimpleNamespace(**option))
    if workerinput is not None:
        made.workerinput = workerinput
    return made


def test_one_process_a_card_also_after_a_crash():
    run = distribution()
    nodes = [Node(f"gw{number}") for number in range(4)]
    for node in nodes:
        run.pytest_configure_node(node)
    assert [node.workerinput["fib_turn"] for node in nodes] == [0, 1, 2, 3]
    assert nodes[0].workerinput["fib_seed"] == 7
    run.pytest_testnodedown(nodes[2])
    other = Node("gw4")
    run.pytest_configure_node(other)
    assert other.workerinput["fib_turn"] == 2, "the card of the process that ended"


@pytest.mark.parametrize(
    ("told", "name", "turn"), [(3, "gw1", 3), (None, "gw1", 1), (None, "mine", 0), (None, None, 0)]
)
def test_turns(monkeypatch, told, name, turn):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if name is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", name)
    assert turn_of(config({"fib_turn": told} if told is not None else {})) == turn


@pytest.mark.parametrize("dist", ["worksteal", "loadfile", "loadscope", "each"])
def test_another_way_that_was_asked_for_is_left_alone(dist):
    assert distribution().pytest_xdist_make_scheduler(SimpleNamespace(getvalue=lambda _: dist), None) is None


def test_benchmark_only_is_taken_over_where_pytest_benchmark_refuses_it():
    apart = config(dist="load", benchmark_only=True, benchmark_skip=True)
    assert take_over_only(apart)
    assert not apart.option.benchmark_only
    assert not apart.option.benchmark_skip
    assert not take_over_only(config(dist="no", benchmark_only=True))
    assert not take_over_only(config(dist="load", benchmark_only=False))
    told = config({"fib_benchmark_only": True}, benchmark_only=True)
    assert take_over_only(told)
    assert not told.option.benchmark_only
    assert not take_over_only(config({"fib_benchmark_only": False}))
