"""A system call filter: a process gives up, for good, what Landlock does not cover.

Without it a worker could set limits (of processor time, of memory), the processors and the priority of any process of
the same user, so of the judge, of the reference's process and of the next solution's. UDP and the other families of
sockets, which Landlock leaves open as well, are closed with it; so are the attributes of files, memory and messages
that outlive a process, the kernel's keys, and namespaces. What is refused fails with EPERM; nothing is killed. Modes,
dates and owners of files stay as they are too, but a call that would change them is told that it has: who copies a file
sets them, linkers set the mode, and the filter cannot tell a worker's own files from others.

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
from typing import Final

from pytest_flashinfer.worker import syscalls

_AUDITED: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # what an architecture calls itself in audit messages
_OF_A_PROCESS: Final = ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setattr")
_NORMAL: Final = 0  # SCHED_OTHER: what every process has, and what a thread may be created with by its id
_NAMESPACES: Final = 0x7E020000  # CLONE_NEWNS and the others that clone takes
# These take a kind of target first, and with kinds other than these name whole groups, or all that a user runs.
_ONE_PROCESS: Final = {"setpriority": 0, "ioprio_set": 1}
_LOCAL: Final = (1, 16)  # AF_UNIX and AF_NETLINK, which the C library asks for the machine's own addresses
_X32: Final = 0x40000000  # from here on, on x86_64, numbers of a second table

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _PRETEND = 0x7FFF0000, 0x00050000  # which fails with error 0, so not at all
_REFUSE, _UNSUPPORTED, _UNKNOWN = (_PRETEND | each for each in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS))
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
_SET_MODE_FILTER = 1
_TIMES = _ARGUMENTS + 8 * 2
# Without it kernels before 5.16 slow every thread down, for fear of what it could read through the processor's guesses.
_SPEC_ALLOW = 1 << 2

_Code = list[tuple[int, int, int, int]]  # operation, instructions to skip if true and if false, operand


# Without dates a call sets the present one, and says whether the file is there: who makes a file may ask by that.
_ABSENT_TIMES: Final[_Code] = [
    (_LOAD, 0, 0, _TIMES), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _TIMES + 4), (_EQUAL, 0, 1, 0),
    (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _PRETEND),
]  # fmt: skip


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
        if _libc.syscall(syscalls.chosen(machine)["seccomp"], mode, flag, ctypes.byref(filters)) == 0:
            return True
    return False


def known() -> bool:
    """Say whether there are filters for this machine."""
    return _machine() is not None


def _machine() -> str | None:
    wide = sys.maxsize > 2**32  # a 32-bit Python makes other calls than its kernel's name says
    name = os.uname().machine
    return name if wide and name in _AUDITED else None


def program(machine: str, pid: int, *, network: bool) -> _Code:
    """Return the filter's instructions."""
    refuse: _Code = [(_RETURN, 0, 0, _REFUSE)]
    code: _Code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _AUDITED[machine]), *refuse]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), *refuse]
    blocks = {name: _among(0, (0, pid)) for name in _OF_A_PROCESS}
    blocks["sched_setscheduler"] = [*_let(1, (_NORMAL,)), *_among(0, (0, pid))]
    for name, kind in _ONE_PROCESS.items():
        blocks[name] = [(_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 1, 0, kind), *refuse, *_among(1, (0, pid))]
    blocks["clone"] = [(_LOAD, 0, 0, _ARGUMENTS), (_ANY_BIT, 0, 1, _NAMESPACES), *refuse, (_RETURN, 0, 0, _ALLOW)]
    blocks["utimensat"] = _ABSENT_TIMES
    if not network:
        blocks["socket"] = _among(0, _LOCAL)
    numbers = syscalls.chosen(machine)
    for name, block in blocks.items():
        code += [(_EQUAL, 0, len(block), numbers[name]), *block]
    for those, answer in (
        (syscalls.refused, _REFUSE), (syscalls.pretended, _PRETEND),
        (syscalls.unsupported, _UNSUPPORTED), (syscalls.unknown, _UNKNOWN),
    ):  # fmt: skip
        for number in those(machine).values():
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
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
