"""`python -m pytest_flashinfer`: convert, validate, merge, report, schema."""

from __future__ import annotations

import sys

from pytest_flashinfer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
