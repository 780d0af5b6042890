"""What the system call filter refuses a worker, and what goes on as if there were none."""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_flashinfer.worker import landlock, seccomp, syscalls
from pytest_flashinfer.worker.environment import scrub

CALLS = {**syscalls.chosen(machine), **syscalls.refused(machine)} if (machine := seccomp._machine()) else {}
pytestmark = pytest.mark.skipif(not CALLS, reason="no filter is known for this architecture")
REFUSED = "PermissionError"
PREAMBLE = """
    import ctypes, json, os, resource, signal, socket, struct, subprocess, sys, threading
    libc = ctypes.CDLL(None, use_errno=True)
    def attempt(function):
        try: return repr(function())
        except BaseException as error: return type(error).__name__
    def call(number, *arguments):
        if libc.syscall(number, *map(ctypes.c_ulong, arguments)) == -1:
            raise OSError(ctypes.get_errno(), "refused")
    def buffer(data):
        kept.append(ctypes.create_string_buffer(data, 128))
        return ctypes.addressof(kept[-1])
    kept = []
    attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, 0, 0, 0)
    info = struct.pack("iiiiii", signal.SIGSTOP, 0, -1, 0, 0, 0)  # as from sigqueue
"""
# Each changes nothing where it succeeds: what is set is what is there already.
ATTACKS = {
    "limit of processor time": "resource.prlimit(pid, resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))",
    "limit of memory": "resource.prlimit(pid, resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS))",
    "limit of files": "resource.prlimit(pid, resource.RLIMIT_NOFILE)",
    "processors": "os.sched_setaffinity(pid, os.sched_getaffinity(pid))",
    "scheduler": "os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))",
    "scheduler when idle": "os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))",
    "scheduler's parameter": "os.sched_setparam(pid, os.sched_param(0))",
    "scheduler's attributes": f"call({CALLS.get('sched_setattr')}, pid, buffer(attributes), 0)",
    "priority": "os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))",
    "priority of a group": "os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 0)",
    "priority of the user": "os.setpriority(os.PRIO_USER, 0, 0)",
    "priority of reading": f"call({CALLS.get('ioprio_set')}, 1, pid, 2 << 13 | 4)",
    "priority of the user's reading": f"call({CALLS.get('ioprio_set')}, 3, 0, 2 << 13 | 4)",
    "upper half of an argument": f"call({CALLS.get('prlimit64')}, pid | 1 << 32, resource.RLIMIT_CPU, 0, buffer(b''))",
    "upper half of the own": f"call({CALLS.get('sched_setaffinity')}, pid | os.getpid() << 32, 8, buffer(b'?'))",
    "second table of calls": f"call({CALLS.get('prlimit64')} | 0x40000000, pid, resource.RLIMIT_CPU, 0, 0)",
    "ring": "call(425, 1, buffer(b''))",
}  # fmt: skip
SOCKETS = {
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "UDP 6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "TCP": "socket.socket()",
    "host of a virtual machine": "socket.socket(40, socket.SOCK_STREAM)",
    "kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET)",
}
MORE = {"x86_64": (200, 234, 129, 297), "aarch64": (130, 131, 138, 240)}.get(os.uname().machine, (0, 0, 0, 0))
SIGNALS = {
    "kill": "os.kill(pid, signal.SIGSTOP)",
    "kill a group": "os.killpg(os.getpgid(pid), signal.SIGSTOP)",
    "tkill": f"call({MORE[0]}, pid, signal.SIGSTOP)",
    "tgkill": f"call({MORE[1]}, pid, pid, signal.SIGSTOP)",
    "queue": f"call({MORE[2]}, pid, signal.SIGSTOP, buffer(info))",
    "queue to a thread": f"call({MORE[3]}, pid, pid, signal.SIGSTOP, buffer(info))",
    "descriptor": "signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP)",
}


def evaluate(lab, expressions, setup=""):
    """Return what each expression is in one worker, or the error that it raised."""
    lines = [f"    found[{name!r}] = attempt(lambda: {text})\n" for name, text in expressions.items()]
    source = textwrap.dedent(PREAMBLE) + setup + "\ndef run(x):\n    found = {}\n" + "".join(lines)
    result = lab.run(f"{source}    print(json.dumps(found))\n    return x.clone()\n", destination=False)
    return json.loads(result.log.strip().splitlines()[-1])


@pytest.fixture
def sleeper():
    """A process of the same user, as the judge and other workers are, which may be stopped without harm."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_filter_takes_hold_and_is_reported(cpu_pool):
    assert cpu_pool.protections()["seccomp"] is True


@pytest.mark.parametrize("whose", ["judge", "fork-server", "other worker"])
def test_nothing_of_another_process_can_be_set(lab, whose):
    other = lab.build("import os\nprint(os.getpid())\ndef run(x, y): pass\n").worker.take_log().strip()
    pid = {"judge": os.getpid(), "fork-server": "os.getppid()", "other worker": other}[whose]
    before = resource.getrlimit(resource.RLIMIT_CPU), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    assert evaluate(lab, ATTACKS, f"pid = {pid}") == dict.fromkeys(ATTACKS, REFUSED)
    assert before == (
        resource.getrlimit(resource.RLIMIT_CPU), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    )  # fmt: skip


def test_nothing_of_another_process_can_be_set_by_a_child(lab):
    code = f"import os; os.sched_setaffinity({os.getpid()}, {{0}})"
    found = evaluate(lab, {"child": f"subprocess.run([sys.executable, '-c', {code!r}], capture_output=True).stderr"})
    assert "PermissionError" in found["child"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls of another architecture, by their machine code")
def test_the_calls_of_32_bit_programs_are_no_way_around(lab):
    # push rbx; mov eax, 340 (prlimit64); mov ebx, edi; xor ecx, ecx; xor edx, edx; xor esi, esi; int 0x80; pop rbx; ret
    code = bytes.fromhex("53 b854010000 89fb 31c9 31d2 31f6 cd80 5b c3")
    setup = (
        "import mmap\npage = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        f"page.write({code!r})\n"
        "enter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
    )
    probe = f"import ctypes, os\n{setup}print(enter(0))"
    here = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    if here.stdout.strip() != "0":
        pytest.skip("this kernel runs no 32-bit programs")
    assert evaluate(lab, {"limits": f"enter({os.getpid()})"}, setup) == {"limits": "-1"}


def test_no_socket_reaches_beyond_the_machine_and_local_ones_work(lab):
    local = {
        "pair": "[each.close() for each in socket.socketpair()]",
        "UNIX": "socket.socket(socket.AF_UNIX).close()",
        "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()",
        "names": "isinstance(socket.if_nameindex(), list)",
    }
    found = evaluate(lab, {**SOCKETS, **local})
    assert {name: found[name] for name in SOCKETS} == dict.fromkeys(SOCKETS, REFUSED)
    assert REFUSED not in [found[name] for name in local if name != "names"]


@pytest.mark.parametrize("network", [True, False])
def test_sockets_are_left_alone_where_the_policy_has_a_network(network):
    code = (
        "import ctypes, os, socket\nfrom pytest_flashinfer.worker import seccomp\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        f"print(seccomp.restrict(os.getpid(), network={network}))\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True"
    assert ("PermissionError" in done.stderr) is not network


@pytest.mark.skipif(landlock.abi() < 6, reason="signals are scoped from Landlock ABI 6 on")
def test_no_signal_leaves_the_worker(lab, sleeper):
    assert evaluate(lab, SIGNALS, f"pid = {sleeper.pid}") == dict.fromkeys(SIGNALS, REFUSED)
    assert state(sleeper.pid) != "T"


def test_children_can_be_signalled_and_waited_for(lab):
    setup = "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\npid = child.pid\n"
    kill = "os.killpg(pid, signal.SIGKILL)"
    found = evaluate(lab, {"stop": SIGNALS["kill"], "group": kill, "wait": "child.wait()"}, setup)
    assert found == {"stop": "None", "group": "None", "wait": str(-signal.SIGKILL)}


def test_a_worker_may_set_what_is_its_own(lab):
    own = {
        "limit": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
        "limit by id": "len(resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE))",
        "processors": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "processors by id": "os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))",
        "priority": "os.nice(1)",
        "priority of a child": "subprocess.run(['nice', 'true'], check=True).returncode",
        "scheduler": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
    }
    numbers = {"limit by id": "2", "priority": str(os.nice(0) + 1), "priority of a child": "0"}
    assert evaluate(lab, own) == {**dict.fromkeys(own, "None"), **numbers}


def test_threads_of_libraries_are_not_disturbed(lab):
    work = {
        "threads": "torch.set_num_threads(2)",
        "torch": "bool(torch.isfinite(torch.randn(600, 600) @ torch.randn(600, 600)).all())",
        "inductor's pool": "torch.nn.functional.conv2d(torch.ones(1, 8, 64, 64), torch.ones(8, 8, 3, 3)).shape[0]",
        "numpy": "numpy.linalg.inv(numpy.eye(300)).shape[0]",
        "pinned by itself": "attempt(lambda: threading.Thread(target=os.sched_setaffinity, args=(0, {0})).start())",
        "processes": "concurrent.futures.ProcessPoolExecutor(1).submit(abs, -3).result(30)",
    }
    wanted = ["None", "True", "1", "300", "'None'", "3"]
    assert list(evaluate(lab, work, "import concurrent.futures, numpy, torch").values()) == wanted


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_compiler_and_openmp_work(lab):
    code = (
        '#include <pthread.h>\nvoid* idle(void*) { return nullptr; }\nextern "C" int run() {\n'
        "int n = 0;\n#pragma omp parallel num_threads(3) reduction(+:n)\nn += 1;\n"
        "pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);\n"
        "pthread_t t; int failed = pthread_create(&t, &a, idle, nullptr); if (!failed) pthread_join(t, nullptr);\n"
        "return 10 * n + failed; }\n"
    )
    command = ["g++", "-fopenmp", "-pthread", "-shared", "-fPIC", "-xc++", "-", "-o", "a.so"]
    build = f"subprocess.run({command}, input=code, text=True, check=True)"
    run = "ctypes.CDLL('./a.so').run()"
    assert evaluate(lab, {"build": f"{build}.returncode", "run": run}, f"code = {code!r}") == {
        "build": "0", "run": "30",
    }  # fmt: skip


# What outlives a process, or changes what others have. `path` is a file outside that this user owns.
OUTSIDE = {
    "queue": f"call({CALLS.get('msgget')}, 4711, 0o1600)",
    "semaphore": f"call({CALLS.get('semget')}, 4711, 1, 0o1600)",
    "shared memory": f"call({CALLS.get('shmget')}, 4711, 4096, 0o1600)",
    "POSIX queue": "call({}, buffer(b'left'), os.O_CREAT, 0o600, 0)".format(CALLS.get("mq_open")),
    "key": "call({}, buffer(b'user'), buffer(b'left'), buffer(b'x'), 1, -4)".format(CALLS.get("add_key")),
    "keyring": f"call({CALLS.get('keyctl')}, 0, -4, 1)",
    "namespace": f"call({CALLS.get('unshare')}, 0x10000000)",
    "namespace of a child": f"call({CALLS.get('clone')}, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "namespace of files": f"call({CALLS.get('clone')}, 0x00020000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "faults": f"call({CALLS.get('userfaultfd')}, 1)",
}
ATTRIBUTES = {
    "attribute": "os.setxattr(path, 'user.left', b'for the next run')",
    "attribute of what is open": "os.setxattr(os.open(own, os.O_RDONLY), 'user.left', b'x')",
    "attribute that goes": "os.removexattr(path, 'user.there')",
}
CHANGES = {
    "mode": "os.chmod(path, 0o4777)",
    "mode of what is open": "os.fchmod(os.open(own, os.O_RDONLY), 0o666)",
    "mode by a call": "call(452, -100, buffer(path.encode()), 0o777, 0)",
    "date": "os.utime(path, (11, 11))",
    "date of what is open": "os.utime(os.open(own, os.O_RDONLY), (11, 11))",
    "owner": "os.chown(path, 12345, 12345)",
    "owner of a link": "os.lchown(path, 12345, 12345)",
    "owner of what is open": "os.fchown(os.open(own, os.O_RDONLY), 12345, 12345)",
}


def test_a_file_outside_stays_as_it_is_and_nothing_is_left_behind(lab, tmp_path):
    path = tmp_path / "outside.txt"
    path.write_text("x", encoding="utf-8")
    before = path.stat()
    setup = f"path, own = {str(path)!r}, 'own.txt'\nopen(own, 'w').close()\nbefore = os.stat(own)\n"
    same = {"own": "os.stat(own).st_ctime_ns == before.st_ctime_ns"}
    found = evaluate(lab, {**OUTSIDE, **ATTRIBUTES, **CHANGES, **same}, setup)
    wanted = {**dict.fromkeys(OUTSIDE, REFUSED), **dict.fromkeys(ATTRIBUTES, "OSError"), "own": "True"}
    assert found == {**wanted, **dict.fromkeys(CHANGES, "None")}
    after = path.stat()
    assert (before.st_mode, before.st_uid, before.st_ctime_ns) == (after.st_mode, after.st_uid, after.st_ctime_ns)


def test_files_can_be_copied_and_moved_with_all_that_belongs_to_them(lab):
    setup = "import shutil, tarfile, tempfile, pathlib\nopen('one', 'w').write('x')\nos.makedirs('many/of')\n"
    work = {
        "copy": "shutil.copy('one', 'two')",
        "copy with dates": "shutil.copy2('one', 'three')",
        "tree": "shutil.copytree('many', 'more')",
        "move": "shutil.move('three', 'many/three')",
        "touch": "pathlib.Path('one').touch()",
        "touch what is not there": "[pathlib.Path('new').touch(), os.stat('new')][0]",
        "packed": "[t := tarfile.open('all.tar', 'w'), t.add('many'), t.close()][1]",
        "unpacked": "tarfile.open('all.tar').extractall('out')",
        "temporary": "tempfile.NamedTemporaryFile().close()",
        "in place": "os.replace('two', 'one')",
        "cp -a": "subprocess.run(['cp', '-a', 'many', 'same'], check=True).returncode",
        "install": "subprocess.run(['install', '-m', '644', 'one', 'four'], check=True).returncode",
    }
    assert not {name: found for name, found in evaluate(lab, work, setup).items() if found.endswith("Error")}


ANSWERS = {
    syscalls.refused: seccomp._REFUSE,
    syscalls.pretended: seccomp._PRETEND,
    syscalls.unsupported: seccomp._UNSUPPORTED,
    syscalls.unknown: seccomp._UNKNOWN,
}
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize("machine_", syscalls.MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine_):
    header = Path(HEADERS[machine_])
    if not header.exists():
        pytest.skip(f"needs {header}")
    lines = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(encoding="utf-8"))
    known = {name: int(number) for name, number in lines}
    for those in (syscalls.chosen, *ANSWERS):
        listed = those(machine_)
        assert {name: known.get(name, number) for name, number in listed.items()} == listed
        assert {"chmod", "chown", "utime"}.isdisjoint(listed) or machine_ == "x86_64"


def answer(machine_, number, *arguments, network=False):
    """Return what the filter of a worker with the id 77 says to a call, by doing what its instructions say."""
    data = struct.pack("<iIQ6Q", number, seccomp._AUDITED[machine_], 0, *[*arguments, *[0] * 6][:6])
    code, at, value = seccomp.program(machine_, 77, network=network), 0, 0
    while True:
        operation, hit, miss, operand = code[at]
        if operation == seccomp._RETURN:
            return operand
        if operation == seccomp._LOAD:
            value = struct.unpack_from("<I", data, operand)[0]
            hit = miss = 0
        true = {
            seccomp._EQUAL: value == operand, seccomp._AT_LEAST: value >= operand, seccomp._ANY_BIT: value & operand,
        }.get(operation)  # fmt: skip
        at += 1 + (hit if true else miss)


@pytest.mark.parametrize("machine_", syscalls.MACHINES)
@pytest.mark.parametrize("network", [True, False])
def test_each_call_is_answered_as_it_is_to_be(machine_, network):
    ask = functools.partial(answer, machine_, network=network)
    numbers = syscalls.chosen(machine_)
    for those, wanted in ANSWERS.items():
        assert {ask(number) for number in those(machine_).values()} == {wanted}
    named = {number for those in (syscalls.chosen, *ANSWERS) for number in those(machine_).values()}
    assert {ask(number) for number in range(500) if number not in named} == {seccomp._ALLOW}
    dates = [ask(numbers["utimensat"], 3, 4, times) for times in (0, 1, 1 << 32, 7 << 40)]
    assert dates == [seccomp._ALLOW, *[seccomp._PRETEND] * 3]
    assert ask(numbers["prlimit64"], 77) == seccomp._ALLOW
    assert ask(numbers["prlimit64"], 78) == seccomp._REFUSE
    threads = 0x3D0F00  # what a new thread shares with the one that makes it
    assert ask(numbers["clone"], threads) == ask(numbers["clone"], signal.SIGCHLD) == seccomp._ALLOW
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert ask(numbers["clone"], signal.SIGCHLD | 1 << bit) == seccomp._REFUSE
    assert ask(numbers["socket"], 2) == (seccomp._ALLOW if network else seccomp._REFUSE)


def test_workers_are_not_told_to_pin_threads():
    told = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0", "OMP_NUM_THREADS": "2"}
    assert scrub(told) == {"OMP_NUM_THREADS": "2"}


def test_an_unknown_machine_is_reported_as_unprotected(monkeypatch):
    monkeypatch.setattr(seccomp, "_AUDITED", {})
    assert seccomp.restrict(1, network=False) is False
