"""What the `search` fixture returns: the smallest sizes and inputs that break a solution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.statistics import collector

from pytest_flashinfer.data.constants import open_constants, pinned
from pytest_flashinfer.data.source import has_triton_kernels
from pytest_flashinfer.inputs.errors import InputsError, Unsatisfiable
from pytest_flashinfer.inputs.scalars.listed import sizes_and_scalars
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.grid import grid_of
from pytest_flashinfer.inputs.sizes.long_cases import length
from pytest_flashinfer.inputs.sizes.shrink import simpler
from pytest_flashinfer.inputs.sizes.strategies import case_strategy
from pytest_flashinfer.inputs.sizes.undecided import refuse_unknown
from pytest_flashinfer.judge.reference.origin import ReferenceFailed, Unfair
from pytest_flashinfer.judge.verdict import Verdict
from pytest_flashinfer.search import rechecks
from pytest_flashinfer.search.explanation import explained
from pytest_flashinfer.search.minimal_case import Outcome, Search
from pytest_flashinfer.search.notes import Notes
from pytest_flashinfer.search.pace import Growth, Pace, Spent
from pytest_flashinfer.search.saved import Drawn, Saved, key_of
from pytest_flashinfer.search.unjudged import Tally
from pytest_flashinfer.selection.scope import elements
from pytest_flashinfer.settings.declarations import SECONDS
from pytest_flashinfer.solution_call import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.recipe import Layout
    from pytest_flashinfer.judge.oracle.answers import Answers
    from pytest_flashinfer.run.session import FibSession
    from pytest_flashinfer.search.rechecks import CaseCheck
    from pytest_flashinfer.testing import UnderTest

LONG = 129  # size from which on Triton's interpreter may take minutes for what a card does at once
LEAST = 20  # cases for which there is more time
LARGE = 1 << 22  # elements of a definition at its smallest sizes, for whose calls a CPU takes long
ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 24}  # of all tensors of a drawn case, beyond what the constant axes need


class SizeSearch:
    """Draws cases for one item and runs a check on them, which calls `solution`.

    `ended` is called when nothing failed; it may raise for all cases together.
    """

    def __init__(  # noqa: PLR0913 - what an item has
        self,
        item: pytest.Item,
        definition: Definition,
        listed: Sequence[Workload],
        session: FibSession,
        solution: UnderTest,
        *,
        reference: Answers,
        ended: Callable[[], None] | None = None,
    ) -> None:
        options = session.options
        self.ended = ended
        self.item = item
        self.solution = solution
        self.reference = reference
        self.built = bool(solution.called)  # need not be built first
        self.listed = [sizes_and_scalars(workload) for workload in listed]
        self.stated = definition
        self.definition = pinned(definition, [workload.axes for workload in listed])
        self.options = options
        self.progress = session.progress
        self.layouts: tuple[Layout, ...] = ("contiguous",)
        if options.layouts == "strided":
            self.layouts += ("strided",)
        self.notes = Notes(item, definition.name, options.seconds, self.layouts)
        least = elements(definition, dict.fromkeys(definition.var_axes, 1))
        self.budget = 2 * least + ELEMENTS[session.device.kind]
        on_card = session.device.kind != "cpu"
        self.large = not on_card and least > LARGE
        sources = solution.solution.sources
        self.interpreted = not on_card and any(has_triton_kernels(source.content) for source in sources)

    def run(self, check: CaseCheck) -> None:
        """Search for a case in which `check` raises Failed; raises that of the smallest one found.

        A case whose inputs cannot be made, or which the reference itself cannot do, is not a case: where hardly any
        other is left, the item is skipped. Where calls are slow, most cases are called once only: another size tells
        more than another call.
        """
        self._refuse_undecided()
        tally = Tally(self.definition)
        pace = Pace(self.large)
        spent = Spent(self.solution, self.reference, pace)
        try:
            with collector.with_value(self.notes.statistics):  # type: ignore[arg-type]  # inferred from its default
                search = self._search(
                    lambda drawn: self._tried(check, drawn, pace, tally, search.expected(drawn)), tally, spent
                )
                found = search.run()
        except Unsatisfiable as error:
            pytest.skip(str(error))
        finally:
            self.progress.clear()
        self.notes.end(found)
        self.notes.compiled(spent.compiled, pace, failed=found.failure is not None)
        if found.failure is not None:
            alone = rechecks.passes_in_new_process(self.definition, found, self.solution, check)
            empty = rechecks.empty_axis(self.definition, found, check) if tally.telling else ""
            dense = rechecks.contiguous_too(self.definition, found, check)
            save = self.options.save_failures
            raise explained(self.item, self.stated, found, alone=alone, save=save, empty=empty, contiguous=dense)
        if self.notes.says_little(found):
            self._refuse_slow(found, spent)
        if (text := tally.too_little(found.tried)) is not None:
            pytest.skip(text)
        if self.ended is not None:
            self.ended()
        self.notes.little(found, tally)

    def _refuse_undecided(self) -> None:
        """Raise or skip where no case can be made or answered: a constant has no size, or the reference hangs."""
        if self.reference.hung:
            raise ReferenceFailed(self.reference.hung)
        if self.definition.init:  # which may show what size it is
            return
        waiting = open_constants(self.definition)
        if waiting:
            pytest.skip(f"axis `{waiting[0]}` is a constant without a value: state it in a workload")
        refuse_unknown(self.definition)

    def _tried(self, check: CaseCheck, drawn: Drawn, pace: Pace, tally: Tally, expected: float) -> Failed | None:
        """Return how a case failed, if it did; `tally` counts what could be judged and what not."""
        self.progress.step(f"case {pace.cases + 1}" + (": shrinking the failure" if pace.failing else ""))
        try:
            repeat = pace.repeats(expected)
            with pace:
                check(*drawn, repeat=repeat)
            tally.judged(*drawn)
        except (InputsError, ReferenceFailed) as error:
            tally.unjudged(error, drawn[1])
        except Failed as failed:
            if failed.case is None:
                raise  # it was not called at all: it does not build
            if not (self._takes_interpreter_long(failed, drawn) and tally.telling):
                pace.failing = True
                return failed
            tally.unjudged(failed, drawn[1])
        return None

    def _takes_interpreter_long(self, failed: Failed, drawn: Drawn) -> bool:
        """Whether a call may only have been too much for Triton's interpreter: who hangs does so on small sizes too."""
        slow = self.interpreted and failed.verdict.status == "TIMEOUT"
        return slow and max((drawn[0][name] for name in self.definition.var_axes), default=0) >= LONG

    def _refuse_slow(self, found: Outcome, spent: Spent) -> None:
        """Raise Failed where the solution's own calls took the time.

        Who sleeps on sizes that are not listed would pass otherwise. Triton's interpreter is as slow as that, and its
        compiler may be: there the item is skipped, which is no pass either.
        """
        text = (
            f"only {found.tried} cases could be tried in {spent.pace.seconds:.0f} s: the solution's calls took"
            f" {spent.calls:.1f} s, those of the reference {spent.native:.2g} s; give it more with --fib-seconds"
        )
        if spent.by_word:
            pytest.skip(f"{text}: {spent.calls - spent.own:.1f} s went to Triton's compiler, by the solution's word")
        if spent.by_kernel and self.interpreted:
            pytest.skip(f"{text}, or a card: Triton is interpreted here")
        if spent.by_kernel:
            raise Failed(Verdict("TIMEOUT", text))

    def _search(self, outcome: Callable[[Drawn], Exception | None], tally: Tally, spent: Spent) -> Search:
        forced = self.item.config.getoption("hypothesis_seed", None)
        grid = grid_of(self.definition, self.listed, self.budget)
        edges = edge_cases(self.definition, self.listed, self.budget, layouts=self.layouts, seed=self.options.seed)
        return Search(
            outcome,
            _worth_trying(edges, tally),
            case_strategy(self.definition, self.listed, self.budget, layouts=self.layouts, seed=self.options.seed),
            lambda drawn: simpler(self.definition, *drawn),
            self.options.examples,
            self.options.seconds,
            built=self.built,
            seed=self.options.seed if forced is None else None,
            run_seed=self.options.seed,
            saved=Saved(
                hypothesis.settings.default.database if hypothesis.settings.default else None,
                key_of(" ".join((self.item.nodeid, *self.layouts[1:]))),  # a layout replays where it is asked for
            ),
            saved_last=self.item.config.getoption("fib_seed", None) is not None,  # a seed brings its own cases again
            least=LEAST if self.options.seconds >= SECONDS else 0,
            stalls=lambda: self.options.seconds >= SECONDS and not self.interpreted and spent.by_kernel,
            length=lambda drawn: length(grid, *drawn),
            growth=Growth(dense=not grid.totals),
            sizes=lambda drawn: {  # how much there is to point at is no work
                name: size
                for name, size in drawn[0].items()
                if name not in grid.pools and name not in self.definition.const_axes
            },
        )


def _worth_trying(edges: Iterable[Drawn], tally: Tally) -> Iterator[Drawn]:
    """Yield cases, but for those with scalars that the reference turned out to refuse.

    Each one that turns out to be unfair is yielded once more with other values: no other may be of its family.
    """
    for axes, recipe in edges:
        if tally.refused(recipe):
            continue
        known = len(tally.errors)
        yield axes, recipe
        if any(isinstance(error, Unfair) for error in tally.errors[known:]):
            yield axes, recipe.with_seed_after(1)
