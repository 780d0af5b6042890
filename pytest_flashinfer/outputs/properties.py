"""What an item says of itself beside its outcome."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Record:
    """Facts about an item that junit, traces and tables show."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item

    def set(self, name: str, value: object) -> None:
        """Set one fact; the last value stands."""
        self.forget(name)
        self.item.user_properties.append((name, value))

    def forget(self, *names: str) -> None:
        """Take facts back."""
        properties = self.item.user_properties
        properties[:] = [(key, old) for key, old in properties if key not in names]

    def raise_to(self, name: str, value: float) -> None:
        """Keep the largest value of a fact over the calls of an item."""
        known = dict(self.item.user_properties).get(name)
        self.set(name, value if known is None else max(value, float(str(known))))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Leave all facts as they are, whatever is set meanwhile."""
        before = list(self.item.user_properties)
        try:
            yield
        finally:
            self.item.user_properties[:] = before
