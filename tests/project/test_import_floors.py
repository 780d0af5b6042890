"""The house has floors, and an import only ever points down."""

import ast
from pathlib import Path

import pytest

import pytest_flashinfer

PACKAGE = Path(pytest_flashinfer.__file__).parent
FLOORS = ["data", "inputs", "build", "worker", "judge", "report", "pytest"]
MODULES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN = {
    "data": {"torch", "triton", "numpy", "pytest", "_pytest"},
    "inputs": {"pytest", "_pytest"},
    "build": {"pytest", "_pytest", "hypothesis"},
    "worker": {"pytest", "_pytest", "hypothesis"},
    "judge": {"pytest", "_pytest"},
}


def floor_of(parts):
    """Name the floor of a module by the parts of its path in the package; what stands beside the floors is on top."""
    return parts[0] if parts and parts[0] in FLOORS else "pytest"


def imported(tree, package):
    """Yield (line, dotted name) of every import, inside functions and TYPE_CHECKING blocks as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{prefix}.{alias.name}"


def faults_of(path, source):
    inside = path.relative_to(PACKAGE).with_suffix("").parts
    own = floor_of(inside)
    for line, name in imported(ast.parse(source), ("pytest_flashinfer", *inside[:-1])):
        head, *rest = name.split(".")
        if head == "pytest_flashinfer":
            if rest[:1] == ["__version__"]:
                continue
            other = floor_of(rest)
            if FLOORS.index(other) > FLOORS.index(own):
                yield f"{path}:{line}: {own} imports {name}, which is on the floor {other} above it"
        elif head in FORBIDDEN.get(own, ()):
            yield f"{path}:{line}: the floor {own} does without {head}"


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(PACKAGE).as_posix() for path in MODULES])
def test_imports_point_down(path):
    assert list(faults_of(path, path.read_text())) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("data/x.py", "from pytest_flashinfer.judge import verdict"),
        ("data/x.py", "def f():\n    import torch"),
        ("inputs/x.py", "from pytest_flashinfer import worker"),
        ("worker/x.py", "from ..judge.bound import Bound"),
        ("report/x.py", "import pytest_flashinfer.run.session"),
    ],
)
def test_an_import_upwards_is_seen(module, source):
    assert len(list(faults_of(PACKAGE / module, source))) == 1


def test_an_import_downwards_is_fine():
    source = (
        "from pytest_flashinfer import data\nfrom .verdict import status\nfrom ..inputs import generate\nimport torch"
    )
    assert list(faults_of(PACKAGE / "judge/x.py", source)) == []
