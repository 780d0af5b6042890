"""Shipped kernels take no more shared memory than the card has: what they are launched with follows from its kind.

The sizes are those that Triton 3.6 compiles for a kind of card, which needs no card.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
ROOT = Path(__file__).parents[2] / "solutions" / "triton"


def launched(tmp_path, monkeypatch, pattern, shapes, capability):
    """Return the constants that a solution launches its kernel with on such a card."""
    (place,) = ROOT.glob(pattern)
    text = json.loads(place.read_text(encoding="utf-8"))["sources"][0]["content"]
    (tmp_path / "source.py").write_text(text, encoding="utf-8")  # Triton reads a kernel's source from its file
    names: dict = {"__name__": "source"}
    exec(compile(text, str(tmp_path / "source.py"), "exec"), names)
    found: dict = {}

    class Recorder:
        def __getitem__(self, grid):
            return lambda *_, **constants: found.update(constants)

    names["prefill_kernel"] = Recorder()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    def tensor(*shape):
        return SimpleNamespace(shape=shape, stride=lambda axis=0: 1, is_cuda=True, device="cuda")

    names["run"](*[tensor(*each) if isinstance(each, tuple) else each for each in shapes])
    return found


@pytest.mark.parametrize(
    ("capability", "block_n", "stages"), [((8, 0), 32, 2), ((9, 0), 64, 3), ((10, 0), 32, 2), ((12, 0), 32, 2)]
)
def test_latent_paged_prefill(tmp_path, monkeypatch, capability, block_n, stages):
    """64 keys in three stages are 217 KiB on Hopper, but 346 KiB on its successor, which has 227."""
    q, page, ends = (40, 16, 512), (90, 1, 512), (3,)
    shapes = (q, (40, 16, 64), page, (90, 1, 64), ends, ends, (80,), 0.1, q, (40, 16))
    found = launched(tmp_path, monkeypatch, "mla_paged/mla_paged_prefill*/*.json", shapes, capability)
    assert (found["BLOCK_N"], found["num_stages"]) == (block_n, stages)


@pytest.mark.parametrize(("capability", "stages"), [((8, 9), 2), ((9, 0), 3), ((10, 0), 3), ((12, 0), 2)])
def test_latent_ragged_prefill(tmp_path, monkeypatch, capability, stages):
    """Three stages are 128 KiB on cards that have 99."""
    shapes = ((400, 16, 192), (400, 16, 192), (400, 16, 128), (3,), (3,), 0.1, (400, 16, 128), (400, 16))
    found = launched(tmp_path, monkeypatch, "mla_ragged/*/*.json", shapes, capability)
    assert found["num_stages"] == stages
