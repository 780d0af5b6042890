"""Language honesty: whose kernels ran on the card, by the names that the device clock recorded."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from pytest_flashinfer.data.model import Solution

CUSTOM = ("triton", "cuda", "tilelang", "cutedsl", "cutile", "cutlass")  # languages that promise kernels of their own
MOST = 0.5  # share of device time that library kernels may take in such a solution
NAMED = ("triton", "cuda")  # of which every kernel is named as in the source; other compilers make up names
_LIBRARY = re.compile(
    r"^(void )?(at|c10|cub|thrust|cudnn|cublas\w*|pytorch_flash)::|^_ZN(2at|3c10|3cub|6thrust|5cudnn|6cublas)"
    r"|^(void )?\(anonymous namespace\)::softmax_warp_\w+<"  # torch's own
    r"|^(void )?(nvjet|sm\d+_xmma|volta_|turing_|ampere_|hopper_|cublas|cudnn|gemv\w*<|gemmk1_|splitKreduce_)"
)
_ATTRIBUTE = re.compile(r"\b(__\w+__|alignas)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")  # __launch_bounds__(...)
_GLOBAL = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\(")
_TEMPLATE = re.compile(r"<[^<>]*>")
_MOVES = re.compile(r"^mem(cpy|set)\b", re.IGNORECASE)  # copies and fills: nobody's work


@dataclass(frozen=True)
class Share:
    """Device time by kernel name, the longest first, and the share of it that is not the solution's own."""

    kernels: tuple[tuple[str, float], ...]
    library: float

    @property
    def text(self) -> str:
        """The kernels that ran, in one line."""
        total = sum(seconds for _, seconds in self.kernels) or 1.0
        return ", ".join(f"{_short(name)} {seconds / total:.0%}" for name, seconds in self.kernels[:4])


def share(solution: Solution, ran: Iterable[tuple[str, float]]) -> Share | None:
    """Attribute `ran`, kernel names with their seconds, to the solution or to libraries; `None` if nothing is known."""
    totals: Counter[str] = Counter()
    for name, seconds in ran:
        if not _MOVES.match(name):
            totals[name] += seconds  # type: ignore[assignment]  # a Counter of seconds
    if not totals:
        return None
    own = kernel_names(solution) if solution.language in NAMED else None
    foreign = sum(seconds for name, seconds in totals.items() if not _is_own(name, own))
    ordered = tuple((name, float(seconds)) for name, seconds in totals.most_common())
    return Share(ordered, foreign / (sum(totals.values()) or 1.0))


def objection(solution: Solution, found: Share | None) -> str | None:
    """Return why a solution does not do what its language promises, or `None`."""
    if found is None or solution.language not in CUSTOM or found.library <= MOST:
        return None
    return f"declared {solution.language}, but {found.library:.0%} of the device time is library kernels: {found.text}"


def kernel_names(solution: Solution) -> frozenset[str]:
    """Return the names of the kernels that a solution's sources define."""
    return frozenset(name for source in solution.sources for name in _defined(source.path, source.content))


@functools.lru_cache(maxsize=64)  # every workload of a solution asks
def _defined(path: str, text: str) -> tuple[str, ...]:
    found = _GLOBAL.findall(_ATTRIBUTE.sub(" ", text))
    return (*found, *_jitted(text)) if path.endswith(".py") else tuple(found)


def _jitted(text: str) -> Iterator[str]:
    """Yield functions that are decorated to become kernels, and those that are made one by a call: `triton.jit(f)`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # before Python 3.12 a null character is the latter
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_makes_kernels, node.decorator_list)):
            yield node.name
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name) and _makes_kernels(node):
            yield node.args[0].id


def _makes_kernels(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return "jit" in name or "kernel" in name


def _is_own(name: str, own: AbstractSet[str] | None) -> bool:
    """Whether a kernel is one of the solution's; where their names are not known, whether it is no library's."""
    if _LIBRARY.search(name):
        return False
    if own is None or _function(name) in own:
        return True
    return name.startswith("_Z") and any(f"{len(each)}{each}" in name for each in own)


def _function(name: str) -> str:
    """Return the function's own name: `void (anonymous namespace)::k<(bool)1>(float*)` is `k`."""
    plain, before = name.replace("(anonymous namespace)", ""), ""
    while plain != before:
        plain, before = _TEMPLATE.sub("", plain), plain
    return re.split(r"::|\s", plain.partition("(")[0])[-1]


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."  # noqa: PLR2004 - characters
