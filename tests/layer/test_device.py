"""Which card a run takes, from what NVML says and CUDA_VISIBLE_DEVICES lets through."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytest_flashinfer.worker import device as module
from pytest_flashinfer.worker.device import DeviceError, find, narrowed
from pytest_flashinfer.worker.environment import visible_device

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333"]


class Nvml(ModuleType):
    """The part of pynvml that is used, for three cards; `broken` where the driver does not answer."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVMLError_NotSupported = type("NVMLError_NotSupported", (NVMLError,), {})

    def __init__(self, cards=UUIDS, *, broken=False, slices=(), odd=""):
        super().__init__("pynvml")
        self.cards, self.broken, self.open = list(cards), broken, 0
        self.slices = list(slices)  # of the last card
        self.odd = odd

    def uuid(self, handle):
        if self.odd == "lost":
            raise self.NVMLError("GPU is lost")
        return self.slices[handle - 100] if handle >= 100 else self.cards[handle]

    def slice(self, card, number):
        if card != len(self.cards) - 1 or number % 2:  # numbers have gaps
            raise self.NVMLError("Not Found")
        return 100 + number // 2

    def most_slices(self, card):
        if card == 0:
            raise self.NVMLError("Not Supported")
        return 2 * len(self.slices) if card == len(self.cards) - 1 else 0

    def whole(self, handle):
        assert handle >= 100
        return len(self.cards) - 1

    def capability(self, handle):
        assert handle < 100, "a slice has none of its own"
        return (9, handle)

    def memory(self, handle):
        if self.odd == "shared memory":
            raise self.NVMLError_NotSupported("Not Supported")
        return SimpleNamespace(total=(handle + 1) << 30)

    def nvmlInit(self):  # noqa: N802
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def __getattr__(self, name):
        answers = {
            "nvmlSystemGetDriverVersion": lambda: "555.42",
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlDeviceGetHandleByIndex": lambda number: number,
            "nvmlDeviceGetUUID": self.uuid,
            "nvmlDeviceGetName": lambda handle: f"card {self.uuid(handle)}",
            "nvmlDeviceGetMaxMigDeviceCount": self.most_slices,
            "nvmlDeviceGetMigDeviceHandleByIndex": self.slice,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self.whole,
            "nvmlDeviceGetMemoryInfo": self.memory,
            "nvmlDeviceGetCudaComputeCapability": self.capability,
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes a machine: its cards, and the variable that hides some."""

    def make(visible=None, *, version="2.9.0+cu128", **options):
        nvml = Nvml(**options)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(module.metadata, "version", lambda _: version)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return nvml

    return make


def test_a_card_that_shares_the_hosts_memory_has_as_much(machine):
    machine(odd="shared memory")
    assert find("cuda").memory == module.host_memory()


def test_a_card_that_does_not_answer_is_no_card(machine):
    nvml = machine(odd="lost")
    with pytest.raises(DeviceError, match=r"the driver does not answer \(GPU is lost\)"):
        find("cuda")
    assert nvml.open == 0


@pytest.mark.parametrize("before", ["FASTEST_FIRST", None])
def test_cuda_counts_cards_as_nvml_does_unless_somebody_says_otherwise(machine, before):
    machine()
    environ = {} if before is None else {"CUDA_DEVICE_ORDER": before}
    narrowed(find("auto"), environ)
    assert environ["CUDA_DEVICE_ORDER"] == (before or "PCI_BUS_ID")
    narrowed(find("cpu"), none := {})
    assert none == {}


def names(wanted="auto", count=3):
    return [find(wanted, turn=turn).name.removeprefix("card ") for turn in range(count)]


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_the_first_card_is_taken_and_processes_take_turns(machine, wanted):
    machine()
    assert names(wanted, 4) == [*UUIDS, UUIDS[0]]
    assert str(find(wanted, turn=4)) == "cuda:1"


def test_a_card_is_described(machine):
    nvml = machine()
    card = find("cuda:2")
    assert (str(card), card.index, card.driver) == ("cuda:2", 2, "555.42")
    assert (card.memory, card.capability) == (3 << 30, (9, 2))
    assert (card.uuid, card.count) == (UUIDS[2], 3)
    assert nvml.open == 0


def test_a_card_asked_for_by_number_takes_no_turns(machine):
    machine()
    assert names("cuda:1") == [UUIDS[1]] * 3


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbbb", [2]),
        ("GPU-aaaa2222,GPU-bbbb3333", [1, 2]),
        ("GPU-aaaa", []),  # of two cards
        ("1,7,0", [1]),  # up to the first that is unknown
        ("1,GPU-cccc,0", [1]),
        ("", []),
        ("-1", []),
        ("none", []),
        ("7", []),
        ("0,-1,2", [0]),
    ],
)
def test_visible_cards(machine, visible, cards):
    machine(visible)
    if cards:
        assert names(count=len(cards)) == [UUIDS[number] for number in cards]
        with pytest.raises(DeviceError, match=f"{len(cards)} visible card"):
            find(f"cuda:{len(cards)}")
    else:
        assert str(find("auto")) == "cpu"
        with pytest.raises(DeviceError, match="no card is visible"):
            find("cuda")


SLICES = ["MIG-0001", "MIG-0002"]


@pytest.mark.parametrize(
    ("visible", "cards"), [("MIG-0002", [SLICES[1]]), ("MIG-0001,MIG-0002", SLICES), ("MIG-0003", []), ("MIG-000", [])]
)
def test_slices_of_a_card(machine, visible, cards):
    machine(visible, slices=SLICES)
    found = [find("auto", turn=turn) for turn in range(len(cards) or 1)]
    assert [each.uuid for each in found] == (cards or [""])
    assert not cards or found[0].capability == (9, 2)


def test_a_process_sees_only_the_slice_that_it_takes(machine):
    machine("MIG-0001,MIG-0002", slices=SLICES)
    environ = {}
    card = narrowed(find("auto", turn=1), environ)
    assert (str(card), card.uuid) == ("cuda:0", "MIG-0002")
    assert environ == {"CUDA_VISIBLE_DEVICES": "MIG-0002", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_device(environ, str(card))["CUDA_VISIBLE_DEVICES"] == "MIG-0002"


@pytest.mark.parametrize("visible", [None, "2,0", "MIG-0001"])
def test_a_whole_card_needs_no_narrowing(machine, visible):
    machine(visible, slices=SLICES)
    environ = {}
    card = find("auto")
    assert narrowed(card, environ) is card
    assert "CUDA_VISIBLE_DEVICES" not in environ


@pytest.mark.parametrize("visible", [None, "2,0", "GPU-bbbb3333,GPU-aaaa1111"])
def test_a_worker_sees_the_card_that_was_chosen(machine, visible, monkeypatch):
    """What the judge calls cuda:1 is the only card of its workers."""
    machine(visible)
    chosen = find("cuda:1").name
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_device(module.os.environ, "cuda:1")["CUDA_VISIBLE_DEVICES"])
    assert find("cuda:0").name == chosen
    with pytest.raises(DeviceError):
        find("cuda:1")


@pytest.mark.parametrize("number", [3, 99])
def test_a_number_too_large_says_how_many_there_are(machine, number):
    machine()
    with pytest.raises(DeviceError, match=rf"--fib-device=cuda:{number}: 3 visible card\(s\), numbered from 0"):
        find(f"cuda:{number}")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"broken": True}, "the driver does not answer (Driver Not Loaded)"),
        ({"cards": []}, "no card is visible"),
        ({"version": "2.9.0+cpu"}, "torch 2.9.0+cpu is a build without CUDA"),
    ],
)
def test_without_a_card(machine, options, why):
    machine(**options)
    assert find("auto").kind == "cpu"
    for wanted, required, switch in (("auto", True, "--fib-require-gpu"), ("cuda:0", False, "--fib-device=cuda:0")):
        with pytest.raises(DeviceError) as caught:
            find(wanted, require_gpu=required)
        assert str(caught.value) == f"{switch}: no CUDA card can be used here: {why}"


def test_the_cpu_where_it_is_asked_for(machine):
    machine()
    found = find("cpu")
    assert (found.kind, str(found)) == ("cpu", "cpu")
    assert found.memory > 1 << 20
    with pytest.raises(DeviceError, match=r"--fib-require-gpu.*the CPU was asked for"):
        find("cpu", require_gpu=True)


@pytest.mark.parametrize("wanted", ["", "gpu", "cuda:", "cuda:-1", "cuda:1.0", "CUDA", "cpu:0", "cuda:0 ", "auto,cpu"])
def test_what_is_no_device(machine, wanted):
    machine()
    with pytest.raises(DeviceError, match="write auto, cpu, cuda or cuda:N"):
        find(wanted)
