"""A system call filter: a process gives up, for good, what Landlock does not cover.

Without it a worker could set limits (of processor time, of memory), the processors and the priority of any process of
the same user, so of the judge, of the reference's process and of the next solution's. UDP and the other families of
sockets, which Landlock leaves open as well, are closed with it. Everything refused fails with EPERM; nothing is killed.

The filter knows numbers and not what they stand for: of process ids it lets through 0, which is the calling thread,
and the worker's own. A thread's id is not known beforehand: one that is pinned by another one, or when it is created,
is refused too. Children of the worker inherit the filter.
Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class _Machine:
    """What an architecture calls itself in audit messages, and its numbers of the system calls at hand."""

    audit: int
    numbers: dict[str, int]


_ANY: Final = {"io_uring_setup": 425}  # newer calls have one number everywhere
_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E,
        {"seccomp": 317, "prlimit64": 302, "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142}
        | {"sched_setattr": 314, "setpriority": 141, "ioprio_set": 251, "socket": 41, **_ANY},
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {"seccomp": 277, "prlimit64": 261, "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setparam": 118}
        | {"sched_setattr": 274, "setpriority": 140, "ioprio_set": 30, "socket": 198, **_ANY},
    ),
}
_OF_A_PROCESS: Final = ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setattr")
_NORMAL: Final = 0  # SCHED_OTHER: what every process has, and what a thread may be created with by its id
# These take a kind of target first, and with kinds other than these name whole groups, or all that a user runs.
_ONE_PROCESS: Final = {"setpriority": 0, "ioprio_set": 1}
_LOCAL: Final = (1, 16)  # AF_UNIX and AF_NETLINK, which the C library asks for the machine's own addresses
_X32: Final = 0x40000000  # from here on, on x86_64, numbers of a second table

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
_SET_MODE_FILTER = 1
# Without it kernels before 5.16 slow every thread down, for fear of what it could read through the processor's guesses.
_SPEC_ALLOW = 1 << 2

_Code = list[tuple[int, int, int, int]]  # operation, instructions to skip if true and if false, operand


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)


def restrict(pid: int, *, network: bool) -> bool:
    """Confine the calling thread, the worker `pid`, and all it starts; returns whether that took hold.

    It does not where the kernel has no filters or the architecture is another than x86_64 and aarch64. Needs
    no_new_privs. Sockets other than UNIX ones are refused unless `network`.
    """
    machine = _machine()
    if machine is None:
        return False
    code = b"".join(struct.pack("<HBBI", *each) for each in program(machine, pid, network=network))
    filters = _Program(len(code) // 8, code)
    for flags in (_SPEC_ALLOW, 0):  # the flag is younger than the call
        mode, flag = ctypes.c_uint32(_SET_MODE_FILTER), ctypes.c_uint32(flags)
        if _libc.syscall(machine.numbers["seccomp"], mode, flag, ctypes.byref(filters)) == 0:
            return True
    return False


def known() -> bool:
    """Say whether there are filters for this machine."""
    return _machine() is not None


def _machine() -> _Machine | None:
    wide = sys.maxsize > 2**32  # a 32-bit Python makes other calls than its kernel's name says
    return _MACHINES.get(os.uname().machine) if wide else None


def program(machine: _Machine, pid: int, *, network: bool) -> _Code:
    """Return the filter's instructions."""
    refuse: _Code = [(_RETURN, 0, 0, _REFUSE)]
    code: _Code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), *refuse]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), *refuse]
    blocks = {name: _among(0, (0, pid)) for name in _OF_A_PROCESS}
    blocks["sched_setscheduler"] = [*_let(1, (_NORMAL,)), *_among(0, (0, pid))]
    for name, kind in _ONE_PROCESS.items():
        blocks[name] = [(_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 1, 0, kind), *refuse, *_among(1, (0, pid))]
    blocks["io_uring_setup"] = refuse  # what is asked for through a ring, a socket too, passes no filter
    if not network:
        blocks["socket"] = _among(0, _LOCAL)
    for name, block in blocks.items():
        code += [(_EQUAL, 0, len(block), machine.numbers[name]), *block]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _among(argument: int, values: tuple[int, ...]) -> _Code:
    """Let a call through where an argument is one of `values`, and refuse it otherwise."""
    return [*_let(argument, values), (_RETURN, 0, 0, _REFUSE)]


def _let(argument: int, values: tuple[int, ...]) -> _Code:
    """Let a call through where an argument is one of `values`.

    Its lower half only, as the kernel takes these arguments for 32-bit ones; both architectures store that half first.
    """
    code: _Code = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for value in values:
        code += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    return code
