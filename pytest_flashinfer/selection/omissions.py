"""What a run was given and does not run, said in lines: places with nothing in them, files that belong to nothing."""

from __future__ import annotations

import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.report.numbers import count
from pytest_flashinfer.run.distribution import is_worker
from pytest_flashinfer.settings.options import workloads_beside

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_flashinfer.data.faults import Fault
    from pytest_flashinfer.selection.catalogue import Catalogue

SHOWN = 5  # files that a warning names
_SELECT_TOO = ("markexpr", "deselect", "lf")  # options of pytest


def refuse(config: pytest.Config, catalogue: Catalogue) -> None:
    """Raise pytest.UsageError for solutions that were named themselves, not by a folder, and are of nothing here.

    So for failures that are to be saved where there is no place for any. In the process that the run's exit code is of.
    """
    if is_worker(config):
        return
    options = catalogue.options
    homes = map(catalogue.workload_file, catalogue.dataset.definition_files())
    if options.save_failures and options.solutions and not options.workloads and not any(homes):
        text = "--fib-save-failures: there is no folder of workloads; name one with --fib-workloads=DIR"
        raise pytest.UsageError(text)
    named = {place for place in options.solutions if place.is_file() or (place / CONFIG).is_file()}
    faults = [fault for fault in catalogue.dataset.unknown_solutions() if {fault.path, fault.path.parent} & named]
    refused = [str(fault) for fault in (*catalogue.dataset.something_else(), *faults)]
    if refused:
        raise pytest.UsageError("\n".join(f"--fib-solutions: {reason}" for reason in refused))


def of_run(
    session: pytest.Session, catalogue: Catalogue, failing: Collection[Path], *, selected: bool
) -> Iterator[str]:
    """Yield what a run was given and does not run, now that its items are known; `failing` as below.

    `selected` says whether there are items in any part of it, or some could not be collected.
    """
    running = {item.path for item in session.items if "solution" in getattr(item, "fixturenames", ())}
    checked = {item.path for item in session.items if getattr(item, "originalname", None) == "test_schema"}
    yield from warnings(catalogue, failing, running, checked)
    listed = (item.path for item in session.items if "workload" in getattr(item, "fixturenames", ()))
    yield from _lost_lines(catalogue, running.union(listed), failing)
    if not selected:
        yield from _unmatched(session.config.option, catalogue)


def warnings(
    catalogue: Catalogue, failing: Collection[Path], running: Collection[Path], checked: Iterable[Path] = ()
) -> Iterator[str]:
    """Yield what is not run although it was named.

    `failing` are the files that an item of this run fails for, so that nobody need be warned of them; `running` are the
    files of definitions of which it runs solutions, `checked` those of definitions that it checks themselves.
    """
    found = [loaded.path for loaded in catalogue.dataset.solutions]
    for place in catalogue.options.solutions:
        if not any(place == path or place in path.parents for path in found):
            yield (
                f"--fib-solutions: no solution in {place}: a solution is a .json file, a folder with a config.toml,"
                " or a .py module that says `definition = ...`"
            )
    for place in catalogue.options.definitions:
        if place.is_dir() and not any(place in path.parents for path in catalogue.dataset.definition_files()):
            wanted = "a definition is a .json file with name, axes, inputs, outputs and reference"
            yield f"no definition in {place}: {wanted}"
    beside = set(map(workloads_beside, catalogue.options.definitions))  # which nobody asked for
    for place in (each for each in catalogue.dataset.workload_files.empty() if each not in beside):
        yield f"no workloads in {place}: they are lines of .jsonl files, each named after its definition"
    yield from _listed(catalogue, failing)
    yield from _workloads(catalogue, running)
    if idle := _without_workloads(catalogue, set(checked).difference(running)):
        yield "\n".join(["definitions without workloads, whose references did not run:", *_first(idle)])


def _listed(catalogue: Catalogue, failing: Collection[Path]) -> Iterator[str]:
    """Yield lists of what is not run."""
    closed = [fault for each in catalogue.closed.values() if each.path not in failing for fault in each.faults]
    dataset = catalogue.dataset
    lists: list[tuple[str, Sequence[object], str]] = [
        ("folders of which nothing is run", closed, ""),
        ("solutions that are not run", _unrun(catalogue, failing), f": {_validate(catalogue)} names all"),
        ("files that are not read", [*dataset.misnamed_files(), *dataset.of_no_kind()], ""),
        ("Python files that are not run, for they have no line `definition = ...`", dataset.unused_modules(), ""),
    ]
    for heading, found, rest in lists:
        if found:
            yield "\n".join([f"{heading}:", *_first(list(map(str, found)), rest)])


def _lost_lines(catalogue: Catalogue, running: Iterable[Path], failing: Collection[Path]) -> Iterator[str]:
    """Yield the faults for which lines of workloads are left out, where no schema check of this run names them."""
    dataset = catalogue.dataset
    paths = sorted({catalogue.stated(path) for path in running}.difference(failing))
    found = [fault for path in paths for line in dataset.workloads(path) for fault in line.faults]
    found += dataset.workload_files.nobodys(dataset.names)
    if found:
        rest = f": {_validate(catalogue, workloads=True)} names all"
        lines = _first(list(map(str, dict.fromkeys(found))), rest)
        yield "\n".join(["workloads that are not run:", *lines])


def not_entered(args: Sequence[str], folders: Iterable[str], patterns: Sequence[str]) -> Iterator[str]:
    """Yield a line for each folder of definitions below one of `args` that pytest does not enter from there."""
    for folder in folders:
        for place in (Path(arg).resolve() for arg in args):
            path = Path(folder).resolve()
            between = path.relative_to(place).parts if path.is_relative_to(place) else ()
            name = next((each for each in between for pattern in patterns if fnmatch(each, pattern)), None)
            if name is not None:
                why = f"pytest does not enter {name} by itself (norecursedirs)"
                yield f"no definition in {folder} is collected: {why}; run them with --fib-definitions={folder}"


def _unmatched(options: argparse.Namespace, catalogue: Catalogue) -> Iterator[str]:
    """Yield why there is no item, where that is `-k`: files of which nothing can match are not read, nor counted."""
    expression = getattr(options, "keyword", "")
    others = any(getattr(options, name, None) for name in _SELECT_TOO)  # it may be that these left nothing
    if not expression or others or not catalogue.dataset.names:
        return
    solutions = sum(loaded.value is not None for loaded in catalogue.dataset.solutions)
    found = f"{count(len(catalogue.dataset.names), 'definition')} and {count(solutions, 'solution')}"
    yield (
        f"-k {expression!r} selects nothing of {found}: it is matched with the names of checks, definitions, their"
        " files and folders, op_types, tags, solutions, authors and languages, and with sizes and uuids of workloads"
    )


def _first(lines: list[str], rest: str = "") -> list[str]:
    """Give the first few lines, and how many there are beyond them, with what is to be said of these."""
    return [*lines[:SHOWN], *([f"and {len(lines) - SHOWN} more{rest}"] if len(lines) > SHOWN else [])]


def _validate(catalogue: Catalogue, *, workloads: bool = False) -> str:
    """Write the command that names every fault of the files of this run."""
    options, here = catalogue.options, Path.cwd()
    places = (*options.definitions, *options.solutions, *(options.workloads if workloads else ()))
    words = [str(place.relative_to(here) if place.is_relative_to(here) else place) for place in places]
    return shlex.join(["python", "-m", "pytest_flashinfer", "validate", *words])


def _unrun(catalogue: Catalogue, failing: Collection[Path]) -> list[Fault]:
    """Give the faults of solutions that no item is about, those first that a letter may put right."""
    dataset = catalogue.dataset
    broken = catalogue.unreadable()
    told = {fault for each in broken for fault in each.faults if each.path in failing}
    faults = [*dataset.unknown_solutions(), *(fault for each in broken for fault in each.faults)]
    return sorted(
        (fault for fault in dict.fromkeys(faults) if fault not in told),
        key=lambda fault: "did you mean" not in fault.message,
    )


def _workloads(catalogue: Catalogue, running: Iterable[Path]) -> Iterator[str]:
    dataset = catalogue.dataset
    without, stray = dataset.workload_files.stray(dataset.names)
    if without and stray:
        yield (
            f"no workloads for {count(len(without), 'definition')}, and no definition for {count(len(stray), 'file')},"
            f" as {stray[0]}: name a file after the definition, as {without[0]}.jsonl, or give the file itself"
        )
    forgotten = _without_workloads(catalogue, running)
    if forgotten and not stray:
        others = f" and {len(forgotten) - 1} more" if len(forgotten) > 1 else ""
        yield (
            f"no workloads for {forgotten[0]}{others}: nothing but test_sizes runs solutions; name a file"
            f" {forgotten[0]}.jsonl, in a folder workloads/ beside the definitions or in one given with"
            " --fib-workloads"
        )


def _without_workloads(catalogue: Catalogue, paths: Iterable[Path]) -> list[str]:
    """Return the names of those of the definitions that no readable line of a workload is for."""
    bare = (path for path in paths if not catalogue.dataset.workloads(catalogue.stated(path)))
    return sorted({found.name for path in bare if (found := catalogue.definition(path)) is not None})
