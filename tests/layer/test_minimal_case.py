"""The search for the smallest failing case: its order, its bounds and what it remembers."""

from __future__ import annotations

from types import SimpleNamespace

import hypothesis.core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.search import minimal_case as module
from pytest_flashinfer.search.minimal_case import Search
from pytest_flashinfer.search.pace import Growth
from pytest_flashinfer.search.saved import Saved, key_of, text_of

DRAWS = st.tuples(st.fixed_dictionaries({"n": st.integers(0, 1000)}), st.just(Recipe(0)))
KEY = key_of("definitions/a.json::test_sizes[one]")


class Wrong(Exception):  # noqa: N818 - says what happened
    """A failure; `status` is that of its verdict."""

    def __init__(self, n, status="INCORRECT_NUMERICAL"):
        super().__init__(n)
        self.verdict = SimpleNamespace(status=status)


class Clock:
    """A clock that stands still unless a check takes time."""

    def __init__(self):
        self.reading = 0.0

    def monotonic(self):
        return self.reading


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


class Kernel:
    """What is searched: wrong from a size on; notes the sizes that it was called with."""

    def __init__(self, wrong_from=None, *, status="INCORRECT_NUMERICAL", clock=None, seconds=()):
        self.wrong_from, self.status = wrong_from, status
        self.clock, self.seconds = clock, iter(seconds)
        self.sizes = []

    def __call__(self, drawn):
        n = drawn[0]["n"]
        self.sizes.append(n)
        if self.clock is not None:
            self.clock.reading += next(self.seconds, 1.0)
        return Wrong(n, self.status) if self.wrong_from is not None and n >= self.wrong_from else None


def case(n):
    return {"n": n}, Recipe(0)


def less(drawn):
    n = drawn[0]["n"]
    return [case(m) for m in (n // 2, n - 1) if 0 <= m < n]


def run(kernel, *edges, simpler=less, examples=50, seconds=60.0, **more):
    return Search(kernel, [case(n) for n in edges], DRAWS, simpler, examples, seconds, **more).run()


def test_edges_come_first_and_in_order():
    kernel = Kernel()
    run(kernel, 5, 1, 900, 2)
    assert kernel.sizes[:4] == [5, 1, 900, 2]
    assert len(kernel.sizes) > 20, "hypothesis draws the others"


def test_no_case_is_checked_twice():
    kernel = Kernel()
    outcome = run(kernel, 5, 1, 5, 1)
    assert len(set(kernel.sizes)) == len(kernel.sizes) == outcome.tried


@pytest.mark.parametrize("examples", [0, 1, 3, 4, 17])
def test_no_more_cases_than_asked_for(examples):
    kernel = Kernel()
    outcome = run(kernel, 7, 8, 9, examples=examples)
    assert outcome.tried == len(kernel.sizes) <= examples
    assert kernel.sizes[:3] == [7, 8, 9][:examples]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000))
def test_a_failing_edge_is_simplified_to_the_smallest(wrong_from):
    kernel = Kernel(wrong_from)
    outcome = run(kernel, 1000)
    assert outcome.smallest == case(wrong_from)
    assert outcome.failure.args == (wrong_from,)
    assert len(kernel.sizes) == outcome.tried
    assert max(map(kernel.sizes.count, kernel.sizes)) <= 3, "a size has some seeds, and no case is tried twice"


def test_smaller_sizes_are_tried_with_other_contents():
    """Contents are drawn anew with the sizes: what fails by a rare value need not fail at the next size's first."""
    seeds = []

    def check(drawn):
        seeds.append(drawn[1].seed)
        return Wrong(drawn[0]["n"]) if (drawn[1].seed + drawn[0]["n"]) % 3 == 0 else None

    def halves(drawn):
        return [({"n": drawn[0]["n"] // 2}, drawn[1])] if drawn[0]["n"] else []

    outcome = Search(check, [({"n": 64}, Recipe(2))], DRAWS, halves, 100, 60.0, seed=1).run()
    assert outcome.smallest[0] == {"n": 0}
    assert set(seeds) >= {2, 3, 4}


@pytest.mark.parametrize("wrong_from", [1, 13, 500])
def test_a_drawn_failure_is_shrunk_to_the_smallest(wrong_from):
    outcome = run(Kernel(wrong_from), simpler=lambda _: [], examples=100, seed=1)
    assert outcome.smallest == case(wrong_from)
    assert outcome.failure.args == (wrong_from,)


def test_what_hypothesis_shrank_is_simplified_further():
    """Choices that are simple to hypothesis need not be small sizes."""
    backwards = DRAWS.map(lambda drawn: case(1000 - drawn[0]["n"]))
    outcome = Search(Kernel(13), [], backwards, less, 50, 60.0, seed=1).run()
    assert outcome.smallest == case(13)


@pytest.mark.parametrize("seconds", range(0, 30, 3))
@pytest.mark.parametrize("wrong_from", [None, 3, 300, 990])
def test_out_of_time_never_looks_flaky(clock, seconds, wrong_from):
    """Wherever time runs out, the search ends with a pass or with a failure that was seen."""
    kernel = Kernel(wrong_from, clock=clock)
    outcome = run(kernel, 1, 2, seconds=seconds, seed=5)
    assert (outcome.failure is None) == (outcome.smallest is None)
    assert outcome.failure is None or outcome.failure.args == (outcome.smallest[0]["n"],)
    assert (outcome.failure is not None) == any(wrong_from is not None and n >= wrong_from for n in kernel.sizes)
    assert len(kernel.sizes) <= 1 + seconds + 1 + module.SHRINK_SECONDS + 1


def test_time_that_ran_out_is_said(clock):
    assert run(Kernel(clock=clock), *range(20), seconds=5).out_of_time
    assert not run(Kernel(clock=clock), *range(20), seconds=50, examples=20).out_of_time
    assert run(Kernel(clock=clock), 1, 2, 3, seconds=1.5).out_of_time, "with the last edge, before anything is drawn"


def test_nothing_is_drawn_once_time_is_up(clock):
    kernel, drawn = Kernel(clock=clock), []
    counted = DRAWS.map(lambda one: drawn.append(one) or one)
    outcome = Search(kernel, [], counted, less, 100, 5.0, seed=1).run()
    assert outcome.out_of_time
    assert outcome.tried <= len(drawn) < 20


@pytest.mark.parametrize("edges", [(), (7,)], ids=["drawn", "edge"])
@pytest.mark.parametrize("seconds", [1e-9, -1.0])
def test_one_case_is_tried_however_little_time_there_is(edges, seconds):
    """Of a solution that is built already time counts from the start, and may be over before the first case."""
    kernel = Kernel(wrong_from=0)
    listed = [({"n": n}, Recipe(0)) for n in edges]
    outcome = Search(kernel, listed, DRAWS, less, 100, seconds, built=True, seed=1).run()
    assert outcome.failure is not None
    assert outcome.tried > 0


def test_building_is_not_taken_from_the_time(clock):
    """The first case waits until processes have started and the solution is built."""
    kernel = Kernel(9, clock=clock, seconds=[1000.0])
    assert run(kernel, *range(10), seconds=20).smallest == case(9)
    kernel = Kernel(9, clock=clock, seconds=[1000.0])
    assert run(kernel, *range(10), seconds=20, built=True).tried == 1, "what is built has its time from the start"


def test_a_case_that_took_all_the_time_alone_is_given_back_once(clock):
    """What grows with the square of a size is known to only once it was called with a large one."""
    kernel = Kernel(clock=clock, seconds=[1.0, 1.0, 90.0, 1.0, 1.0, 90.0])
    outcome = run(kernel, 2, 3, 4000, 4, 5, 4001, 6, 7, 8, seconds=10.0, least=20)
    assert kernel.sizes[:5] == [2, 3, 4000, 4, 5]
    assert clock.reading < 200.0
    assert outcome.smallest is None


def test_a_failure_that_took_longer_than_the_time_counts(clock):
    kernel = Kernel(3, clock=clock, seconds=[1.0, 100.0])
    assert run(kernel, 1, 3, seconds=10).smallest == case(3)


@pytest.mark.parametrize("edges", [[900], []], ids=["an edge", "a draw"])
def test_a_call_that_hangs_is_not_tried_again_on_simpler_cases(clock, edges):
    kernel = Kernel(2, status="TIMEOUT", clock=clock)
    outcome = run(kernel, *edges, seed=1)
    assert outcome.failure.verdict.status == "TIMEOUT"
    assert sum(n >= 2 for n in kernel.sizes) == 1
    assert outcome.smallest == case(kernel.sizes[-1])


def test_a_second_run_starts_at_the_failure_of_the_first():
    database = InMemoryExampleDatabase()
    assert run(Kernel(37), 900, saved=Saved(database, KEY)).smallest == case(37)
    again = Kernel(37)
    assert run(again, 900, saved=Saved(database, KEY)).smallest == case(37)
    assert again.sizes[0] == 37
    assert 900 not in again.sizes


def test_a_known_failure_waits_where_the_run_shall_be_as_it_was():
    database = InMemoryExampleDatabase()
    run(Kernel(37), 900, saved=Saved(database, KEY))
    again = Kernel(37)
    assert run(again, 900, saved=Saved(database, KEY), saved_last=True).smallest == case(37)
    assert again.sizes[0] == 900
    rare = lambda drawn: Wrong(37) if drawn[0]["n"] == 37 else None  # noqa: E731
    found = run(rare, 900, saved=Saved(database, KEY), saved_last=True, examples=3)
    assert found.smallest == case(37), "a printed command has the failure again, if later"


def test_a_known_failure_has_the_seed_of_the_run_that_found_it():
    """The command that is printed has it again where nothing is known of it, as on another machine."""
    database = InMemoryExampleDatabase()
    for seed in (7, 8, 9, 7):
        found = run(Kernel(37), 900, run_seed=seed, saved=Saved(database, KEY))
        assert (found.run, found.earlier) == (7, seed != 7)
    assert run(Kernel(30), 900, run_seed=9, saved=Saved(InMemoryExampleDatabase(), KEY)).run == 9
    assert run(Kernel(37), 900, run_seed=9, saved=Saved(database, KEY), saved_last=True).run == 9
    old = InMemoryExampleDatabase()
    old.save(KEY, text_of(case(37)).encode())
    assert run(Kernel(37), 900, run_seed=9, saved=Saved(old, KEY)).run == 9, "from before seeds were saved"


def test_a_known_failure_counts_however_long_it_takes(clock):
    """A kernel that hangs takes longer than the search may: it fails on every run, not on every other one."""
    database = InMemoryExampleDatabase()
    for _ in range(3):
        kernel = Kernel(2, status="TIMEOUT", clock=clock, seconds=[60.0])
        assert run(kernel, 900, seconds=10, saved=Saved(database, KEY)).smallest == case(900)


def test_a_known_failure_is_tried_whatever_the_number_of_examples():
    database = InMemoryExampleDatabase()
    run(Kernel(37), 900, saved=Saved(database, KEY))
    assert run(Kernel(37), saved=Saved(database, KEY), examples=1).smallest == case(37)


def test_a_mended_kernel_is_forgotten():
    database = InMemoryExampleDatabase()
    run(Kernel(37), 900, saved=Saved(database, KEY))
    assert run(Kernel(), saved=Saved(database, KEY), examples=5).failure is None
    assert list(database.fetch(KEY)) == []


def test_what_was_not_tried_again_is_kept(clock):
    database = InMemoryExampleDatabase()
    for n in (37, 38, 951):
        database.save(KEY, text_of(case(n)).encode())
    assert run(Kernel(clock=clock), saved=Saved(database, KEY), examples=0).tried == 0
    assert len(set(database.fetch(KEY))) == 3
    assert run(Kernel(clock=clock), seconds=0.5, saved=Saved(database, KEY)).tried == 2
    assert set(database.fetch(KEY)) == {text_of(case(951)).encode()}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"axes": {"n": 1}}', b'{"axes": 1, "recipe": {}}'])
def test_an_entry_that_cannot_be_read_is_deleted(text):
    database = InMemoryExampleDatabase()
    database.save(KEY, text)
    assert run(Kernel(), 1, saved=Saved(database, KEY), examples=1).tried == 1
    assert list(database.fetch(KEY)) == []


def test_items_do_not_share_failures():
    database = InMemoryExampleDatabase()
    run(Kernel(37), 900, saved=Saved(database, KEY))
    other = Kernel(37)
    run(other, 900, saved=Saved(database, key_of("definitions/a.json::test_sizes[two]")))
    assert other.sizes[0] == 900


def test_a_seed_decides_the_draws():
    def draws(seed):
        kernel = Kernel()
        run(kernel, seed=seed)
        return kernel.sizes

    assert draws(1) == draws(1) != draws(2)


def test_without_a_seed_that_of_hypothesis_does(monkeypatch):
    def draws(seed):
        monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)
        kernel = Kernel()
        run(kernel)
        return kernel.sizes

    assert draws(1) == draws(1) != draws(2)


def test_an_error_in_the_check_itself_is_not_a_failure_of_the_kernel():
    def check(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(check)


def test_an_error_that_is_no_failure_ends_the_search_at_once():
    """A card that others use, or too little memory, says nothing about a case, and trying again takes long."""
    asked = []

    def check(drawn):
        asked.append(drawn[0]["n"])
        if len(asked) == 4:
            raise OSError("the card was not free for 1800 s")

    with pytest.raises(OSError, match="not free"):
        run(check, 1, 2)
    assert len(asked) == 4


def test_a_case_that_would_take_most_of_the_time_is_left_out(clock):
    kernel = Kernel(clock=clock, seconds=[1.0, 0.1, 0.1, 0.1])
    edges = [case(n) for n in (2, 5, 10, 300, 20)]
    Search(kernel, edges, DRAWS, less, examples=5, seconds=10.0).run()
    assert kernel.sizes[:4] == [2, 5, 10, 20]  # 300 at 10 ms for each unit are 3 of the 9.8 seconds that are left


def test_each_axis_has_a_pace_of_its_own(clock):
    """A reference may loop over one axis: what is quick along another says nothing of it."""
    seconds = {"quick": 1e-4, "slow": 1e-2}
    sizes = []

    def check(drawn):
        sizes.append(drawn[0])
        clock.reading += sum(seconds[name] * size for name, size in drawn[0].items())

    wanted = ((1, 1), (100, 1), (1, 10), (4000, 1), (1, 4000), (2, 20))
    edges = [({"quick": quick, "slow": slow}, Recipe(0)) for quick, slow in wanted]
    Search(check, edges, DRAWS, less, examples=5, seconds=10.0).run()
    assert {"quick": 4000, "slow": 1} in sizes
    assert {"quick": 1, "slow": 4000} not in sizes
    assert {"quick": 2, "slow": 20} in sizes


@pytest.mark.parametrize(("least", "tried"), [(0, 3), (4, 4), (10, 8)])
def test_who_makes_each_case_last_gets_more_time(clock, least, tried):
    kernel = Kernel(clock=clock, seconds=[4.0] * 20)
    edges = [case(n) for n in (1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9)]
    outcome = Search(kernel, edges, DRAWS, less, examples=50, seconds=10.0, built=True, least=least).run()
    assert outcome.tried == tried
    assert outcome.out_of_time


def test_small_cases_that_take_long_say_nothing_of_larger_ones(clock):
    """Each call has its price whatever the size, and the first one starts processes."""
    kernel = Kernel(clock=clock, seconds=[3.0, 0.5, 0.5, 0.5])
    edges = [case(n) for n in (17, 1, 16, 5)]
    Search(kernel, edges, DRAWS, less, examples=4, seconds=5.0).run()
    assert kernel.sizes == [17, 1, 16, 5]


@pytest.mark.parametrize(
    ("stalls", "slow", "tried"),
    [(True, 0.5, [257]), (False, 0.5, []), (True, 1.0, [129]), (True, 9.0, [])],
    ids=["the kernel's calls", "other work", "a smaller one", "too slow for any"],
)
def test_who_makes_small_cases_last_is_tried_with_a_large_one(clock, stalls, slow, tried):
    kernel = Kernel(100, clock=clock, seconds=[slow] * 100)
    edges = [case(n) for n in (5, 1, 3, 9, 17, 129, 257, 4097)]
    small = st.tuples(st.fixed_dictionaries({"n": st.integers(0, 17)}), st.builds(Recipe, seed=st.integers(0, 999)))
    found = Search(kernel, edges, small, less, 100, 10.0, built=True, seed=1, stalls=lambda: stalls).run()
    assert [n for n in kernel.sizes if n > 128][:1] == tried
    assert (found.failure is not None) == bool(tried)
    assert len(kernel.sizes) >= 10 or slow > 1


def test_what_counts_as_long_is_the_longest_sequence(clock):
    """A batch of 129 tells nothing of long sequences; `length` knows how long they are."""
    kernel = Kernel(clock=clock, seconds=[0.5, 9.6])
    sizes = {"n": 129, "keys": 1}, {"n": 1, "keys": 3}, {"n": 3, "keys": 1}, {"n": 2, "keys": 150}
    edges = [(each, Recipe(0)) for each in sizes]
    search = Search(kernel, edges, DRAWS, less, 100, 10.0, built=True, seed=1, stalls=lambda: True,
                    length=lambda drawn: drawn[0].get("keys", 1))  # fmt: skip
    search.run()
    assert kernel.sizes == [129, 1, 2]


def test_a_large_case_is_not_tried_after_another(clock):
    kernel = Kernel(clock=clock, seconds=[1.0] * 100)
    run(kernel, 200, *range(1, 33), 129, examples=100, seconds=10.0, stalls=lambda: True)
    assert 129 not in kernel.sizes


def test_what_is_drawn_with_several_large_sizes_is_left_out_where_it_would_take_all_the_time(clock):
    """As attention in an interpreter does, whose time grows with the product."""
    tried = []

    def check(drawn):
        tried.append(drawn[0]["n"] * drawn[0]["m"])
        clock.reading += tried[-1] * 2e-3

    edges = [({"n": n, "m": m}, Recipe(0)) for n, m in ((5, 5), (1, 1), (60, 5), (5, 60))]
    sizes = st.fixed_dictionaries({"n": st.integers(1, 200), "m": st.integers(1, 200)})
    draws = st.tuples(sizes, st.builds(Recipe, seed=st.integers(0, 999)))
    found = Search(check, edges, draws, lambda drawn: [], 100, 10.0, built=True, seed=1).run()
    assert found.failure is None
    assert 10.0 <= clock.reading < 20.0
    assert 500 < max(tried) <= 5000


def test_of_dense_sizes_all_count():
    growth = Growth(dense=True)
    growth.note({"batch": 1, "keys": 150}, 1.5)
    assert growth.by_axis({"batch": 1, "keys": 300}) == pytest.approx(3)
    assert growth.by_axis({"batch": 20, "keys": 300}) == pytest.approx(60)
    growth.note({"batch": 16, "keys": 8}, 1.6)
    assert growth.by_axis({"batch": 32, "keys": 4}) == pytest.approx(3.2)
    assert growth.by_axis({"batch": 32, "keys": 12}) == pytest.approx(3.84)


def test_several_sizes_take_no_longer_than_their_volume_unless_the_largest_alone_does():
    growth = Growth(dense=True)
    growth.note({"batch": 5, "queries": 5, "keys": 5}, 0.1)
    growth.note({"batch": 1, "queries": 2, "keys": 150}, 0.3)
    assert growth.by_axis({"batch": 4, "queries": 40, "keys": 50}) == pytest.approx(6.4)
    assert growth.by_axis({"batch": 1, "queries": 1, "keys": 4000}) == pytest.approx(8)


def test_of_sequences_and_all_their_tokens_only_one_counts():
    growth = Growth()
    growth.note({"sequences": 2, "tokens": 100}, 1.0)
    assert growth.by_axis({"sequences": 50, "tokens": 200}) == pytest.approx(2)
