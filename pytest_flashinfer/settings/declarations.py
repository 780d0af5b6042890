"""The table of the plugin's options: name, ini key, default, help, and how a value is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_flashinfer.settings import readers

if TYPE_CHECKING:
    from collections.abc import Callable


IniType = Literal["string", "paths", "linelist", "bool"]
SECONDS = 10.0  # of a search for sizes
UNSET = ()  # of an ini key that nobody wrote, which pytest takes for no value that is written


class Declaration(NamedTuple):  # every run of pytest pays for this class, and a dataclass takes longer to make
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
    replayed: bool = True  # whether a failure needs it again: not what says which items run or where results go

    @property
    def key(self) -> str:
        """The ini key, which is also the attribute on `config.option`."""
        return f"fib_{self.dest}"

    @property
    def switch(self) -> str:
        """The command-line switch."""
        return "--fib-" + self.dest.replace("_", "-")


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "definitions", "paths", "folder or file of definitions (default: definitions/)", repeat=True, metavar="PATH"
    ),
    Declaration("solutions", "paths", "folder or file of solutions to check and time", repeat=True, metavar="PATH"),
    Declaration(
        "workloads",
        "paths",
        "folder or file of workload lines (default: workloads/ in the folder of definitions or beside it)",
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
        readers.seconds,
        metavar="SECONDS",
    ),
    Declaration(
        "build_timeout",
        "string",
        "seconds that building a solution may take (default: 600)",
        600.0,
        readers.seconds,
        metavar="SECONDS",
    ),
    Declaration(
        "reference_timeout",
        "string",
        "seconds in which the reference has to answer about a case (default: 120, or --fib-timeout if that is more)",
        None,
        readers.seconds,
        metavar="SECONDS",
    ),
    Declaration(
        "build_jobs",
        "string",
        "C++ and CUDA solutions that are compiled ahead at the same time, while others run; 1: none (default: one for"
        " each core but two, at most 8)",
        None,
        readers.count,
        metavar="N",
        replayed=False,
    ),
    Declaration(
        "seed",
        "string",
        "seed of all inputs, to replay a run (default: drawn anew for each run and printed)",
        None,
        readers.seed,
        metavar="N",
    ),
    Declaration(
        "tolerance",
        "linelist",
        "'rtol=1e-3 atol=1e-2' in place of the computed bound; after 'NAME:' for an op_type or a definition (patterns"
        " allowed), as 'OUTPUT:rtol=1e-3' for one output",
        repeat=True,
        metavar="TEXT",
    ),
    Declaration(
        "examples",
        "string",
        "sizes and inputs that test_sizes tries for each solution (default: 100)",
        100,
        readers.count,
        metavar="N",
    ),
    Declaration(
        "seconds",
        "string",
        f"seconds that test_sizes may take for each solution (default: {SECONDS:g})",
        SECONDS,
        readers.seconds,
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
        "huge",
        "bool",
        "add test_huge, marked slow: sizes at which a tensor has more than 2**31 elements, where memory allows",
        default=False,
        flag=True,
    ),
    Declaration(
        "save_failures",
        "bool",
        "append the workload line of a failure that test_sizes found to the definition's workloads",
        default=False,
        flag=True,
        replayed=False,
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
    Declaration(
        "traces",
        "string",
        "folder to which one trace line per evaluation is appended",
        None,
        metavar="DIR",
        replayed=False,
    ),
    Declaration(
        "resume",
        "bool",
        "skip what --fib-traces already holds for the same solution content, card and versions",
        default=False,
        flag=True,
        replayed=False,
    ),
    Declaration(
        "shard",
        "string",
        "run the Kth of N parts of the solutions (K from 1), each solution in one part as a whole",
        None,
        parse=readers.shard,
        metavar="K/N",
        replayed=False,
    ),
    Declaration(
        "results",
        "string",
        "file for one benchmark result per solution and definition, at the end",
        None,
        metavar="FILE",
        replayed=False,
    ),
    Declaration(
        "report",
        "string",
        "HTML report of the run in one file, at the end (needs the extra `report`)",
        None,
        metavar="FILE",
        replayed=False,
    ),
    Declaration(
        "calls",
        "paths",
        "kernel calling record of a model, or a folder of them: weighs the measured latencies by its kernel counts",
        repeat=True,
        metavar="FILE",
        replayed=False,
    ),
    Declaration(
        "min_speedup",
        "linelist",
        "speedup over the reference below which test_speed fails, after 'NAME:' for an op_type or a definition"
        " (patterns allowed)",
        repeat=True,
        metavar="X",
    ),
    Declaration(
        "baseline", "string", "pytest-benchmark JSON of an earlier run: who is SLOWER fails", None, metavar="FILE"
    ),
    Declaration(
        "threshold",
        "linelist",
        "difference from the baseline that matters, 0.05 for 5 per cent, as --fib-min-speedup has it (default: 0.05)",
        repeat=True,
        metavar="SHARE",
    ),
)
