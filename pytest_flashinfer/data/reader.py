"""Taking the known keys of an object by type, the rest being kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pytest_flashinfer.data.nearest import none_of

if TYPE_CHECKING:
    from pytest_flashinfer.data.faults import JsonPath

T = TypeVar("T")
_SPELLED = ("nan", "infinity", "-infinity", "inf", "-inf")  # in any letter case, as pydantic reads them


class Malformed(Exception):  # noqa: N818 - it is a finding about a file, not an error of the program
    """The place and the reason why a document cannot become a record."""

    def __init__(self, where: JsonPath, message: str) -> None:
        super().__init__(message)
        self.where, self.message = where, message


class Reader:
    """Takes the known keys of an object by type; what is left over is `extra`."""

    def __init__(self, value: Any, where: JsonPath = ()) -> None:
        if not isinstance(value, dict):
            raise Malformed(where, "expected an object")
        self.where, self.rest = where, dict(value)

    def fail(self, key: str, message: str) -> Malformed:
        """Make the exception for a key of this object."""
        return Malformed((*self.where, key), message)

    def take(self, key: str, kind: type[T] | tuple[type[T], ...], default: T | None = None) -> T | None:
        """Take an optional value; `null` counts as absent. A bool is not a number. Raises Malformed for other kinds."""
        value = self.rest.pop(key, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(key, f"unexpected value {value!r}")
        return value

    def need(self, key: str, kind: type[T]) -> T:
        """Take a required value. Raises Malformed."""
        value = self.take(key, kind)
        if value is None:
            raise self.fail(key, f"missing key {key!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Take an optional list of strings. Raises Malformed."""
        values: list[Any] = self.take(key, list) or []
        if not all(isinstance(value, str) for value in values):
            raise self.fail(key, "expected strings")
        return tuple(values)

    def members(self, key: str) -> dict[str, Reader]:
        """Take a required object of objects. Raises Malformed."""
        values: dict[str, Any] = self.need(key, dict)
        return {name: Reader(value, (*self.where, key, name)) for name, value in values.items()}

    def choice(self, key: str, choices: tuple[str, ...]) -> Any:
        """Take a required word. Raises Malformed."""
        value = self.need(key, str)
        if value not in choices:
            raise self.fail(key, none_of(value, choices))
        return value

    def number(self, key: str) -> float | None:
        """Take an optional number; NaN and infinities may be spelled, as JSON has none. Raises Malformed."""
        value = self.rest.pop(key, None)
        if value is None:
            return None
        if isinstance(value, str) and value.lower() in _SPELLED:
            return float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(key, f"unexpected value {value!r}")
        return float(value)

    def member(self, key: str) -> Reader | None:
        """Take an optional object. Raises Malformed."""
        value = self.rest.pop(key, None)
        return None if value is None else Reader(value, (*self.where, key))
