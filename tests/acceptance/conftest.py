"""How many processes a run of a corpus takes."""

import pytest


@pytest.fixture(scope="session")
def processes(pytestconfig: pytest.Config) -> str:
    """Return two, unless the tests themselves are spread: those beside keep the other core busy."""
    return "-n1" if hasattr(pytestconfig, "workerinput") else "-n2"
