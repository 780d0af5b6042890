"""Lines and original keys for the parts of a canonical document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.data.faults import JsonPath, show_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.jsontext import Document

_NONE: Mapping[str, str] = {}


class Places:
    """Finds the parts of a canonical document in the file it was made from.

    `renamed` maps a top-level key to the file's own name for it; `prefix` is where in the file the document starts;
    `wrapped` is a top-level key that the file leaves out, its members standing at the top.
    """

    __slots__ = ("document", "prefix", "renamed", "wrapped")

    def __init__(
        self,
        document: Document,
        renamed: Mapping[str, str] | None = None,
        prefix: JsonPath = (),
        wrapped: str | None = None,
    ) -> None:
        self.document, self.renamed, self.prefix, self.wrapped = document, renamed or _NONE, prefix, wrapped

    def original(self, where: JsonPath) -> JsonPath:
        """Translate a path into the canonical document into one into the file."""
        if where and where[0] == self.wrapped:
            where = where[1:]
        elif where and isinstance(where[0], str):
            where = (self.renamed.get(where[0], where[0]), *where[1:])
        return (*self.prefix, *where)

    def __call__(self, where: JsonPath) -> int:
        """Give the line in the file."""
        return self.document.line_of(self.original(where))

    def has(self, where: JsonPath) -> bool:
        """Whether the file has that part, under whatever name."""
        return self.document.has(self.original(where))

    def show(self, where: JsonPath) -> str:
        """Write the path with the keys of the file."""
        return show_path(self.original(where))
