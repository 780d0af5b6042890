"""The plugin's options: one table declares command line, ini key, default and help; `Options` is what the rest reads."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

IniType = Literal["string", "paths", "linelist", "bool"]
LEVELS = 3  # a definition lies at most this deep in its data set: definitions/<op_type>/<name>.json
Scope = Literal["auto", "smoke", "full"]


@dataclass(frozen=True)
class Declaration:
    """One option. `dest` is its name in `Options` and, with the prefix `fib_`, its ini key."""

    dest: str
    ini: IniType
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    flag: bool = False
    repeat: bool = False
    metavar: str | None = None
    ini_only: bool = False

    @property
    def key(self) -> str:
        """The ini key, which is also the attribute on `config.option`."""
        return f"fib_{self.dest}"

    @property
    def switch(self) -> str:
        """The command-line switch."""
        return "--fib-" + self.dest.replace("_", "-")


def _seed(text: str) -> int:
    value = int(text, 0)
    if not 0 <= value < 1 << 32:
        raise ValueError(text)
    return value


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "definitions", "paths", "folder or file of definitions (default: definitions/)", repeat=True, metavar="PATH"
    ),
    Declaration("solutions", "paths", "folder or file of solutions to check and time", repeat=True, metavar="PATH"),
    Declaration(
        "workloads",
        "paths",
        "folder or file of workload lines (default: workloads/ beside the definitions)",
        repeat=True,
        metavar="PATH",
    ),
    Declaration(
        "device", "string", "auto, cpu, cuda or cuda:N; auto takes the first visible card, else the CPU", "auto"
    ),
    Declaration(
        "require_gpu",
        "bool",
        "fail at once where there is no CUDA card (for CI on GPU runners)",
        default=False,
        flag=True,
    ),
    Declaration(
        "scope",
        "string",
        "smoke: the few smallest, most different workloads; full: all (default: full on CUDA, smoke on the CPU)",
        "auto",
        choices=("auto", "smoke", "full"),
    ),
    Declaration(
        "timeout",
        "string",
        "seconds that one call of a solution may take (default: 60)",
        60.0,
        float,
        metavar="SECONDS",
    ),
    Declaration(
        "build_timeout",
        "string",
        "seconds that building a solution may take (default: 600)",
        600.0,
        float,
        metavar="SECONDS",
    ),
    Declaration(
        "seed",
        "string",
        "seed of all inputs, to replay a run (default: drawn anew for each run and printed)",
        None,
        _seed,
        metavar="N",
    ),
    Declaration(
        "tolerance",
        "linelist",
        "'rtol=1e-3 atol=1e-2', optionally after op_type=..., definition=... or output=...:"
        " replaces the computed bound",
        repeat=True,
        metavar="TEXT",
    ),
    Declaration(
        "examples",
        "string",
        "sizes and inputs that test_sizes tries for each solution (default: 100)",
        100,
        int,
        metavar="N",
    ),
    Declaration(
        "seconds",
        "string",
        "seconds that test_sizes may take for each solution (default: 10)",
        10.0,
        float,
        metavar="SECONDS",
    ),
    Declaration(
        "layouts",
        "string",
        "memory layout of inputs in test_sizes: contiguous, or strided as well",
        "contiguous",
        choices=("contiguous", "strided"),
    ),
    Declaration(
        "save_failures",
        "bool",
        "append the workload line of a failure that test_sizes found to the definition's workloads",
        default=False,
        flag=True,
    ),
    Declaration(
        "policy",
        "string",
        "custom-kernel: a solution declared triton or cuda that leaves the work to library kernels fails",
        "any",
        choices=("any", "custom-kernel"),
    ),
    Declaration(
        "cache",
        "string",
        "state of the L2 cache before each timed launch (default: cold)",
        "cold",
        choices=("cold", "warm"),
    ),
    Declaration("traces", "string", "folder to which one trace line per evaluation is appended", None, metavar="DIR"),
)


def add_options(parser: pytest.Parser) -> None:
    """Declare every option in one group, each with its ini equivalent."""
    group = parser.getgroup("flashinfer", "GPU kernels (pytest-flashinfer)")
    for option in DECLARATIONS:
        parser.addini(option.key, option.help, type=option.ini, default=None)
        if option.flag:
            group.addoption(option.switch, dest=option.key, action="store_true", default=None, help=option.help)
        else:
            group.addoption(
                option.switch,
                dest=option.key,
                action="append" if option.repeat else "store",
                default=None,
                type=None if option.parse is str else option.parse,
                choices=option.choices,
                metavar=option.metavar,
                help=f"{option.help} (ini: {option.key})",
            )


@dataclass(frozen=True)
class Options:
    """All settings of a run, in their final types; paths are absolute."""

    definitions: tuple[Path, ...]
    solutions: tuple[Path, ...]
    workloads: tuple[Path, ...]
    device: str
    require_gpu: bool
    scope: Scope
    timeout: float
    build_timeout: float
    seed: int
    tolerance: tuple[str, ...]
    ini_tolerance: tuple[str, ...]
    examples: int
    seconds: float
    layouts: str
    save_failures: bool
    policy: str
    cache: str
    traces: Path | None


def is_active(config: pytest.Config) -> bool:
    """Whether any `--fib-*` option or `fib_*` ini key is given; without one the plugin stays dormant."""
    return any(
        getattr(config.option, option.key, None) is not None or _ini(config, option) is not None
        for option in DECLARATIONS
    )


def read(config: pytest.Config) -> Options:
    """Options of the command line over ini keys over defaults.

    Raises `pytest.UsageError` for a path that does not exist or a value that does not parse.
    """
    values = {option.dest: _value(config, option) for option in DECLARATIONS}
    invocation = config.invocation_params.dir
    for name in ("definitions", "solutions", "workloads"):
        values[name] = tuple(_existing(name, path, invocation) for path in values[name] or ())
    if not values["definitions"]:
        values["definitions"] = _default_definitions(config)
    if not values["workloads"]:
        values["workloads"] = tuple(dict.fromkeys(filter(None, map(_workloads_beside, values["definitions"]))))
    if values["seed"] is None:
        values["seed"] = secrets.randbits(32)
        config.option.fib_seed = values["seed"]  # pytest-xdist hands config.option to its workers
    values["traces"] = invocation / values["traces"] if values["traces"] else None
    values["tolerance"] = tuple(getattr(config.option, "fib_tolerance", None) or ())
    values["ini_tolerance"] = tuple(config.getini("fib_tolerance") or ())
    return Options(**{field.name: values[field.name] for field in fields(Options)})


def _ini(config: pytest.Config, option: Declaration) -> Any:
    value = config.getini(option.key)
    return None if value in ("", []) else value  # what an unset key gives differs between pytest versions


def _value(config: pytest.Config, option: Declaration) -> Any:
    given = getattr(config.option, option.key, None)
    if given is not None:
        return given
    ini = _ini(config, option)
    if ini is None:
        return option.default
    if option.ini != "string":
        return ini
    if option.choices and ini not in option.choices:
        raise pytest.UsageError(f"ini key {option.key}: {ini!r} is none of {', '.join(option.choices)}")
    try:
        return option.parse(ini)
    except ValueError as error:
        raise pytest.UsageError(f"ini key {option.key}: cannot read {ini!r}: write a number") from error


def _existing(name: str, path: str | Path, base: Path) -> Path:
    found = base / Path(path).expanduser()
    if not found.exists():
        raise pytest.UsageError(f"--fib-{name}: {path} does not exist (looked in {base})")
    return found.resolve()


def _default_definitions(config: pytest.Config) -> tuple[Path, ...]:
    for base in (config.invocation_params.dir, config.rootpath):
        if (base / "definitions").is_dir():
            return ((base / "definitions").resolve(),)
    if any(str(arg).partition("::")[0].endswith(".json") for arg in config.args):
        return ()
    raise pytest.UsageError(
        f"no definitions: there is no folder definitions/ in {config.invocation_params.dir}; name one with --fib-definitions=PATH"
    )


def _workloads_beside(definitions: Path) -> Path | None:
    """Return the folder workloads/ of the data set that a definition folder or file belongs to."""
    for base in (definitions, *definitions.parents[:LEVELS]):
        if (base / "workloads").is_dir():
            return base / "workloads"
    return None


def scope_of(options: Options, *, cuda: bool) -> Literal["smoke", "full"]:
    """Return the scope in force: full on CUDA and smoke on the CPU unless one is asked for."""
    if options.scope == "auto":
        return "full" if cuda else "smoke"
    return cast("Literal['smoke', 'full']", options.scope)
