"""Names that a solution's author chose are no paths: a long or odd one costs nobody else's results."""

import json

from .repository import GOOD, WRONG

NAMES = ("x" * 5000, "../../up", "a/b", "nul\0l", ".", "\u202elive")


def test_names_that_are_no_file_names_cost_no_report(repository):
    for number, name in enumerate(NAMES):
        place = repository.solve(f"n{number}", WRONG if number % 2 else GOOD)
        place.write_text(json.dumps(json.loads(place.read_text()) | {"name": name}))
    files = ("--fib-results=r.jsonl", "--fib-traces=t", "--fib-report=r.html")
    done = repository.run("-k", "test_correct", *files)
    assert "Traceback" not in done.output
    assert "INTERNALERROR" not in done.output
    written = [json.loads(line)["solution"] for line in (repository.root / "r.jsonl").read_text().splitlines()]
    assert {"good", *NAMES} <= set(written)
    assert (repository.root / "r.html").exists()


def test_a_source_whose_path_is_too_long_fails_alone(repository):
    entry = "y" * 5000 + ".py"
    place = repository.solve("long")
    document = json.loads(place.read_text())
    document["sources"][0]["path"] = entry
    document["spec"]["entry_point"] = f"{entry}::run"
    place.write_text(json.dumps(document))
    done = repository.run("-k", "test_correct", "--fib-results=r.jsonl", "--fib-report=r.html")
    assert "INTERNALERROR" not in done.output
    assert done["test_correct[long-"].message.startswith("COMPILE_ERROR: ")
    assert done["test_correct[good-"].outcome == "passed"
    assert len((repository.root / "r.jsonl").read_text().splitlines()) == 2
