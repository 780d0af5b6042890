"""Every solution that tries to fool the harness is caught, and every honest one beside it passes."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from .corpus import CORPUS, Verdict, run_plugin, write_json

CHEATS = CORPUS / "cheats"
MANIFEST: list[dict[str, Any]] = json.loads((CHEATS / "MANIFEST.json").read_text())
PAGED = ("batch_size", "len_indptr", "num_kv_indices", "num_pages")
SIZES = {
    "rmsnorm_h128": (("batch_size",), ("input", "weight"), ((1,), (7,), (64,), (130,))),
    "gemm_n256_k128": (("M",), ("A", "B"), ((1,), (13,), (64,), (200,))),
    "kv_append_s64_h4": (("num_tokens",), ("k", "k_cache", "slot_mapping"), ((1,), (7,), (33,), (64,))),
    # The last pool takes more than 16 MiB: fewer calls are made there.
    "paged_sum_ps16_d64": (PAGED, ("cache", "kv_indptr", "kv_indices"), ((4, 5, 24, 40), (4, 5, 60, 4200))),
    "greedy_v128": (("batch_size",), ("logits",), ((1,), (7,), (64,), (200,))),
    "top_k_sampling_v512": (("batch_size",), ("probs", "top_k"), ((1,), (7,), (64,), (200,))),
}
HAS_CARD = shutil.which("nvidia-smi") is not None


def notes(entry: dict[str, Any], kind: str) -> list[str]:
    return [text for key, text in entry["notes"] if key == kind]


def lay_out(root: Any, entries: list[dict[str, Any]]) -> None:
    """Write the corpus as a data set: definitions, a few workloads and the solutions in `entries`."""
    for name, (axes, inputs, sizes) in SIZES.items():
        definition = json.loads((CHEATS / f"{name}.json").read_text())
        write_json(root / "definitions" / definition["op_type"] / f"{name}.json", definition)
        lines = [
            {
                "definition": name,
                "workload": {
                    "uuid": f"{size[-1]:08d}-cheat",
                    "axes": dict(zip(axes, size, strict=True)),
                    "inputs": {key: {"type": "random"} for key in inputs},
                },
            }
            for size in sizes
        ]
        path = root / "workloads" / definition["op_type"] / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for entry in entries:
        name = entry["file"].removesuffix(".py")
        spec = {
            "language": (notes(entry, "language") or ["python"])[0],
            "target_hardware": [],
            "entry_point": "main.py::run",
            "destination_passing_style": entry["style"] == "dps",
        }
        content = (CHEATS / entry["file"]).read_text()
        solution = {
            "name": name,
            "definition": entry["definition"],
            "author": "corpus",
            "spec": spec,
            "sources": [{"path": "main.py", "content": content}],
        }
        write_json(root / "solutions" / "corpus" / f"{name}.json", solution)


RUNNABLE = [entry for entry in MANIFEST if entry["needs"] == "cpu" or HAS_CARD]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory, processes: str) -> dict[str, Verdict]:
    """Run the whole corpus in one run of the plugin, as a user would; one bad solution must not spoil the next."""
    root = tmp_path_factory.mktemp("cheats")
    lay_out(root, RUNNABLE)
    return run_plugin(root, processes, "--fib-timeout=2", "--fib-scope=full", "--fib-seconds=1")[0]


@pytest.mark.parametrize("entry", RUNNABLE, ids=lambda entry: entry["file"])
def test_verdict(entry: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[entry["file"].removesuffix(".py")]
    if entry["expect"] == "PASS":
        assert not verdict.failed, verdict.message
        assert not verdict.skipped
        assert verdict.passed
    elif not any(kind in ("accept", "policy") for kind, _ in entry["notes"]):
        assert verdict.failed, f"not caught: {entry['why']}"


@pytest.mark.gpu
def test_library_calls_fail_under_the_policy(tmp_path: Any, processes: str) -> None:
    entries = [entry for entry in MANIFEST if notes(entry, "policy") or entry["file"].startswith(("230", "231"))]
    lay_out(tmp_path, entries)
    verdicts, output = run_plugin(tmp_path, processes, "--fib-policy=custom-kernel", "--fib-seconds=2")
    for entry in entries:
        verdict = verdicts[entry["file"].removesuffix(".py")]
        assert bool(verdict.failed) == (entry["expect"] == "FAIL"), (entry["file"], verdict.message, output[-3000:])
