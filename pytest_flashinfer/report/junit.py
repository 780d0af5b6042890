"""Reading outcomes back from a junit report of pytest, whose properties say what each test was about."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from pytest_flashinfer.report.results import UNREAD, Broken, Result, unread, without_wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}
_NUMBERS = ("latency_s", "speedup", "roofline_s", "roofline_share", "bound_share", "reference_s", "max_abs")


def read(text: str | bytes) -> Iterator[Result | Broken]:
    """Yield the records of all tests of solutions in a report, and of what else failed.

    Raises `xml.etree.ElementTree.ParseError`.
    """
    found = list(_cases(text))
    yield from without_wrong(each for each in found if isinstance(each, Result))
    yield from (each for each in found if isinstance(each, Broken))


def _cases(text: str | bytes) -> Iterator[Result | Broken]:
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - of a run of our own
        properties: dict[str, object] = {str(each.get("name")): each.get("value", "") for each in case.iter("property")}
        for name in _NUMBERS:
            if name in properties:
                properties[name] = float(str(properties[name]))
        ended = next((each for each in case if each.tag in _OUTCOMES), None)
        outcome = _OUTCOMES[ended.tag] if ended is not None else "passed"
        if outcome == "failed" and properties.get("status") == "PASSED":
            properties["status"] = "ERROR"  # of the teardown
        said = ((ended.get("message") if outcome == "skipped" else ended.text) or "") if ended is not None else ""
        found = Result.from_properties(properties.items(), outcome, said)
        yield from unread(properties.get(UNREAD))
        if found is not None:
            yield found
        elif outcome == "failed":
            yield Broken(" ".join(filter(None, (case.get("classname"), case.get("name")))), said)
