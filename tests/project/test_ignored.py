"""What the commands and examples of README and docs leave in the root is no part of the repository."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugin.pages import SHELL, blocks

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"definition.md"}  # pages that say that they are for a folder of their own
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in ELSEWHERE)]
WRITES = re.compile(r"(?:--(?:junitxml|benchmark-json|fib-(?:results|report|traces))=| -o )(?![A-Z]+\b)([\w./-]+)")


def left_by(page):
    """Return the files and folders of the root that a reader of a page makes there."""
    made = {block.file for block in blocks(page) if block.file is not None}
    made |= set(WRITES.findall(page.read_text()))
    for command in (command for block in blocks(page) if block.language in SHELL for command in block.commands):
        words = command.split()
        if words[:4] == ["python", "-m", "pytest_flashinfer", "convert"]:
            made.add(words[5])
        elif words[:1] == ["mkdir"]:
            made.update(word for word in words[1:] if not word.startswith("-"))
    kept = {"definitions", "workloads", ".github"}  # what a reader adds there is for keeping
    return sorted(name for name in made if name[0] != "/" and name.partition("/")[0] not in kept)


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="this is no checkout")
def test_git_passes_over_what_the_pages_leave_in_the_root():
    made = sorted({name for page in PAGES for name in left_by(page)})
    assert {"my_rmsnorm.py", "kit/main.py", "traces/", "parts/1", "merged", "my_rmsnorm.json"} <= set(made)
    given = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *made]
    done = subprocess.run(given, capture_output=True, text=True, check=False, timeout=30)
    assert sorted(set(made) - set(done.stdout.splitlines())) == []
