"""Which device a run uses, found without importing torch, so that the header and usage errors come at once."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class DeviceError(ValueError):
    """The device asked for is not there; the message says what is."""


@dataclass(frozen=True)
class Device:
    """A card, or the CPU. `index` counts among the visible cards, as torch does; `memory` is in bytes.

    `uuid` is NVML's own name of the card or of the MIG slice, the same in every process of the host; `count` is how
    many cards are visible.
    """

    kind: Literal["cpu", "cuda"]
    index: int = 0
    name: str = ""
    driver: str = ""
    memory: int = 0
    capability: tuple[int, int] = (0, 0)
    uuid: str = ""
    count: int = 0

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"


def find(wanted: str, *, require_gpu: bool = False, turn: int = 0) -> Device:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:N`.

    `turn` spreads parallel test processes over the cards: process `turn` takes card `turn` modulo their number.
    Raises `DeviceError` where the device does not exist.
    """
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", wanted)
    if not match:
        raise DeviceError(f"--fib-device={wanted}: write auto, cpu, cuda or cuda:N")
    cards, why_none = _visible_cards() if wanted != "cpu" else ([], "the CPU was asked for")
    if not cards:
        if require_gpu or wanted.startswith("cuda"):
            switch = f"--fib-device={wanted}" if wanted.startswith("cuda") else "--fib-require-gpu"
            raise DeviceError(f"{switch}: no CUDA card can be used here: {why_none}")
        return Device("cpu", name=_cpu_name(), memory=host_memory())
    index = int(match[1]) if match[1] else turn % len(cards)
    if index >= len(cards):
        raise DeviceError(f"--fib-device={wanted}: {len(cards)} visible card(s), numbered from 0")
    return cards[index]


def narrowed(device: Device, environ: MutableMapping[str, str]) -> Device:
    """Return the device as CUDA will number it, with what `environ` has to say for that.

    CUDA puts the fastest card first unless it is told to count as NVML does. A process sees one MIG slice, so no other
    may be named.
    """
    if device.kind == "cuda":
        environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not device.uuid.startswith("MIG-") or device.count < 2:  # noqa: PLR2004 - one needs no choice
        return device
    environ["CUDA_VISIBLE_DEVICES"] = device.uuid
    return replace(device, index=0)


def _visible_cards() -> tuple[list[Device], str]:
    torch_version = metadata.version("torch")
    if "+cpu" in torch_version:
        return [], f"torch {torch_version} is a build without CUDA"
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            driver = str(pynvml.nvmlSystemGetDriverVersion())
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            visible = _select(handles, os.environ.get("CUDA_VISIBLE_DEVICES"))
            found = [_card(handle, index, driver, len(visible)) for index, handle in enumerate(visible)]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return [], f"the driver does not answer ({error})"
    return found, "no card is visible"


def _select(handles: list[Any], visible: str | None) -> list[Any]:
    """Apply CUDA_VISIBLE_DEVICES as the driver does: numbers or UUID prefixes, up to the first that is unknown."""
    if visible is None:
        return handles
    import pynvml

    chosen: list[Any] = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        if entry.isdigit() and int(entry) < len(handles):
            chosen.append(handles[int(entry)])
            continue
        among = _slices(handles) if entry.startswith("MIG-") else handles
        matching = [handle for handle in among if str(pynvml.nvmlDeviceGetUUID(handle)).startswith(entry)]
        if len(matching) != 1:
            break
        chosen.append(matching[0])
    return chosen


def _slices(handles: list[Any]) -> list[Any]:
    """Return the MIG slices of all cards."""
    import pynvml

    found = []
    for handle in handles:
        try:
            most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        except pynvml.NVMLError:  # a card that cannot be divided
            continue
        for number in range(most):
            with contextlib.suppress(pynvml.NVMLError):  # numbers have gaps
                found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return found


def _card(handle: Any, index: int, driver: str, count: int) -> Device:
    import pynvml

    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if uuid.startswith("MIG-") else handle
    return Device(
        "cuda",
        index,
        str(pynvml.nvmlDeviceGetName(handle)),
        driver,
        _memory(handle),
        tuple(pynvml.nvmlDeviceGetCudaComputeCapability(whole)),
        uuid,
        count,
    )


def _memory(handle: Any) -> int:
    """Return a card's memory in bytes; one that has none of its own shares the host's, and NVML knows of none."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return host_memory()


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def host_memory() -> int:
    """Return how much memory this machine has, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
