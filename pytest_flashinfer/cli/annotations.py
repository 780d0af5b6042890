"""What `validate` leaves on GitHub Actions: an annotation at the line of each fault, and a summary of the job."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flashinfer.report import github, markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flashinfer.data.faults import Fault

SHOWN = 100  # faults in the summary


def write_found(found: Sequence[Fault], notes: Iterable[str]) -> None:
    """Write a line for each; on GitHub Actions the runner obeys none of them, for strangers named these files."""
    wanted = os.environ.get("GITHUB_ACTIONS") == "true"
    token = secrets.token_hex(16)
    if wanted:
        sys.stdout.write(f"{github.stop(token)}\n")
    for line in (*map(_shown, found), *(f"note: {note}" for note in notes)):
        sys.stdout.write(f"{line}\n")
    if wanted:
        root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
        failures = _by_line(fault for fault in found if fault.kind == "fault")
        for line in (github.resume(token), *github.errors(failures, root, "lines with faults")):
            sys.stdout.write(f"{line}\n")


def _by_line(faults: Iterable[Fault]) -> list[github.Failure]:
    """Return one failure for each line of a file, with all its faults: they differ, and GitHub shows few."""
    texts: dict[tuple[str, int], list[str]] = {}
    for fault in faults:
        text = ": ".join(part for part in (fault.where, fault.message) if part)
        texts.setdefault((str(fault.path.absolute()), fault.line or 1), []).append(text)
    return [github.Failure(*place, "a file is not valid", "\n".join(told)) for place, told in texts.items()]


def summarise(found: Sequence[Fault], total: str) -> None:
    """Append the faults, and the line that counts all, to the summary of the job, where it has one.

    Where it cannot be written, a line on stderr says so: the verdict is what it was.
    """
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if target:
        lines = [_shown(fault) for fault in sorted(found, key=lambda fault: fault.kind != "fault")]
        more = [f"({len(lines) - SHOWN} more are in the log)"] if len(lines) > SHOWN else []
        text = markdown.fenced("\n".join([*lines[:SHOWN], *more])) if lines else ""
        try:
            with Path(target).open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"## Files: {total}\n\n{text}")
        except OSError as error:
            sys.stderr.write(f"GITHUB_STEP_SUMMARY: {target} cannot be written: {error.strerror}\n")


def _shown(fault: Fault) -> str:
    return str(fault) if fault.kind == "fault" else f"{fault.kind}: {fault}"
