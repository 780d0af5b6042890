"""What a worker gives up before any foreign code runs in it, and what the judge does to be left alone.

Every step that needs the kernel's help is best effort: the run's header says what `lacking` names.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.worker import landlock, seccomp
from pytest_flashinfer.worker.environment import caches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVS, _CAPBSET_DROP, _SUBREAPER = 1, 4, 38, 24, 36
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63
_KEPT = 1 << 1  # DAC_OVERRIDE: files of other owners stay readable for a root worker, within what Landlock allows

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Policy:
    """The confinement of one worker: its private folder, what it may read, write and open as a device."""

    private: str
    read: list[str]
    write: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    network: bool = False

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Policy:
        """Read what the judge sent as plain values."""
        return cls(message["private"], message["read"], message["write"], message["devices"], message["network"])


def enter(policy: Policy, keep: Iterable[int]) -> dict[str, Any]:
    """Confine this process, just forked and single-threaded; returns which protections took hold.

    `keep` are the descriptors that stay open. The working directory becomes the private folder.
    """
    die_with_parent()
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # where memory runs out, the kernel takes a worker and not the judge
        Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")
    close_others(keep)
    os.open("/proc/self", os.O_PATH)  # kept: see confine
    os.chdir(policy.private)
    use_caches(policy.private, policy.private)
    return {
        "no_new_privs": _prctl(_NO_NEW_PRIVS, 1),
        "capabilities": drop_capabilities(),
        "landlock": confine(policy),
        "seccomp": seccomp.restrict(os.getpid(), network=policy.network),
        "hidden_from_ptrace": not _libc.prctl(3, 0, 0, 0, 0),
    }


def lacking() -> list[str]:
    """Name what this kernel does not offer for `enter`; asks, and confines nobody."""
    version = landlock.abi()
    files = [] if version else ["Landlock"]
    signals = ["Landlock's scope of signals"] if 0 < version < landlock.ABI_SCOPE else []
    return [*files, *signals, *([] if seccomp.known() else ["filters of system calls"])]


def confine(policy: Policy) -> int:
    """Apply Landlock for `policy`; returns its ABI, 0 where the kernel has none or refuses.

    A later call with fewer writable folders narrows the first. CUDA names its threads through files in /proc/self;
    the rule on it holds as long as the kernel remembers that folder, which an open descriptor sees to.
    """
    write = [policy.private, "/proc/self", *policy.write]
    try:
        return landlock.restrict(policy.read, write, policy.devices, network=policy.network)
    except OSError:
        return 0


def use_caches(folder: str, private: str) -> None:
    """Point compilers' caches and temporary files at `folder` and `private`, which must be writable."""
    os.environ.update(caches(folder, private))
    tempfile.tempdir = None  # it may have been settled before the fork


def close_others(keep: Iterable[int]) -> None:
    """Close every descriptor but 0, 1, 2 and `keep`."""
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - one call, no objects
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def die_with_parent() -> None:
    """Have this process killed when the thread that forked it ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that none escapes."""
    _prctl(_SUBREAPER, 1)


def hide_process() -> bool:
    """Forbid other processes of this user to trace this one and read its memory; returns whether that took hold.

    The judge calls this for itself: it holds the reference's answers, the tolerances and the seed.
    """
    return _prctl(_DUMPABLE, 0)


def drop_capabilities() -> bool:
    """Give up root's capabilities but that to read all files; returns whether none of the others is left."""
    for number in range(_LAST_CAPABILITY + 1):
        if not _KEPT >> number & 1:
            _prctl(_CAPBSET_DROP, number)
    if _effective() & ~_KEPT:
        kept = _effective() & _KEPT
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        _libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0))
    return not _effective() & ~_KEPT


def _effective() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _prctl(option: int, value: int) -> bool:
    return _libc.prctl(option, value, 0, 0, 0) == 0  # type: ignore[no-any-return]
