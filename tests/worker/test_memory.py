"""The parts under a call: slots, poison, digests and the shared block."""

from __future__ import annotations

import itertools
import os
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.worker import cumem, memory, poison, processes, unwritten
from pytest_flashinfer.worker.arena import Arena, InputPieces
from pytest_flashinfer.worker.layout import ALIGNMENT, GUARD, Output, plan
from pytest_flashinfer.worker.memory import Memory
from pytest_flashinfer.worker.runner import SHIFT

sizes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.int64])


@given(
    st.lists(st.tuples(sizes, dtypes), max_size=4),
    st.lists(st.tuples(sizes, dtypes), max_size=3),
    st.integers(0, 4),
    st.booleans(),
)
def test_slots_are_aligned_apart_and_wholly_surrounded(inputs, outputs, written, destination):
    tensors = {f"x{n}": torch.zeros(size, dtype=dtype) for n, (size, dtype) in enumerate(inputs)}
    made = [Output(f"y{n}", size, dtype) for n, (size, dtype) in enumerate(outputs)]
    inplace = [Output(f"z{n}", size, dtype, inplace=f"x{n}") for n, (size, dtype) in enumerate(inputs[:written])]
    layout = plan(tensors, made + inplace, destination=destination)
    copies = [copy for _, copy in layout.inplace.values()]
    slots = [*layout.inputs.values(), *layout.live.values(), *layout.snap.values(), *copies]
    assert len(slots) == len(inputs) + 2 * len(outputs) + (1 if destination else 3) * len(inplace)
    for each in inplace:
        place, copy = layout.inplace[each.name]
        assert place is layout.inputs[each.inplace]
        assert (copy.size, copy.stride, copy.dtype) == (place.size, place.stride, place.dtype)
        assert copy.extent == place.extent
    edges = [0]
    for slot, zone in zip(slots, layout.zones, strict=False):
        assert slot.at % ALIGNMENT == 0
        assert zone.start == edges[-1]
        assert zone.stop == slot.at
        assert zone.stop - zone.start >= GUARD
        assert slot.extent < slot.room <= slot.extent + (slot.at + slot.extent + 2 * GUARD)
        edges.append(slot.at + slot.extent)
    assert layout.zones[-1].start == edges[-1]
    assert layout.zones[-1].stop == layout.total
    base = torch.zeros(layout.total, dtype=torch.uint8)
    for slot in slots:
        assert slot.tensor_of(base).shape == slot.size
        assert slot.tensor_of(base).dtype == slot.dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_poison_of_floats_is_a_nan_that_no_computation_makes(dtype):
    patterns = {poison.pattern(dtype, random.Random(seed)) for seed in range(50)}
    assert len(patterns) > 10
    for pattern in patterns:
        value = torch.tensor([pattern], dtype=poison.word_type(dtype)).view(dtype)
        assert value.isnan().all()
        for made in (torch.zeros(1, dtype=dtype) / 0, torch.full((1,), float("nan"), dtype=dtype)):
            assert int(made.view(poison.word_type(dtype))) != pattern


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_poison_of_integers_is_no_index_and_no_count(dtype):
    for seed in range(50):
        pattern = poison.pattern(dtype, random.Random(seed))
        assert torch.iinfo(dtype).min <= pattern < torch.iinfo(dtype).min // 2


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_poison_of_eight_bit_floats_is_nan(dtype):
    pattern = poison.pattern(dtype, random.Random(0))
    assert torch.tensor([pattern], dtype=torch.uint8).view(dtype).float().isnan().all()


def test_both_ends_of_an_arena_see_the_same_bytes():
    arena, memory = Arena("cpu"), Memory()
    assert arena.reserve(100)
    assert not arena.reserve(arena.nbytes)
    message, fds = arena.export()
    memory.map(message, [os.dup(fds[0])])
    slot = {"at": 256, "room": 64, "dtype": "torch.float32", "size": [2, 3], "stride": [3, 1]}
    memory.tensor(slot).copy_(torch.arange(6.0).view(2, 3))
    assert arena.data[256:280].view(torch.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert memory.tensor(slot).storage_offset() == 0
    assert memory.tensor(slot).untyped_storage().nbytes() == 64
    memory.unmap()
    arena.close()
    assert arena.nbytes == 0


class Piece:
    """Physical memory that is none."""

    def __init__(self, nbytes, device):
        self.nbytes, self.device, self.closed = cumem.rounded(nbytes), device, False

    def close(self):
        self.closed = True


@given(st.lists(st.integers(1, 1 << 31), min_size=1, max_size=8))
def test_inputs_stay_at_the_end_of_pieces_that_grow_at_the_front(wanted):
    pieces = InputPieces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cumem, "Piece", Piece)
        known = []
        for nbytes in wanted:
            found = pieces.at_end(nbytes, 0)
            assert sum(piece.nbytes for piece in found) >= nbytes
            assert sum(piece.nbytes for piece in found[1:]) < nbytes, "no more than are needed"
            shared = min(len(found), len(known))
            assert found[-shared:] == known[-shared:] if shared else not known
            known = max(found, known, key=len)
    everything = list(known)
    pieces.shrink(wanted[0])
    assert pieces.nbytes <= wanted[0]
    left = len(everything) - sum(piece.closed for piece in everything)
    assert all(piece.closed for piece in everything[: len(everything) - left]), "the last made go first"
    assert len(everything) < memory.MOST_PIECES


@given(st.integers(0, 1 << 22), st.integers(1, 1 << 22), st.integers(0, 1 << 22), st.integers(1, 1 << 22))
def test_a_block_holds_what_was_asked_for_before_as_well(front, behind, front2, behind2):
    block = Arena("cpu")
    assert block.reserve(behind, front)
    block.reserve(behind2, front2)
    for nbytes, ahead in ((behind, front), (behind2, front2)):
        assert block.holds(nbytes, ahead)
        assert not block.reserve(nbytes, ahead)
        assert block.window(nbytes + ahead, ahead).numel() == nbytes + ahead
    block.close()
    assert not block.holds(1)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5000))
def test_moved_tensors_are_elsewhere_seen_from_the_end_of_the_inputs(inputs, outputs, shift):
    tensors = {f"x{n}": torch.zeros(7 * n + 3) for n in range(inputs)}
    wanted = [Output(f"y{n}", (n + 2,), torch.float32) for n in range(outputs)]
    usual, moved = plan(tensors, wanted), plan(tensors, wanted, shift * ALIGNMENT)
    for layout in (usual, moved):
        ends = [slot.at + slot.extent for slot in layout.inputs.values()]
        assert max(ends, default=0) + GUARD // 2 <= layout.front <= layout.total
        assert all(slot.at >= layout.front + GUARD // 2 for slot in (*layout.live.values(), *layout.snap.values()))
    for part in ("inputs", "live", "snap"):
        for name, slot in getattr(usual, part).items():
            other = getattr(moved, part)[name]
            apart = (other.at - moved.front) - (slot.at - usual.front)
            assert apart == (-shift if part == "inputs" else shift) * ALIGNMENT


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 300))
def test_a_moved_call_finds_its_tensors_at_odd_multiples_of_128(inputs, outputs, size):
    tensors = {f"x{n}": torch.zeros(size * n + 3) for n in range(inputs)}
    wanted = [Output(f"y{n}", (size + n,), torch.float16) for n in range(outputs)]
    moved = plan(tensors, wanted, SHIFT)
    slots = [*moved.inputs.values(), *moved.live.values(), *moved.snap.values()]
    assert {slot.at % ALIGNMENT for slot in slots} <= {128}
    assert moved.front % ALIGNMENT == moved.total % ALIGNMENT == 0
    ends = [slot.at + slot.extent for slot in moved.inputs.values()]
    assert max(ends, default=0) + GUARD // 2 + SHIFT <= moved.front
    assert all(slot.at >= moved.front + GUARD // 2 + SHIFT for slot in slots[inputs:])
    for one, other in itertools.pairwise(slots):
        assert one.at + one.room <= other.at - GUARD // 2 + ALIGNMENT


def test_addresses_of_a_moved_call_are_multiples_of_128_only(lab):
    source = "def run(x, y):\n    print(x.data_ptr() % 256, y.data_ptr() % 256)\n    y.copy_(x)\n"
    runner = lab.build(source)
    inputs, outputs = {"x": lab.randn(4, 8)}, [Output("y", (4, 8), torch.float32)]
    found = [runner.run(inputs, outputs, moved=moved) for moved in (False, True)]
    assert [each.log.split() for each in found] == [["0", "0"], ["128", "128"]]
    assert not [violation for each in found for violation in each.violations]


def test_a_worker_cannot_resize_the_block(lab):
    source = """
        import os
        def run(x, y):
            y.copy_(x)
            for fd in range(3, 64):
                try: memory = "memfd" in os.readlink(f"/proc/self/fd/{fd}")
                except OSError: continue
                if memory:
                    for size in (0, 1 << 30):
                        try: os.ftruncate(fd, size)
                        except PermissionError: print("sealed")
    """
    assert lab.run(source).log.split() == ["sealed", "sealed"]


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exit status 0"), (256, "exit status 1"), (9, "signal SIGKILL"), (139, "signal SIGSEGV")]
)
def test_an_end_is_said_in_words(status, words):
    assert processes.describe(status) == words


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_whatever_is_unwritten_is_described(rows, columns, data):
    bits = data.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns).filter(any))
    mask = torch.tensor(bits).view(rows, columns)
    text = unwritten.describe(mask)
    assert text.endswith("never written") or "first at" in text
    assert (text == "never written") == all(bits)
    assert (text == "last row never written") == (rows > 1 and not mask[:-1].any() and bool(mask[-1].all()))


@pytest.mark.parametrize(("used", "held", "in_use", "freed"), [(False, 9, 0, 0), (True, 9, 3, 1), (True, 9, 7, 0)])
def test_memory_that_nobody_uses_is_given_back_where_it_is_much(monkeypatch, used, held, in_use, freed):
    given_back = []
    fakes = {
        "is_initialized": lambda: used,
        "memory_stats_as_nested_dict": lambda device: {
            f"{what}_bytes": {"all": {"current": count << 30 if device == "cuda:1" else 0}}
            for what, count in (("reserved", held), ("allocated", in_use))
        },
        "empty_cache": lambda: given_back.append(True),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    memory.give_back(4 << 30)
    assert not given_back, "another card's"
    memory.give_back(4 << 30, "cuda:1")
    assert len(given_back) == freed
