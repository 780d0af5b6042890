"""What the run's options say: `Options` is what the rest reads."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_flashinfer.data.files import enter, reason_of
from pytest_flashinfer.data.nearest import none_of
from pytest_flashinfer.data.solution_forms import CONFIG
from pytest_flashinfer.outputs.paths import from_here
from pytest_flashinfer.run.activation import from_ini, from_line
from pytest_flashinfer.run.distribution import SEED, TURN, worker_input
from pytest_flashinfer.settings.declarations import DECLARATIONS
from pytest_flashinfer.settings.readers import Unreadable

if TYPE_CHECKING:
    from pytest_flashinfer.settings.declarations import Declaration

FOLDERS = 2  # a file lies at most this deep in the definitions of its data set: definitions/<op_type>/<name>.json
MOST_JOBS = 8  # compilers at once, where nobody says how many: each may take gigabytes
REFERENCE_SECONDS = 120.0  # a reference is written to be read, and is run several times for one answer
Scope = Literal["auto", "smoke", "full"]


@dataclass(frozen=True)
class Options:
    """All settings of a run, in their final types; paths are absolute."""

    definitions: tuple[Path, ...]
    solutions: tuple[Path, ...]
    workloads: tuple[Path, ...]
    unnamed: tuple[str, ...]  # which of definitions and workloads nobody gave, and were looked for
    linked: tuple[Path, ...]  # those of pytest's arguments that lead through links
    device: str
    require_gpu: bool
    scope: Scope
    timeout: float
    build_timeout: float
    reference_timeout: float
    build_jobs: int
    seed: int
    tolerance: tuple[str, ...]
    ini_tolerance: tuple[str, ...]
    examples: int
    seconds: float
    layouts: str
    huge: bool
    save_failures: bool
    policy: str
    cache: str
    traces: Path | None
    resume: bool
    shard: tuple[int, int] | None
    results: Path | None
    report: Path | None
    calls: tuple[Path, ...]
    min_speedup: tuple[str, ...]
    ini_min_speedup: tuple[str, ...]
    baseline: Path | None
    threshold: tuple[str, ...]
    ini_threshold: tuple[str, ...]


_SUFFIXES = {  # what files are that are named themselves, and how their names end
    "definitions": ("definition", ".json"),
    "solutions": ("solution", ".json", ".py", CONFIG),
    "workloads": ("file of workloads", ".jsonl", ".json"),
}
_ID = re.compile(r"\[|::")  # where pytest takes a path to end and the name of an item to begin
REPLAY = "  replay: "  # begins the line of a failure that has its command


def read(config: pytest.Config) -> Options:
    """Options of the command line over ini keys over defaults.

    Raises `pytest.UsageError` for a path that does not exist or a value that does not parse.
    """
    values = {option.dest: _value(config, option) for option in DECLARATIONS}
    invocation = config.invocation_params.dir
    for name in ("definitions", "solutions", "workloads", "calls"):
        values[name] = tuple(_existing(name, path, invocation) for path in values[name] or ())
    for name in _SUFFIXES:
        _demand_suffix(name, values[name])
    arguments = _arguments(config)
    named = tuple(dict.fromkeys(_settled(file) for file in arguments if file.suffix == ".json" and file.is_file()))
    unnamed = [name for name in ("definitions", "workloads") if not values[name]]
    values["definitions"] = places = values["definitions"] or _default_definitions(config, named)
    values["unnamed"] = tuple(unnamed if places else unnamed[1:])  # else pytest was told of files
    values["definitions"] += tuple(file for file in named if not _covered(file, places))
    values["linked"] = tuple(path for path in arguments if path != path.resolve())
    if not values["workloads"]:
        values["workloads"] = tuple(dict.fromkeys(filter(None, map(workloads_beside, values["definitions"]))))
    if values["seed"] is None:
        drawn = worker_input(config, SEED)
        values["seed"] = secrets.randbits(63) if drawn is None else drawn
    if worker_input(config, TURN):
        values["build_jobs"] = 1  # of the processes of pytest-xdist the first compiles ahead, for all of them
    values["build_jobs"] = values["build_jobs"] or max(1, min(MOST_JOBS, len(os.sched_getaffinity(0)) - 2))
    values["reference_timeout"] = values["reference_timeout"] or max(REFERENCE_SECONDS, values["timeout"])
    for name in ("traces", "results", "report", "baseline"):
        values[name] = invocation / Path(values[name]).expanduser() if values[name] else None
    if values["traces"] is not None and values["traces"].is_file():
        raise pytest.UsageError(f"--fib-traces: {values['traces']} is a file: name a folder")
    if values["resume"] and values["traces"] is None:
        raise pytest.UsageError("--fib-resume: say with --fib-traces=DIR where the earlier run's traces are")
    for name in ("tolerance", "min_speedup", "threshold"):  # what a mark or a fixture says comes between the two
        values[name] = tuple(getattr(config.option, f"fib_{name}", None) or ())
        values[f"ini_{name}"] = tuple(config.getini(f"fib_{name}") or ())
    return Options(**{field.name: values[field.name] for field in fields(Options)})


def replay(config: pytest.Config, file: Path, item: str, seed: int, source: Path | None = None) -> str:
    """Return the command that runs one item again with the inputs of a seed and the options that matter to it.

    Its path leads there from the current folder; that of pytest's own ids may start somewhere else. `source` is the
    place of the solution that it is about, where the item is called the same without other solutions.
    """
    places = [from_here(config, path) for path in (file, *file.parents)]
    place = next(each for each in places if not _ID.search(each))
    words = ["pytest", f"{place}::{item}"] if place == places[0] else ["pytest", place, "-k", item]
    for option in DECLARATIONS:
        given = from_line(config, option)
        if given is not None and option.replayed and option.dest != "seed":
            values = list(given if option.repeat else [given])
            if option.dest == "solutions" and source is not None:
                here = config.invocation_params.dir
                own = [each for each in values if source.is_relative_to(_existing("solutions", each, here))]
                values = own[:1] or values
            words += [option.switch] if option.flag else [f"{option.switch}={value}" for value in values]
    return shlex.join([*words, f"--fib-seed={seed}"])


def _value(config: pytest.Config, option: Declaration) -> Any:
    given = from_line(config, option)
    if given is not None:
        return given
    ini = from_ini(config, option)
    if ini is None:
        return option.default
    if option.ini != "string":
        return ini
    if option.choices and ini not in option.choices:
        raise pytest.UsageError(f"ini key {option.key}: {none_of(ini, option.choices)}")
    try:
        return option.parse(ini)
    except Unreadable as error:
        raise pytest.UsageError(f"ini key {option.key}: {error}") from error


def _existing(name: str, path: str | Path, base: Path) -> Path:
    found = base / Path(path).expanduser()
    try:
        enter(found)
    except (FileNotFoundError, NotADirectoryError):
        raise pytest.UsageError(f"--fib-{name}: {path} does not exist (looked in {base})") from None
    except OSError as error:
        raise pytest.UsageError(f"--fib-{name}: {path} cannot be read: {reason_of(error)}") from None
    return _settled(found)


def _demand_suffix(name: str, paths: tuple[Path, ...]) -> None:
    """Raise pytest.UsageError for a file that is called as none of its kind is: what it holds would come to nothing.

    A solution may be `k.PY`: reading it says how it has to be called.
    """
    what, *suffixes = _SUFFIXES[name]
    for path in filter(Path.is_file, paths):
        suffix = path.name if path.name == CONFIG else path.suffix if name == "definitions" else path.suffix.lower()
        if suffix not in suffixes:
            ends = " or ".join(suffixes)
            raise pytest.UsageError(f"--fib-{name}: {path} is no {what}: its name has to end in {ends}")


def _settled(path: Path) -> Path:
    """Follow the links to a folder, and to that of a file: a file keeps the name by which it is known.

    What a link to a file leads to may be called anything, as in the cache of the Hugging Face hub.
    """
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def _arguments(config: pytest.Config) -> list[Path]:
    """Return the places that pytest itself is told of."""
    here = config.invocation_params.dir
    return [Path(os.path.abspath(here / str(arg).partition("::")[0])) for arg in config.args]  # noqa: PTH100 - no links


def _covered(file: Path, places: tuple[Path, ...]) -> bool:
    """Whether a definition file, or what it is a link to, is in one of the places anyway."""
    real = file.resolve()
    return not {file, *file.parents, real, *real.parents}.isdisjoint(places)


def _default_definitions(config: pytest.Config, named: tuple[Path, ...]) -> tuple[Path, ...]:
    invoked = config.invocation_params.dir
    for base in (invoked, config.rootpath):
        if (base / "definitions").is_dir():
            return (_existing("definitions", "definitions", base),)
    if not named:
        text = f"no definitions: there is no folder definitions/ in {invoked}; name one with --fib-definitions=PATH"
        raise pytest.UsageError(text)
    return ()


def workloads_beside(definitions: Path) -> Path | None:
    """Return the folder workloads/ of the data set that a definition folder or file belongs to.

    It lies in that folder, or beside it, the folder of its op_type being a part of it. Beyond a folder called
    definitions there are other data sets.
    """
    for path in dict.fromkeys((definitions, definitions.resolve())):
        above = path.parents[: FOLDERS + path.is_file()]
        own = 1 + next((depth for depth, each in enumerate((path, *above)) if each.name == "definitions"), len(above))
        for base in (path, *above)[: own + 1]:
            if (base / "workloads").is_dir():
                return base / "workloads"
    return None


def scope_of(options: Options, *, cuda: bool) -> Scope:
    """Return the scope in force: full on CUDA and smoke on the CPU unless one is asked for."""
    if options.scope == "auto":
        return "full" if cuda else "smoke"
    return options.scope
