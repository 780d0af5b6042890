"""The tables in GitHub's Markdown: for the summary of a job and for a comment on a pull request.

Names, sources and logs are strangers': each is written so that it is text and nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flashinfer.report.excerpt import excerpt
from pytest_flashinfer.report.numbers import count
from pytest_flashinfer.report.results import standings
from pytest_flashinfer.report.table import HEAD, SKIPPED, cells_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_flashinfer.report.results import Broken, Result, Standing

LIMIT = 1_000_000  # bytes; GitHub drops a job's summary of more than 1 MiB as a whole
BEGINNING = "## Kernels: "
LONGEST_CELL = 200  # characters
LONGEST_FAILURE = (2_300, 1_600)  # of the beginning of a text and of its end
SHARES = {"others": 0.1, "failures": 0.35, "details": 0.3}  # of the room, at most; the tables have what these leave
_ROOM_FOR_NOTES = 400
_PLAIN = re.compile(r"[^A-Za-z0-9 .,=+%/-]")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def summary(
    results: Sequence[Result], limit: int = LIMIT, more: Sequence[str] = (), broken: Sequence[Broken] = ()
) -> str:
    """Return the whole text, at most `limit` bytes of UTF-8; what does not fit is counted. Empty where there is none.

    Failures come first, those of no solution before the others; then `more` (finished blocks of Markdown), then one
    table per definition, best first.
    """
    tables = standings(results)
    if not (tables or broken or more):
        return ""
    head = _headline(tables, broken)
    room = limit - _ROOM_FOR_NOTES - _size(head)
    others = _fit(list(_broken_rows(broken)), int(SHARES["others"] * room), "failure")
    failures = _fit(list(_failure_rows(tables, results)), int(SHARES["failures"] * room), "wrong solution")
    details = _fit([*_broken_details(broken), *_details(results)], int(SHARES["details"] * room), "failure's text")
    rest = room - _size(others) - _size(failures) - _size(details)
    return "".join([head, others, failures, details, _fit([*more, *map(_table, tables.items())], rest, "table")])


def cell(text: str) -> str:
    """Return a stranger's text for a cell of a table: one line, no Markdown, no HTML, no mention of anybody."""
    short = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."
    plain = _PLAIN.sub(lambda match: f"&#{ord(match[0])};", " ".join(_UNSEEN.sub("?", short).split()))
    return f"<code>{plain}</code>" if plain else ""


def fenced(text: str) -> str:
    """Return a text as a block of code whose end it cannot write."""
    clean = _UNSEEN.sub("?", text.replace("\r\n", "\n")).strip("\n")
    ticks = max([2, *map(len, re.findall(r"`+", clean))]) + 1
    return f"{'`' * ticks}text\n{clean}\n{'`' * ticks}\n"


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _headline(tables: Mapping[str, Sequence[Standing]], broken: Sequence[Broken]) -> str:
    ran = [row for table in tables.values() for row in table if row.total]
    right = sum(not row.failures for row in ran)
    solutions = f"{right} of {count(len(ran), 'solution')} right, {count(len(tables), 'definition')}"
    others = f"; {count(len(broken), 'failure')} of no solution" if broken else ""
    return f"{BEGINNING}{solutions if tables else 'no solution ran'}{others}\n\n"


def _broken_rows(broken: Sequence[Broken]) -> Iterator[str]:
    if broken:
        yield f"### Failures of no solution\n\n{rows(('what', 'why'), [])}"
    for each in broken:
        yield f"| {cell(each.name)} | {cell(each.message)} |\n"


def _broken_details(broken: Sequence[Broken]) -> Iterator[str]:
    """Yield the texts of which the table has no room for all."""
    for each in broken:
        if each.text.strip() != each.message or len(each.message) > LONGEST_CELL:
            yield _folded(cell(each.name), each.text)


def _failure_rows(tables: Mapping[str, Sequence[Standing]], results: Sequence[Result]) -> Iterator[str]:
    messages: dict[tuple[str, str], str] = {}
    for result in results:
        if result.outcome == "failed":
            messages.setdefault((result.definition, result.solution), result.message)
    wrong = [(name, row) for name, table in tables.items() for row in table if row.failures]
    if not wrong:
        return
    head = ("definition", "solution", "author", "failures", "the first")
    yield f"\n### Failures\n\n{rows(head, [])}"
    for name, row in wrong:
        kinds = ", ".join(f"{count} {cell(status)}" for status, count in sorted(row.failures.items()))
        cells = (cell(name), cell(row.solution), cell(row.author), kinds, cell(messages[name, row.solution]))
        yield f"| {' | '.join(cells)} |\n"


def _details(results: Sequence[Result]) -> Iterator[str]:
    """Yield the text of the first failure of each solution."""
    seen: set[tuple[str, str]] = set()
    for result in results:
        key = (result.definition, result.solution)
        if result.outcome != "failed" or key in seen or not result.details:
            continue
        seen.add(key)
        yield _folded(f"{cell(result.definition)} {cell(result.solution)} {cell(result.check)}", result.details)


def _folded(title: str, text: str) -> str:
    """Return a text that is shown when its title, which is Markdown already, is clicked."""
    return f"\n<details><summary>{title}</summary>\n\n{fenced(excerpt(text, *LONGEST_FAILURE))}\n</details>\n"


def _table(pair: tuple[str, Sequence[Standing]]) -> str:
    name, standing = pair
    body = [[*cells_of(row)[:-1], _last(row)] for row in standing]
    keep = [number for number in range(len(HEAD)) if number == 0 or any(row[number] not in ("", "-") for row in body)]
    lines = [[cell(row[i]) if i <= 1 or i == len(HEAD) - 1 else row[i] for i in keep] for row in body]
    return f"\n### {cell(name)}\n\n{rows([HEAD[i] for i in keep], lines)}"


def _last(row: Standing) -> str:
    """Return the text on failures of a row; of a solution of which nothing ran, why."""
    return cells_of(row)[-1] if row.total else f"{SKIPPED}: {row.skipped}"


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _fit(blocks: Sequence[str], room: int, what: str) -> str:
    """Join the blocks that fit; the rest is counted."""
    taken: list[str] = []
    for number, block in enumerate(blocks):
        room -= _size(block)
        if room < 0:
            left = len(blocks) - number
            return "".join([*taken, f"\n{count(left, f'more {what}')} left out: the log has them.\n"])
        taken.append(block)
    return "".join(taken)
