"""What the plugin does where nobody asks for it: declare its options and marks, and see that nobody asks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flashinfer.settings.declarations import DECLARATIONS, UNSET

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
        parser.addini(option.key, option.help, type=option.ini, default=UNSET)
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
    return any(_is_given(config, option) for option in DECLARATIONS)


def _is_given(config: pytest.Config, option: Declaration) -> bool:
    """Whether anything is said for an option, be it nothing that can be read."""
    try:
        return getattr(config.option, option.key, None) is not None or config.getini(option.key) != UNSET
    except (ValueError, TypeError, pytest.UsageError):
        return True


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
    """Return what the command line says, or `None`. Raises pytest.UsageError for an empty value."""
    return _filled(getattr(config.option, option.key, None), option.switch)


def from_ini(config: pytest.Config, option: Declaration) -> Any:
    """Return what the ini key says, or `None`. Raises pytest.UsageError, also for an empty value."""
    try:
        value = config.getini(option.key)
    except (ValueError, TypeError, pytest.UsageError) as error:  # pytest's own, for a bool or what TOML says
        said = ": write true or false" if option.ini == "bool" else ""
        raise pytest.UsageError(f"ini key {option.key}: {error}{said}") from error
    return None if value == UNSET else _filled(value, f"ini key {option.key}")


def _filled(value: Any, where: str) -> Any:
    """Return a value. Raises pytest.UsageError for an empty one: that of a variable that a shell does not know.

    It would name the current folder, or switch off what is asked for.
    """
    given = value if isinstance(value, list) else [value]
    if not given or any(isinstance(each, str) and not each.strip() for each in given):
        raise pytest.UsageError(f"{where}: there is no value: give one, or leave it out")
    return value


def as_said(config: pytest.Config, text: str) -> str:
    """Return a message with the place in the ini file of each key that it is about.

    Messages name the switches of the command line; where that does not say it, the ini file does.
    """
    for option in DECLARATIONS:
        key = f"ini key {option.key}"
        found = re.search(rf"^(?:{option.switch}(?:=(?P<value>\S+?))?|{key}): ", text, re.MULTILINE)
        if found is None or (not found[0].startswith(key) and getattr(config.option, option.key, None) is not None):
            continue
        place = _place_in_ini(config, option.key)
        if place:
            said = f"{place}: {key}: " + (f"{found['value']!r}: " if found["value"] else "")
            text = text.replace(found[0], said)
    return text


def _place_in_ini(config: pytest.Config, key: str) -> str:
    """Return file and line of an ini key, or nothing where none has it: `-o` may say it as well."""
    if any(each.partition("=")[0].strip() == key for each in config.getoption("override_ini", None) or ()):
        return f"-o {key}"
    lines = [] if config.inipath is None else config.inipath.read_text("utf-8").splitlines()
    found = next((n for n, line in enumerate(lines, 1) if re.match(rf"""["']?{key}["']?\s*[=:]""", line.strip())), None)
    return "" if found is None else f"{config.inipath}:{found}"
