"""A finite list of cases, the most telling and smallest first: what is tried before anything random."""

from __future__ import annotations

from itertools import chain, islice, repeat, zip_longest
from typing import TYPE_CHECKING, Any, Final

from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.grid import MORE_SIZES, SIZES, Grid, grid_of
from pytest_flashinfer.inputs.recipe import Layout, Recipe, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition

Case = tuple[dict[str, int], Recipe]
_Wish = tuple[dict[str, int], dict[str, Any]]  # sizes, and what differs from the plain recipe
_EDGES: Final = 72
_SEEDS: Final = (1 << 31) - 1
_LARGEST: Final = (4097, 2049, 1025)
_WAITS: Final = 9  # sizes of each axis that come before the largest: by then it shows how long that would take
_SMALL_CONSTANT: Final = 512
_FIRST: Final = ("stale_nan", "shared", "empty")  # where calls are slow, few cases are tried
_FIRST_LONG: Final = 4
_TELLING: Final = ("zero_rows", "tiny", "large", "negative", "ties", "big_row")


def edge_cases(  # noqa: PLR0913 - all but one have defaults
    definition: Definition, listed: Sequence[Mapping[str, Scalar]] = (), max_elements: int = 0, *,
    layouts: Sequence[Layout] = ("contiguous",), limit: int = _EDGES, seed: int = 0,
) -> list[Case]:  # fmt: skip
    """Return up to `limit` cases in the order in which they should be tried; of another `seed` only contents differ.

    `listed` are the sizes and scalars of the definition's workloads, `max_elements` bounds the elements of all tensors
    of a case. Raises Unsatisfiable where no sizes satisfy the constraints.
    """
    grid = grid_of(definition, listed, max_elements)
    grid.settled(grid.base)  # says at once where nothing can be satisfied
    cases: list[Case] = []
    for wish, changes in _wishes(grid, layouts):
        case = _case(grid, wish, changes, (seed + len(cases)) & _SEEDS)
        if case is not None and not any(case[0] == have[0] and _same(case[1], have[1]) for have in cases):
            cases.append(case)
        if len(cases) >= limit:
            break
    return cases


def _case(grid: Grid, wish: Mapping[str, int], changes: Mapping[str, Any], seed: int) -> Case | None:
    try:
        axes = grid.settled(wish)
    except InputsError:
        return None
    recipe = Recipe(**{"seed": seed, "structure": grid.structures[0], **changes})
    return (axes, recipe) if grid.fits(axes) else None


def _same(one: Recipe, other: Recipe) -> bool:
    return {**one.to_json(), "seed": 0} == {**other.to_json(), "seed": 0} and one.family == "normal"


def _wishes(grid: Grid, layouts: Sequence[Layout]) -> Iterator[_Wish]:
    """Yield cases in rounds: small sizes with every structure and family, then sizes, then both together."""
    base, other = grid.base, [layout for layout in layouts if layout != "contiguous"]
    yield base, {}
    yield dict.fromkeys(base, 1), {}
    yield from ((base, {"layout": layout}) for layout in other)
    yield from ((base, {"structure": name}) for name in _FIRST if name in grid.structures)
    yield from islice(_long(grid), 0, _FIRST_LONG, 2)
    large = chain(repeat(None, _WAITS * len(grid.contract.free)), _largest(grid))
    yield from _woven(_structures(grid), _families(grid), _scalars(grid), _sizes(grid, SIZES), _absent(grid), large)
    yield from _sizes(grid, _square(grid))
    yield from _woven(_long(grid), _families_again(grid), _sizes(grid, _past_listed(grid)))
    yield from _sizes(grid, MORE_SIZES)


def _woven(*rounds: Iterator[_Wish | None]) -> Iterator[_Wish]:
    return (wish for wish in chain.from_iterable(zip_longest(*rounds)) if wish is not None)


def _structures(grid: Grid) -> Iterator[_Wish]:
    yield from ((grid.base, {"structure": name}) for name in grid.structures[1:])
    if "all_padded" in grid.structures:  # a single row is padded in no other structure
        yield dict.fromkeys(grid.base, 1), {"structure": "all_padded"}


def _families(grid: Grid) -> Iterator[_Wish]:
    return ((grid.base, {"family": name}) for name in grid.families[1:])


def _scalars(grid: Grid) -> Iterator[_Wish]:
    for name, values in grid.scalars.items():
        for value in values:
            yield grid.base, {"scalars": {name: value}}


def _absent(grid: Grid) -> Iterator[_Wish]:
    if grid.optional:
        yield grid.base, {"absent": frozenset(grid.optional)}
    if len(grid.optional) > 1:
        yield from ((grid.base, {"absent": frozenset({name})}) for name in grid.optional)


def _order(grid: Grid) -> list[str]:
    """Free axes, those first that say how much work there is."""
    def rank(name: str) -> tuple[bool, bool]:
        return (name in grid.pools, name not in grid.counts and name not in grid.totals and grid.lowest(name) > 0)

    return sorted(grid.contract.free, key=rank)


def _sizes(grid: Grid, sizes: Sequence[int]) -> Iterator[_Wish]:
    """Yield one size after the other for each axis; where sequences are few, one of them takes the whole total."""
    for number, value in enumerate((*sizes[:1], 0, *sizes[1:])):
        for name in _order(grid):
            if value < grid.lowest(name):
                continue
            long = "one_long" in grid.structures and name in grid.totals and number % 2
            yield grid.scaled(name, value), {"structure": "one_long"} if long else {}


def _largest(grid: Grid) -> Iterator[_Wish]:
    """Yield one large size for each axis, all else as small as can be: bounds of single blocks show there."""
    for name in _order(grid):
        for value in _LARGEST if name not in grid.pools else ():
            wish = {**dict.fromkeys(grid.base, 1), name: value}
            if name in grid.totals:
                wish.update(dict.fromkeys(grid.counts, 2))
            try:
                fits = grid.fits(grid.settled(wish))
            except InputsError:
                continue
            if fits:
                yield wish, {"structure": "one_long"} if "one_long" in grid.structures else {}
                break


def _square(grid: Grid) -> list[int]:
    """Return sizes that constant axes have: a kernel that takes one axis for the other is only shown up elsewhere."""
    sizes = {n for n in grid.contract.constants.values() if 1 < n <= _SMALL_CONSTANT}
    return sorted(sizes - {*SIZES, *MORE_SIZES})[-3:]


def _past_listed(grid: Grid) -> list[int]:
    free = set(grid.contract.free) & set(grid.contract.axis_names)
    seen = {n for sizes in grid.listed for name, n in sizes.items() if name in free and isinstance(n, int)}
    return sorted(n + 1 for n in seen)[-4:]


def _long(grid: Grid) -> Iterator[_Wish]:
    """Yield cases in which one sequence is long: bounds on the length of a sequence show there."""
    for value in (17, 33, 67, 129, 257):
        for axis in grid.totals:
            wish = {**grid.base, **dict.fromkeys(grid.counts, min(2, *(grid.base[n] for n in grid.counts)))}
            yield {**wish, axis: value}, {"structure": "one_long"}
            yield {**grid.base, axis: 2 * value}, {}


def _families_again(grid: Grid) -> Iterator[_Wish]:
    """Yield the families that tell most at a larger size, on the structures that tell most."""
    order = _order(grid)
    for number, name in enumerate(n for n in _TELLING if n in grid.families):
        wish = {**grid.base, **grid.scaled(order[0], 33)} if order else grid.base
        structure = grid.structures[(number + 1) % len(grid.structures)]
        yield wish, {"family": name, "structure": structure}
