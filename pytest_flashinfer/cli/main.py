"""The command line: arguments, exit codes, and one line for everything that goes wrong."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.cli import convert, merge, report, validate
from pytest_flashinfer.data.faults import printable
from pytest_flashinfer.data.files import reason_of
from pytest_flashinfer.data.schema import NAMES, schema_text

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, FAULTY, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130
EPILOG = "exit codes: 0 all is well, 1 a file has faults, 2 wrong usage or a file that cannot be read or written"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no code of the files is run.

    Raises SystemExit for wrong arguments and for `--help`, as argparse does, and nothing else.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it exits
        return FINE
    except (convert.CannotConvertError, merge.CannotMergeError, report.CannotReportError) as error:
        _say(str(error))
        return USAGE
    except OSError as error:
        _say(f"{error.filename}: {reason_of(error)}" if error.filename is not None else str(error))
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whoever reads this has no use for a traceback, only for what and where
        _say(f"internal error: {type(error).__name__}: {error}: please report it together with the file")
        return INTERNAL
    return code


def _say(text: str) -> None:
    sys.stderr.write(f"error: {printable(text)}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_flashinfer",
        description="Read, check, rewrite and join definitions, workloads, solutions and results. Nothing is run.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("convert", help="write a file of any known form in the canonical one", epilog=EPILOG)
    one.add_argument("source", type=Path, metavar="IN", help="file, solution folder or folder of files")
    one.add_argument("target", type=Path, metavar="OUT", help=".json, .jsonl, .py, or a folder")
    one.add_argument("--definition", metavar="NAME", help="whom workload lines belong to that do not say it")
    one.add_argument("--force", action="store_true", help="overwrite what is there")
    one.set_defaults(run=lambda given: convert.run(given.source, given.target, given.definition, force=given.force))
    two = commands.add_parser("validate", help="name every fault of files and data sets, one a line", epilog=EPILOG)
    two.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="data set, folder or file")
    two.add_argument("-v", "--verbose", action="store_true", help="also say what was read in another form than written")
    two.set_defaults(run=lambda given: validate.run(given.paths, verbose=given.verbose))
    _add_report(commands)
    three = commands.add_parser("schema", help="print a JSON Schema")
    three.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    three.set_defaults(run=lambda given: _print_schema(given.name))
    _add_merge(commands)
    return parser


def _add_merge(commands: Any) -> None:
    four = commands.add_parser("merge", help="put together what the parts of a run left", epilog=EPILOG)
    four.add_argument("sources", type=Path, nargs="+", metavar="DIR", help="folder that one part left")
    four.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="folder to write to")
    four.add_argument("--baseline", type=Path, metavar="FILE", help="pytest-benchmark's JSON of an earlier run")
    four.add_argument("--limit", type=int, metavar="BYTES", help="size of summary.md, at most (default: GitHub's)")
    four.set_defaults(run=lambda given: merge.run(given.sources, given.output, given.baseline, given.limit))


def _add_report(commands: Any) -> None:
    made = commands.add_parser("report", help="make one HTML page from the trace lines of runs", epilog=EPILOG)
    made.add_argument("traces", type=Path, nargs="+", metavar="TRACES", help="folder of --fib-traces, or .jsonl file")
    made.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the page, report.html say")
    for name in ("definitions", "solutions"):
        text = f"folder or file of {name} (default: {name}/ of the data set that the traces lie in)"
        made.add_argument(f"--{name}", type=Path, action="append", default=[], metavar="PATH", help=text)
    made.add_argument("--title", default="Kernel report", metavar="TEXT", help="heading of the page")
    made.set_defaults(
        run=lambda given: report.run(given.traces, given.output, given.definitions, given.solutions, given.title)
    )


def _print_schema(name: str) -> int:
    sys.stdout.write(schema_text(name).rstrip() + "\n")
    return FINE
