"""The fenced blocks of README and docs: what each is, and how it is executed.

A block whose fence or first line names a file is written there. A block of `sh` is run, line by line.
A comment before it says what else is to be known:

- `<!-- exit 1 -->`: the code with which its last command ends;
- `<!-- gpu -->`, `<!-- syntax -->`: it needs a card, or many processes: its items are collected, not run;
- `<!-- network -->`: it needs another machine: it is parsed.
"""

from __future__ import annotations

import configparser
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from pytest_flashinfer.cli.main import main
from pytest_flashinfer.data.solution_forms import tomllib
from pytest_flashinfer.settings.declarations import DECLARATIONS

from .repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = re.compile(r'(?:^<!-- ([\w ]+) -->\n)?^(`{3,})(\w*)(?: title="([^"]+)")?\n(.*?)^\2$', re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w./-]+\.py)\n")
SHELL = ("sh", "bash")
QUICK = ["--fib-device=cpu", "--fib-examples=6", "--fib-seconds=1"]
MARKS = ("", "gpu", "syntax", "network", "exit 1", "exit 2")


@dataclass(frozen=True)
class Block:
    mark: str
    language: str
    file: str | None
    text: str

    @property
    def commands(self) -> list[str]:
        return self.text.replace("\\\n", " ").splitlines()


def blocks(page: Path) -> list[Block]:
    found = []
    for mark, _, language, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        named = NAMED.match(text)
        found.append(Block(mark, language, title or (named[1] if named else None), text))
    return found


def read(block: Block) -> None:
    """Parse a block in its own language; raises where it cannot be."""
    if block.language == "python":
        compile(block.text, block.file or "block", "exec")
    elif block.language == "json":
        for text in block.text.splitlines() if (block.file or "").endswith(".jsonl") else [block.text]:
            json.loads(text)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "ini":
        configparser.ConfigParser().read_string(block.text)
    elif block.language in ("cpp", "cuda"):
        assert block.file, "tests/build compiles it, and a card's compiler is not everywhere"
    elif block.language in SHELL:
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=10)
        known = {option.switch for option in DECLARATIONS}
        assert set(re.findall(r"--fib-[a-z-]+", block.text)) <= known
    else:
        assert block.language == "text", f"a block of {block.language or 'no language'}: {block.text[:40]}"


def execute(block: Block, folder: Path) -> str:
    """Write a file, or run commands, in `folder`; returns what was printed."""
    if block.language not in SHELL:
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        return ""
    if block.mark == "network":
        return ""
    printed = ""
    for number, command in enumerate(block.commands, 1):
        code, output = run(command, folder, collect=block.mark in ("gpu", "syntax"))
        last = number == len(block.commands)
        wanted = int(block.mark.removeprefix("exit ")) if last and block.mark.startswith("exit") else 0
        assert code == wanted, f"{command}\nended with {code}\n{output}"
        printed += output
    return printed


def run(command: str, folder: Path, *, collect: bool = False) -> tuple[int, str]:
    """Run one command: pytest and this package within this process, since each start of one imports torch."""
    words = shlex.split(command)
    if words[0] == "pytest":
        if collect:
            words = [word for word in words if word != "--fib-require-gpu"] + ["--collect-only", "-q", "-n0"]
        return Repository(folder).main([*words[1:], *QUICK, *quick(words)])
    if words[:1] == ["python"] and "pytest_flashinfer" in words:
        arguments = words[words.index("pytest_flashinfer") + 1 :]
        return commanded([each for word in arguments for each in expanded(word, folder)], folder)
    program = [sys.executable, *words[1:]] if words[0] == "python" else ["bash", "-euc", command]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def quick(words: list[str]) -> list[str]:
    """Leave out the search where a command is not about it: it is the slowest check."""
    return [] if {"-k", "--benchmark-skip", "--benchmark-only", "-x", "--lf"} & set(words) else ["-k", "not test_sizes"]


def expanded(word: str, folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


def commanded(arguments: list[str], folder: Path) -> tuple[int, str]:
    import pytest

    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        patch.chdir(folder)
        code = main(arguments)
    return code, output.getvalue()
