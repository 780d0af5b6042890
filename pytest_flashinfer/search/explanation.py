"""What a failure of `test_sizes` says beyond its verdict: the line that replays it, and whether that is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.append import append_once
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.workload_line import but_for_the_seed, workload_line
from pytest_flashinfer.solution_call import Failed

if TYPE_CHECKING:
    from pytest_flashinfer.data.model import Definition
    from pytest_flashinfer.search.minimal_case import Outcome

_ALONE = (
    "in a process of its own this case passes: the solution keeps something from earlier cases, or it is a matter of"
    " chance; the line need not replay it, and is not saved"
)


def explained(  # noqa: PLR0913 - facts of one search
    item: pytest.Item,
    definition: Definition,
    found: Outcome,
    *,
    alone: bool,
    save: bool,
    empty: str = "",
    contiguous: bool | None = None,
) -> Failed:
    """Return what a search of an item found, with hints for its author.

    `definition` is as it was stated. `alone`: the smallest case passes by itself. `save`: keep its line. `empty`: the
    axis whose size of 0 alone makes it fail, if there is one. `contiguous`: whether it fails with contiguous inputs as
    well, where its own are not.
    """
    failed, drawn = found.failure, found.smallest
    assert isinstance(failed, Failed)
    assert drawn is not None
    failed.seed = found.run
    if found.earlier:
        failed.hint = "  found by an earlier run, whose seed is the one to replay it with\n"
    if failed.verdict.status == "INVALID_REFERENCE":  # an override that fails itself does so in most cases
        return failed
    line = workload_line(definition, *drawn, failed.case.values if failed.case else {})
    if empty:
        failed.hint += f"  {empty} may be 0 as the contract stands; a constraint `{empty} > 0` would exclude it\n"
    if contiguous is not None:
        failed.hint += f"  with contiguous inputs it {'fails as well' if contiguous else 'passes'}\n"
    said, why_not = _save(item, line) if save and not alone else ("", "")
    said = f"{said}, which replays it" if said else "add this workload line to replay it"
    layout = drawn[1].layout
    asked = f" (with --fib-layouts={layout})" if layout != "contiguous" else ""
    failed.hint += f"  {_out_of(found.tried)}; {said} as test_correct{asked}:\n{line}"
    for fault in contract_of(definition).reading.broken:
        failed.hint += f"\n  this case need not satisfy a constraint: {fault}"
    if alone:
        failed.hint += f"\n  {_ALONE}"
    elif why_not:
        failed.hint += f"\n  --fib-save-failures: {why_not}"
    return failed


def _out_of(tried: int) -> str:
    return "the only case that was tried" if tried == 1 else f"smallest of {tried} cases"


def _save(item: pytest.Item, line: str) -> tuple[str, str]:
    """Append a line, unless one is there that differs in its seed only: that of the same bug, from another run.

    Return where it is now, and else the empty string and why it could not be saved.
    """
    file = item.getparent(pytest.Module)
    path = getattr(file, "workload_file", None)
    if path is None:
        return "", "no workload folder is known; name one with --fib-workloads=DIR"
    try:
        added = append_once(path, line.encode(), but_for_the_seed)
    except OSError as error:
        return "", f"{path} cannot be written: {error.strerror}"
    here = item.config.invocation_params.dir
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{'appended to' if added else 'already in'} {shown}", ""
