"""Several processes and cards, by pytest-xdist: who runs items, on which card, and which items stay together."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.run.session import FibSession

_ITEM: Final = re.compile(r"^(?P<file>.+\.json)::(?P<check>\w+)(\[(?P<solution>[^-\]]*))?")
_OF_A_SOLUTION: Final = frozenset({"test_correct", "test_sizes", "test_huge", "test_speed"})
SEED: Final = "fib_seed"  # these three are what workers are told
TURN: Final = "fib_turn"
ONLY: Final = "fib_benchmark_only"


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a process of pytest-xdist that runs items for another one, which has all results."""
    return hasattr(config, "workerinput")


def is_first_worker(config: pytest.Config) -> bool:
    """Whether this process is to say what each that collects could say: the first worker, or the only process."""
    return worker_input(config, "workerid") in (None, "gw0")


def worker_input(config: pytest.Config, name: str) -> Any:
    """Return what the process that distributes told this worker by that name; `None` where it did not, or is none."""
    return getattr(config, "workerinput", {}).get(name)


def distributes(config: pytest.Config) -> bool:
    """Whether this process has workers run items."""
    return getattr(config.option, "dist", "no") != "no" and not is_worker(config)


def lists_only(config: pytest.Config) -> bool:
    """Whether items are shown, and none is run."""
    option = config.option
    return bool(option.collectonly or option.setuponly or option.setupplan)


def runs_items(config: pytest.Config) -> bool:
    """Whether this process runs items itself, rather than to list them or to have others run them."""
    return not (lists_only(config) or distributes(config))


def turn_of(config: pytest.Config) -> int:
    """Return which card among the visible ones this process takes: one process a card while there are cards enough."""
    given = worker_input(config, TURN)
    if given is not None:
        return int(given)
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    return int(number) if number.isdecimal() else 0


def sharers(config: pytest.Config, cards: int) -> int:
    """Return how many processes of this run share a card, this one among them."""
    processes = int(worker_input(config, "workercount") or 1)
    return -(-processes // max(cards, 1))


def group_of(nodeid: str) -> tuple[str, str]:
    """Return the file of an item and what of it belongs together: all items of a solution, so that it is built once.

    The other items of a definition stand together as well; items of other files stand alone.
    """
    match = _ITEM.match(nodeid)
    if match is None:
        return nodeid, ""
    return match["file"], (match["solution"] or "") if match["check"] in _OF_A_SOLUTION else ""


class Distribution:
    """The hooks of the process that distributes, and what the others are told."""

    def __init__(self, session: FibSession) -> None:
        self.session = session
        self._turns: dict[str, int] = {}
        self._only = take_over_only(session.config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a process the seed that the header shows, and the first card that no living process has."""
        turn = next(number for number in range(len(self._turns) + 1) if number not in self._turns.values())
        self._turns[node.gateway.id] = turn
        node.workerinput |= {SEED: self.session.options.seed, TURN: turn, ONLY: self._only}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Free the card of a process that ended, or crashed: another takes its place."""
        self._turns.pop(node.gateway.id, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep a solution's items together: with `--dist=load`, as `-n` has it, and with other groups beside them."""
        if config.getvalue("dist") not in ("load", "loadgroup"):
            return None
        from pytest_flashinfer.run.scheduler import BySolution

        return BySolution(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
        """Leave out what is no timing where only timings were asked for."""
        skip = pytest.mark.skip(reason="Skipping non-benchmark (--benchmark-only active).")
        for item in items:
            if self._only and "benchmark" not in getattr(item, "fixturenames", ()):
                item.add_marker(skip)
        benchmarks = config.pluginmanager.get_plugin("pytest-benchmark")
        if benchmarks is not None and all(group_of(item.nodeid)[0] != item.nodeid for item in items):
            # What it would say, that nothing is timed under pytest-xdist, is not so here.
            benchmarks.note_xdist_benchmark = lambda: None


def take_over_only(config: pytest.Config) -> bool:
    """Return whether only timings are to run under pytest-xdist, where pytest-benchmark refuses to be asked that."""
    option, only = config.option, worker_input(config, ONLY)  # its options are read once more there
    distributed = only is not None or getattr(option, "dist", "no") != "no"
    if not distributed or not (only or getattr(option, "benchmark_only", False)):
        return False
    option.benchmark_only = option.benchmark_skip = False
    return True
