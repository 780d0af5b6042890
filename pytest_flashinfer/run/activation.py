"""What the plugin does where nobody asks for it: declare its options and marks, and see that nobody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.settings.declarations import DECLARATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flashinfer.settings.declarations import Declaration

MARKS = (
    "definition(name, op_type): what a kernel test belongs to; select with -m \"definition(op_type='gemm')\"",
    "solution(name, author, language): the solution under test",
    "slow: takes long; test_huge is (--fib-huge)",
    "fib_min_speedup(factor): the speedup over the reference that test_speed of a definition has to reach",
    "fib_threshold(share): the difference from --fib-baseline that matters for a definition, 0.05 for 5 %",
)
HINT = "pytest-flashinfer collects definitions where a --fib- option or ini key is given, as --fib-solutions=PATH"


def add_options(parser: pytest.Parser) -> None:
    """Declare every option in one group, each with its ini equivalent."""
    group = parser.getgroup("flashinfer", "GPU kernels (pytest-flashinfer)")
    for option in DECLARATIONS:
        parser.addini(option.key, option.help, type=option.ini, default=None)
        text = f"{option.help} (ini: {option.key})"
        if option.flag:
            group.addoption(option.switch, dest=option.key, action="store_true", default=None, help=text)
        else:
            group.addoption(
                option.switch,
                dest=option.key,
                action="append" if option.repeat else "store",
                default=None,
                type=None if option.parse is str else option.parse,
                choices=option.choices,
                metavar=option.metavar,
                help=text,
            )


def is_active(config: pytest.Config) -> bool:
    """Whether any `--fib-*` option or `fib_*` ini key is given; without one the plugin stays dormant."""
    if getattr(config.option, "help", False):
        return False  # what the options are must be readable wherever pytest is called
    return any(from_line(config, option) is not None or from_ini(config, option) is not None for option in DECLARATIONS)


def meant(args: Iterable[str]) -> dict[str, str]:
    """Return what to say of options of the command line that are nearly this plugin's, by a heading; else nothing."""
    known = [option.switch for option in DECLARATIONS]
    unknown = {str(arg).partition("=")[0] for arg in args if str(arg).startswith("--fib-")}.difference(known)
    if not unknown:
        return {}
    from pytest_flashinfer.data.nearest import nearest  # which every run of pytest would pay for

    near = {near for name in unknown if (near := nearest(name, known)) is not None}
    return {"did you mean": ", ".join(sorted(near))} if near else {}


def from_line(config: pytest.Config, option: Declaration) -> Any:
    """Return what the command line says, or `None`."""
    return getattr(config.option, option.key, None)


def from_ini(config: pytest.Config, option: Declaration) -> Any:
    """Return what the ini key says, or `None`. Raises pytest.UsageError."""
    try:
        value = config.getini(option.key)
    except (ValueError, pytest.UsageError) as error:  # pytest's own, for a bool
        raise pytest.UsageError(f"ini key {option.key}: {error}: write true or false") from error
    return None if value in ("", []) else value  # what an unset key gives differs between pytest versions
