"""What the system call filter refuses a worker, and what goes on as if there were none."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_flashinfer.worker import landlock, seccomp
from pytest_flashinfer.worker.environment import scrub

CALLS = dict(machine.numbers) if (machine := seccomp._machine()) else {}
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
        "#include <pthread.h>\n#include <cstdio>\nvoid* idle(void*) { return nullptr; }\nint main() {\n"
        "int n = 0;\n#pragma omp parallel num_threads(3) reduction(+:n)\nn += 1;\n"
        "pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);\n"
        "pthread_t t; int failed = pthread_create(&t, &a, idle, nullptr); if (!failed) pthread_join(t, nullptr);\n"
        'printf("%d %d", n, failed); }\n'
    )
    command = ["g++", "-fopenmp", "-pthread", "-xc++", "-", "-o", "a.out"]
    build = f"subprocess.run({command}, input=code, text=True, check=True)"
    run = "subprocess.run(['./a.out'], capture_output=True, text=True, check=True).stdout"
    assert evaluate(lab, {"build": f"{build}.returncode", "run": run}, f"code = {code!r}") == {
        "build": "0", "run": "'3 0'",
    }  # fmt: skip


def test_workers_are_not_told_to_pin_threads():
    told = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0", "OMP_NUM_THREADS": "2"}
    assert scrub(told) == {"OMP_NUM_THREADS": "2"}


def test_an_unknown_machine_is_reported_as_unprotected(monkeypatch):
    monkeypatch.setattr(seccomp, "_MACHINES", {})
    assert seccomp.restrict(1, network=False) is False
