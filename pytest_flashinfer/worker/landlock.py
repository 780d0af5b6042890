"""Landlock by plain system calls: a process gives up, for good, every file it was not told it may use.

Landlock is a Linux security module (5.13 and later) that needs no privilege. A process in a domain also cannot trace
(and so not read the memory or environment of) a process outside it; from ABI 6 on it cannot signal one either.
Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the rights that a rule on a file may hold
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract UNIX sockets and signals
# ABI to the number of filesystem rights that it knows
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_ABI_NETWORK, ABI_SCOPE = 4, 6


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the Landlock ABI of the running kernel, 0 where there is none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))))


def restrict(read: Iterable[str], write: Iterable[str], devices: Iterable[str] = (), *, network: bool = False) -> int:
    """Confine the calling thread, and all it starts, to the given paths; returns the ABI used, 0 for none.

    `read` allows reading and executing, `write` everything, `devices` reading, writing and ioctl. Paths that do not
    exist are skipped. TCP is refused unless `network`. Needs no_new_privs. May be called again to give up more.
    Raises OSError where the kernel has Landlock and refuses.
    """
    version = abi()
    if version < 1:
        return 0
    everything = (1 << _RIGHTS[min(version, 5)]) - 1
    attributes = _Attributes(
        everything,
        _TCP if version >= _ABI_NETWORK and not network else 0,
        _SCOPES if version >= ABI_SCOPE else 0,
    )
    size = 8 * (1 + (version >= _ABI_NETWORK) + (version >= ABI_SCOPE))
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for paths, rights in ((read, _READ), (write, everything), (devices, everything & ~_EXECUTE)):
            for path in paths:
                _allow(ruleset, path, rights & everything)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError):  # a path that is not there, or not ours to open, allows nothing
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(parent).st_mode):
                rights &= _FILE
            rule = _PathRule(rights, parent)
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
        finally:
            os.close(parent)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock system call {number}: {os.strerror(ctypes.get_errno())}")
    return result
