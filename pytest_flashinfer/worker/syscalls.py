"""The system calls that a worker's filter knows: their numbers on x86_64 and on 64-bit Arm, and what becomes of them.

Source: the kernel's arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl.
"""

from __future__ import annotations

from typing import Final

_Numbers = dict[str, tuple[int, int | None]]  # x86_64, aarch64

# By their arguments.
_CHOSEN: Final[_Numbers] = {
    "seccomp": (317, 277), "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "socket": (41, 198), "clone": (56, 220), "utimensat": (280, 88),
}  # fmt: skip
_REFUSED: Final[_Numbers] = {
    "io_uring_setup": (425, 425),  # what is asked for through a ring, a socket too, passes no filter
    "file_setattr": (469, 469),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "setns": (308, 268), "userfaultfd": (323, 282),
}  # fmt: skip
_PRETENDED: Final[_Numbers] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
}  # fmt: skip
_UNSUPPORTED: Final[_Numbers] = {
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
}  # fmt: skip
_UNKNOWN: Final[_Numbers] = {"clone3": (435, 435)}  # its flags lie in memory; the C library goes on with clone

MACHINES: Final = ("x86_64", "aarch64")


def chosen(machine: str) -> dict[str, int]:
    """Return the numbers of the calls of which arguments decide."""
    return _of(machine, _CHOSEN)


def refused(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that are never allowed."""
    return _of(machine, _REFUSED)


def pretended(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that do nothing, and say that they have."""
    return _of(machine, _PRETENDED)


def unsupported(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that are answered as by a file system without attributes: `cp -a` goes on."""
    return _of(machine, _UNSUPPORTED)


def unknown(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that are answered as by a kernel that is too old for them."""
    return _of(machine, _UNKNOWN)


def _of(machine: str, numbers: _Numbers) -> dict[str, int]:
    place = MACHINES.index(machine)
    return {name: number for name, pair in numbers.items() if (number := pair[place]) is not None}
