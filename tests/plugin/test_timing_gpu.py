"""On a card: what stands beside a number."""

from __future__ import annotations

import json
import re

import pytest
import torch

from .repository import REFERENCE

pytestmark = pytest.mark.gpu
TORCH = "import torch\n\ndef run(x, w):\n    return torch.addcmul(torch.ones_like(x), x, w)\n"
SPEED = ("-k", "test_speed", "--fib-device=cuda", "--benchmark-json=run.json")


def entries(repository):
    return json.loads((repository.root / "run.json").read_text())


def test_facts_of_a_card(repository):
    repository.sizes(1 << 20)
    repository.solve("good", TORCH)
    done = repository.run(*SPEED, "--fib-scope=full", "--fib-traces=traces", apart=True)
    assert done.code == 0, done.output
    document = entries(repository)
    (entry,) = document["benchmarks"]
    info = entry["extra_info"]
    assert info["clock"] == "device (CUPTI)"
    assert 0 < info["host_s"] < 1e-3
    assert info["noise"] >= 0
    assert entry["stats"]["iqr"] < 0.2 * entry["stats"]["median"]  # a host that is held up once is no fault
    assert 0.1 < info["roofline_share"] < 1.1
    assert info["roofline_bound"] == "memory"
    assert isinstance(info["throttle"], list)
    assert info["limits"]["bandwidth_gb_s"] > 100
    machine = document["machine_info"]["flashinfer"]
    assert machine["card"] == info["device"]
    assert machine["clocks"]["sm_max_mhz"] >= info["sm_mhz"] > 100
    assert machine["limits"] == info["limits"]
    (trace,) = (repository.root / "traces/elementwise/scale_add_h8.jsonl").read_text().splitlines()
    performance = json.loads(trace)["evaluation"]["performance"]
    assert performance["roofline_ms"] == pytest.approx(1e3 * info["roofline_s"])


def test_a_run_agrees_with_itself(repository):
    repository.sizes(1 << 20)
    repository.solve("good", TORCH)
    assert repository.run(*SPEED, "--fib-scope=full", apart=True).code == 0
    again = repository.run(*SPEED[:3], "--fib-scope=full", "--fib-baseline=run.json", apart=True)
    assert again.code == 0, again.output
    assert re.search(r"1 (SAME|UNDECIDED|FASTER)", again.output), again.output  # other work on the card may slow one


def test_a_copy_of_the_reference_cannot_be_told_from_it(repository):
    """What is as fast is timed until that is known, or five times; what is far slower is timed once."""
    repository.sizes(1 << 20)
    repository.solve("copy", REFERENCE)
    repository.solve("twice", REFERENCE.replace("return", "x * w + 1\n    return"))
    assert repository.run(*SPEED, "--fib-scope=full", apart=True).code == 0
    found = {entry["name"].split("[")[1].split("-")[0]: entry for entry in entries(repository)["benchmarks"]}
    assert found["copy"]["stats"]["rounds"] in {4, 10, 20, 30, 40, 50}  # 4 where others on the card kept a call waiting
    assert found["copy"]["extra_info"]["speedup"] == pytest.approx(1, abs=0.02)
    assert found["twice"]["stats"]["rounds"] in {4, 10}
    assert found["twice"]["extra_info"]["speedup"] < 0.7


def test_processes_take_cards_in_turn(repository):
    if torch.cuda.device_count() < 2:
        pytest.skip("one card")
    shown = "    print('card', os.environ['CUDA_VISIBLE_DEVICES'])\n    return"
    source = "import os\n" + TORCH.replace("    return", shown)
    repository.solve("good", source)
    repository.solve("other", source)
    done = repository.run("-k", "test_correct", "--fib-device=cuda", "-n", "2", "-rP", apart=True)
    assert done.code == 0, done.output
    assert len({line for line in done.output.splitlines() if line.startswith("card ")}) == 2
