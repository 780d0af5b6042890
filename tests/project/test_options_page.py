"""docs/options.md lists every option as it is declared."""

import re
from pathlib import Path

import pytest

from pytest_flashinfer.settings.declarations import DECLARATIONS

PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text()
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `(--[^`]+)` \| `([^`]+)` \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)
}


def shown_switch(option):
    if option.flag:
        return option.switch
    value = "\\|".join(option.choices or ()) or option.metavar or option.dest.upper()
    return f"{option.switch}={value}"


def shown_default(option):
    if option.flag:
        return "on" if option.default else "off"
    return f"`{option.default:g}`" if isinstance(option.default, (int, float)) else f"`{option.default}`"


def test_no_option_is_listed_that_does_not_exist():
    listed = {re.split(r"[= ]", switch)[0] for switch in ROWS}
    assert listed == {option.switch for option in DECLARATIONS}


@pytest.mark.parametrize("option", DECLARATIONS, ids=lambda option: option.dest)
def test_option_is_listed_with_its_key_and_default(option):
    key, default, text = ROWS[shown_switch(option)]
    assert key == option.key
    if option.default is not None:
        assert default.strip() == shown_default(option)
    assert text.strip()


def test_every_option_has_help_and_an_ini_key_of_its_own():
    assert all(option.help for option in DECLARATIONS)
    assert len({option.key for option in DECLARATIONS}) == len(DECLARATIONS)
