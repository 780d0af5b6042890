"""Whether the packages of the extra `report` are there; asked before anything is measured."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("jinja2", "plotly")


def missing() -> str | None:
    """Return in one line what to install, or `None` where nothing is missing."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if not absent:
        return None
    where = "where the package's clone is (or 'pytest-flashinfer[report]' from where it came)"
    return f"the HTML report needs {' and '.join(absent)}: pip install '.[report]' {where}"
