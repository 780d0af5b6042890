"""The inputs that a reference writes into though its definition does not say so: nobody's result, and not judged.

Its worker says so once, by an error of the kind `MUTATES`; from then on each of its runs has copies of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flashinfer.worker.errors import CallFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MUTATES = "mutates"
T = TypeVar("T")


class MutatedInputs:
    """The names for one definition, as far as they have shown; `tell` gets a sentence about those that are new."""

    def __init__(self, definition: str = "", tell: Callable[[str], object] | None = None) -> None:
        self.definition = definition
        self.tell = tell
        self.names: set[str] = set()

    @property
    def listed(self) -> list[str]:
        """The names, as a request to the worker has them."""
        return sorted(self.names)

    def settled(self, inputs: Mapping[str, Any], ask: Callable[[], T]) -> T:
        """Return what `ask` does, which lays `inputs` down and names what is `listed`; again where names are new."""
        for _ in inputs:
            try:
                return ask()
            except CallFailed as error:  # noqa: PERF203 - twice, as a rule
                if error.kind != MUTATES:
                    raise
                self._learn({name for name in inputs if name in error.message.rpartition(": ")[2].split(", ")})
        return ask()

    def _learn(self, names: set[str]) -> None:
        new = sorted(names - self.names)
        if new and self.tell is not None:
            self.tell(
                f"{self.definition}: the reference writes into {', '.join(new)}, though no output says so:"
                " what is left there is not judged; declare it with `param` if it is a result"
            )
        self.names |= names  # not where `tell` raises: then the next to ask is told as well
