"""README, the change log and the gate say the same thing."""

import re
from pathlib import Path

import pytest_flashinfer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GATE = (ROOT / ".ci/run").read_text()


def blocks(text):
    """Return the commands of the fenced `sh` blocks of a page."""
    return [block.strip() for block in re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]


def steps():
    return dict(re.findall(r'^ *step "([^"]+)" "(.*)"$', GATE, re.MULTILINE))


def test_the_first_two_commands_of_readme_are_what_the_gate_runs():
    assert blocks(README)[:2] == [steps()["main job"], steps()["tests"]]


def test_the_gate_pins_every_install():
    for command in [*blocks(README), GATE]:
        for line in command.splitlines():
            if re.search(r"\bpip install\b", line):
                assert "-c constraints.txt" in line or "--no-deps" in line, line


def test_the_change_log_names_the_version():
    assert re.search(
        rf"^## {re.escape(pytest_flashinfer.__version__)} - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            assert goal.exists(), f"{page}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", goal.read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in slugs, f"{page}: {target}"
