"""Language honesty: whose kernels ran on the card, by the names that the device clock recorded."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_flashinfer.data.model import Solution

CUSTOM = ("triton", "cuda", "tilelang", "cutedsl", "cutile", "cutlass")  # languages that promise kernels of their own
MOST = 0.5  # share of device time that library kernels may take in such a solution
_LIBRARY = re.compile(
    r"^(void )?(at|c10|cub|thrust|cudnn|cublas\w*|flash\w*|pytorch_flash)::"
    r"|^(nvjet|sm\d+_xmma|ampere_|hopper_|cublas)"
)
_GLOBAL = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\(")
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
    own = tuple(kernel_names(solution))
    foreign = sum(seconds for name, seconds in totals.items() if not _is_own(name, own))
    ordered = tuple((name, float(seconds)) for name, seconds in totals.most_common())
    return Share(ordered, foreign / (sum(totals.values()) or 1.0))


def objection(solution: Solution, found: Share | None) -> str | None:
    """Return why a solution does not do what its language promises, or `None`."""
    if found is None or solution.language not in CUSTOM or found.library <= MOST:
        return None
    return f"declared {solution.language}, but {found.library:.0%} of the device time is library kernels: {found.text}"


def kernel_names(solution: Solution) -> Iterator[str]:
    """Yield the names of the kernels that a solution's sources define."""
    for source in solution.sources:
        yield from _GLOBAL.findall(source.content)
        if source.path.endswith(".py"):
            yield from _jitted(source.content)


def _jitted(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(each) or "kernel" in ast.unparse(each)
                                                     for each in node.decorator_list):  # fmt: skip
            yield node.name


def _is_own(name: str, own: Sequence[str]) -> bool:
    """Whether a kernel's name holds one of the solution's, and is not that of a library that happens to hold it."""
    head = name.partition("(")[0] if not name.startswith("(") else name
    return not _LIBRARY.search(name) and any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", head) for each in own)


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."  # noqa: PLR2004 - characters
