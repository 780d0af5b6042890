"""The report as one file: a template, the page's own styles and scripts, plotly.js and the packed data.

Nothing is loaded from elsewhere and no script runs but the two whose hashes the page's Content-Security-Policy names.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_flashinfer.report.html.payload import Texts, numbers, packed
from pytest_flashinfer.report.numbers import times
from pytest_flashinfer.report.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jinja2 import Environment
    from markupsafe import Markup

    from pytest_flashinfer.data.model import Status
    from pytest_flashinfer.report.html.boards import Chapter, Report

SCRIPTS = ("dom", "code", "charts", "chapter", "filters", "main")  # in the order in which they are joined
WORDS: Mapping[Status, str] = {  # for statuses, where there is little room
    "INCORRECT_NUMERICAL": "numerical",
    "INCORRECT_SHAPE": "shape",
    "INCORRECT_DTYPE": "dtype",
    "RUNTIME_ERROR": "runtime",
    "COMPILE_ERROR": "compile",
    "TIMEOUT": "timeout",
    "REWARD_HACK": "reward hack",
    "INVALID_REFERENCE": "invalid reference",
}
_BEGINNING = (  # of the template
    b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    b'<meta http-equiv="Content-Security-Policy" content='
)
PART_CHARACTERS = 1 << 20  # of the file, that are written at a time


def write(path: Path, report: Report) -> int:
    """Write the file, all or nothing, and return its size in bytes. Raises OSError.

    Needs the packages of the extra `report`: see `extra.missing`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8", errors="replace", buffering=PART_CHARACTERS) as out:
            for part in _parts(report):
                out.write(part)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def is_page(path: Path) -> bool:
    """Say whether a file is a page that `write` wrote. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING


def _parts(report: Report) -> Iterator[str]:
    script, plotly = _script(), _plotly()
    texts = Texts(report)
    islands = [(packed(numbers(chapter)), texts.of(chapter)) for chapter in report.chapters]
    if texts.dropped:
        report.notes.append(
            f"sources and logs of {texts.dropped:,} solutions left out: they would make the file too large"
        )
    yield from (
        _environment()
        .get_template("report.html")
        .generate(
            report=report,
            islands=islands,
            style=_static("style.css"),
            script=script,
            plotly=_compressed(plotly),
            policy=policy(script, plotly),
        )
    )


def policy(*scripts: str) -> str:
    """Return a Content-Security-Policy under which these scripts run and nothing else, and nothing is fetched.

    Styles may stand in the page: plotly.js writes its own.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("pytest_flashinfer.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["duration"] = lambda seconds: duration(seconds).replace("us", "µs")
    made.filters["times"] = times
    made.filters["axes"] = axes
    made.filters["breakable"] = breakable
    made.filters["quoted"] = lambda name: quote(name, safe="", errors="replace")
    made.filters["word"] = lambda status: WORDS.get(status, status)
    return made


def axes(chapter: Chapter) -> str:
    """Say what the axes of a definition are: the constant ones with their value."""
    if chapter.definition is None:
        return ", ".join(chapter.axes)
    told: dict[str, Any] = {name: axis.value for name, axis in chapter.definition.axes.items()}
    return ", ".join(name if value is None else f"{name} = {value}" for name, value in told.items())


def breakable(name: str) -> Markup:
    """Let a long name break after its underscores."""
    from markupsafe import Markup, escape

    return Markup("_<wbr>").join(map(escape, name.split("_")))


def _static(name: str) -> str:
    return (resources.files(__package__) / "static" / name).read_text(encoding="utf-8")


def _script() -> str:
    body = "\n".join(_static(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def _plotly() -> str:
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def _compressed(text: str) -> str:
    """Compress a script; the page unpacks it when a chart is first looked at."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
