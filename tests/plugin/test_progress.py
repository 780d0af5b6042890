"""On a terminal, what takes long says what it is; a log holds none of it."""

import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_flashinfer.run.progress import ERASE, RESTORE, SAVE, Progress

from .repository import GOOD, QUICK


def screen(text):
    """Return the lines that a terminal shows in the end, for the few sequences that are used here."""
    lines, row, column, saved = [[]], 0, 0, (0, 0)
    rest = text.replace(SAVE, "\0s").replace(RESTORE, "\0r").replace(ERASE, "\0e")
    position = 0
    while position < len(rest):
        char = rest[position]
        if char == "\0":
            position += 1
            if rest[position] == "s":
                saved = (row, column)
            elif rest[position] == "r":
                row, column = saved
            else:
                del lines[row][column:]
        elif char == "\n":
            row, column = row + 1, 0
            lines.extend([] for _ in range(row + 1 - len(lines)))
        elif char == "\r":
            column = 0
        else:
            lines[row] += [" "] * (column + 1 - len(lines[row]))
            lines[row][column] = char
            column += 1
        position += 1
    return ["".join(line).rstrip() for line in lines]


def on_a_terminal(repository, *options):
    control, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", "--fib-solutions=solutions", *QUICK, *options]
    with subprocess.Popen(command, cwd=repository.root, env=environment, stdout=terminal, stderr=terminal) as run:
        os.close(terminal)
        output = b""
        while True:
            try:
                read = os.read(control, 1 << 16)
            except OSError:
                break
            output += read
        assert run.wait(60) == 0, output.decode()
    os.close(control)
    return output.decode()


def test_a_terminal_shows_what_is_done_and_keeps_nothing_of_it(repository):
    repository.solve("good", "print('noise')\n" + GOOD)
    output = on_a_terminal(repository, "-v", "-k", "test_correct or test_sizes or test_speed")
    for text in (" building good", " case 1", " waiting for the card"):
        assert f"{SAVE}{text}{ERASE}{RESTORE}" in output, text
    shown = "\n".join(screen(output))
    for text in ("building", "case 1", "waiting", "noise"):
        assert text not in shown
    assert shown.count("PASSED") == 3


def test_a_log_has_nothing_of_it(repository, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    done = repository.run("-v", "-k", "test_correct")
    assert "PASSED" in done.output
    assert "building" not in done.output
    assert "\x1b" not in done.output


class Writer:
    def __init__(self, width, line):
        self.fullwidth, self.width_of_current_line, self.text = width, len(line), ""
        self._file = self

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [
        ((80, 0, True, "xterm"), True),
        ((80, -1, True, "xterm"), False),
        ((80, 0, False, "xterm"), False),
        ((80, 0, True, "dumb"), False),
        ((30, 0, True, "xterm"), False),
    ],
)
def test_where_it_is_shown(monkeypatch, terminal, shown):
    width, verbosity, tty, term = terminal
    monkeypatch.setenv("TERM", term)
    writer = Writer(width, "x" * 20)
    reporter = SimpleNamespace(isatty=tty, verbosity=verbosity, _tw=writer)
    plugins = SimpleNamespace(get_plugin=lambda name: reporter if name == "terminalreporter" else None)
    with Progress(SimpleNamespace(pluginmanager=plugins)).doing("a" * 200):
        pass
    assert bool(writer.text) is shown
    assert max(map(len, screen(writer.text)), default=0) <= width
