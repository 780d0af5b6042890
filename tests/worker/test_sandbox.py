"""What a worker can see and reach: nothing of the judge, nothing that is hidden, nothing after its end."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.worker import landlock, sandbox
from pytest_flashinfer.worker.allowed import readable
from pytest_flashinfer.worker.environment import scrub, visible_device
from pytest_flashinfer.worker.errors import BuildFailed

needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")


def refused(lab, expression):
    """Evaluate an expression in a worker; return the type of error it raised, or its value."""
    source = (
        f"import ctypes, os, socket, subprocess, sys\ndef run(x):\n    try: print('value', {expression})\n"
        "    except Exception as error: print(type(error).__name__)\n    return x.clone()\n"
    )
    return lab.run(source, destination=False).log.strip()


@needs_landlock
def test_every_protection_takes_hold_here(cpu_pool):
    protections = cpu_pool.protections()
    assert protections["landlock"] == landlock.abi()
    assert protections["no_new_privs"]
    assert protections["capabilities"]
    assert protections["hidden_from_ptrace"]


def test_of_the_capabilities_at_most_the_one_to_read_files_is_left(lab):
    lines = "[each.split()[1] for each in open('/proc/self/status') if each.startswith(('CapEff', 'CapPrm', 'CapBnd'))]"
    found = refused(lab, f"all(int(each, 16) in (0, 1 << 1) for each in {lines})")
    assert found == "value True"


@needs_landlock
def test_hidden_folders_cannot_be_read_or_listed(lab):
    assert refused(lab, f"open({str(lab.hidden / 'definition.json')!r}).read()") == "PermissionError"
    assert refused(lab, f"os.listdir({str(lab.hidden)!r})") == "PermissionError"
    assert (
        refused(lab, f"subprocess.run(['cat', {str(lab.hidden / 'definition.json')!r}], capture_output=True).stdout")
        == "value b''"
    )


@needs_landlock
@pytest.mark.parametrize("place", [str(Path.home()), "/tmp", str(Path(__file__).parent), "/root", "/home"])
def test_folders_that_nobody_allowed_cannot_be_listed(lab, place):
    assert refused(lab, f"os.listdir({place!r})") in {"PermissionError", "FileNotFoundError"}


@needs_landlock
def test_nothing_outside_its_own_folders_can_be_written(lab):
    own = secrets.token_hex(8)  # that nobody else's file or folder has
    folders = ("/tmp", "/usr", "/etc", "/dev", lab.pool.cache, sys.prefix)
    for place in (*(f"{folder}/{own}" for folder in folders), "/proc/sys/kernel/core_pattern"):
        assert refused(lab, f"open({place!r}, 'w')") == "PermissionError"


def test_the_memory_files_and_environment_of_the_judge_are_closed(lab):
    sandbox.hide_process()
    for name in ("mem", "maps", "environ", "fd/0", "auxv"):
        assert refused(lab, f"open('/proc/{os.getpid()}/{name}', 'rb').read(1)") in {
            "PermissionError",
            "FileNotFoundError",
        }
    assert refused(lab, f"os.readlink('/proc/{os.getpid()}/fd/0')") == "PermissionError"
    parent = "f'/proc/{os.getppid()}/mem'"
    assert refused(lab, f"open({parent}, 'rb').read(1)") == "PermissionError"


def test_the_judge_cannot_be_traced_or_its_descriptors_taken(lab):
    sandbox.hide_process()
    attach = f"ctypes.CDLL(None, use_errno=True).ptrace(16, {os.getpid()}, 0, 0)"
    assert refused(lab, attach) == "value -1"
    steal = f"ctypes.CDLL(None).syscall(438, os.pidfd_open({os.getpid()}), 3, 0)"
    assert refused(lab, steal) == "value -1"
    here = ctypes.create_string_buffer(b"the truth")
    assert refused(lab, copied(os.getpid(), ctypes.addressof(here))) == "value -1"
    own = "ctypes.addressof(c := ctypes.create_string_buffer(8))"
    assert refused(lab, copied("os.getpid()", own)) == "value 8"  # it is not the call that fails


def copied(pid, address):
    """Return an expression that copies 8 bytes from a process; how many, or -1."""
    mine = "(ctypes.c_uint64 * 2)(ctypes.addressof(b := ctypes.create_string_buffer(8)), 8)"
    theirs = f"(ctypes.c_uint64 * 2)({address}, 8)"
    return f"ctypes.CDLL(None).process_vm_readv({pid}, ctypes.byref({mine}), 1, ctypes.byref({theirs}), 1, 0)"


@pytest.mark.skipif(landlock.abi() < 6, reason="signals are scoped from Landlock ABI 6 on")
def test_the_judge_cannot_be_signalled(lab):
    assert refused(lab, f"os.kill({os.getpid()}, 0)") == "PermissionError"


@pytest.mark.skipif(landlock.abi() < 4, reason="TCP is refused from Landlock ABI 4 on")
def test_there_is_no_network(lab):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert refused(lab, f"socket.create_connection(('127.0.0.1', {port}), 2)") == "PermissionError"
    assert refused(lab, "socket.create_server(('127.0.0.1', 0))") == "PermissionError"


def test_the_environment_holds_no_secret_and_no_path_of_the_project(lab, monkeypatch):
    text = lab.value("dict(__import__('os').environ)")
    for forbidden in ("TOKEN", "SECRET", "PYTEST", "PYTHONPATH", str(Path.cwd()), str(lab.hidden)):
        assert forbidden not in text
    assert "'PATH'" in text


def test_a_worker_holds_its_log_its_socket_and_its_arena(lab):
    source = """
        import os
        def run(x):
            for fd in range(1024):
                try: print(os.readlink(f"/proc/self/fd/{fd}").split(":")[0].replace(str(os.getpid()), "self"))
                except OSError: pass
            return x.clone()
    """
    held = sorted(lab.run(source, destination=False).log.split())
    assert held == ["/dev/null", "/memfd", "/proc/self", "pipe", "pipe", "socket"]


def test_command_lines_and_modules_of_the_worker_name_nothing(lab):
    log = lab.value("open('/proc/self/cmdline').read(), __import__('sys').argv, __import__('os').getcwd()")
    assert str(lab.hidden) not in log
    assert "tests" not in log


def test_the_working_directory_is_private_and_removed(lab):
    runner = lab.build("import os\nassert os.listdir('.') == []\nopen('left', 'w').close()\ndef run(x, y): pass\n")
    private = runner.worker.private
    assert (private / "left").exists()
    assert private.stat().st_mode & 0o777 == 0o700
    runner.worker.close()
    assert not private.exists()


def test_temporary_files_and_caches_go_to_folders_of_its_own(lab):
    names = "TMPDIR HOME XDG_CACHE_HOME TRITON_CACHE_DIR TORCH_EXTENSIONS_DIR CUDA_CACHE_PATH TORCHINDUCTOR_CACHE_DIR"
    runner = lab.build(
        f"import os, tempfile\nfor name in {names!r}.split(): print(os.environ[name])\n"
        "print(tempfile.gettempdir())\ntempfile.TemporaryFile().close()\n"
        "os.makedirs(os.environ['TRITON_CACHE_DIR'])\ndef run(x, y): pass\n"
    )
    places = runner.worker.take_log().split()
    assert len(places) == 8
    for place in places:
        assert place.startswith((str(runner.worker.private), str(lab.pool.cache)))


@needs_landlock
def test_one_solution_cannot_reach_the_folder_of_another(lab):
    lab.build("def run(x, y): pass\n")
    other = lab.pool.cache / f"solution{lab.count}" / "main.py"
    assert other.exists()
    assert refused(lab, f"open({str(other)!r}).read()") == "PermissionError"
    with pytest.raises(BuildFailed, match="PermissionError"):
        lab.build(f"open({str(other)!r}, 'a')\ndef run(x, y): pass\n")


def test_subprocesses_inherit_the_confinement(lab):
    script = f"open({str(lab.hidden / 'definition.json')!r})"
    assert (
        refused(lab, f"subprocess.run([sys.executable, '-c', {script!r}], capture_output=True).returncode") == "value 1"
    )
    assert (
        refused(lab, "subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True).stdout")
        == "value b'42\\n'"
    )


def test_privileges_cannot_be_regained(lab):
    status = refused(lab, "[l for l in open('/proc/self/status') if l[:6] in ('NoNewP', 'CapEff')]")
    assert "NoNewPrivs:\\t1" in status
    effective = int(status.partition("CapEff:\\t")[2].partition("\\n")[0], 16)
    assert effective & ~sandbox._KEPT == 0


def test_the_judge_can_hide_itself_from_other_processes():
    code = (
        "import os, sys\nfrom pytest_flashinfer.worker import sandbox\nprint(sandbox.hide_process())\n"
        "import ctypes\nprint(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]


def test_an_allowed_folder_around_a_hidden_one_is_replaced_by_its_other_children(tmp_path):
    for name in ("lib/secret", "lib/open", "other"):
        (tmp_path / name).mkdir(parents=True)
    paths = readable([str(tmp_path)], {}, [tmp_path / "lib/secret"])
    assert str(tmp_path / "lib/open") in paths
    assert str(tmp_path / "other") in paths
    assert not {str(tmp_path), str(tmp_path / "lib"), str(tmp_path / "lib/secret")} & set(paths)


def test_a_virtual_environment_below_a_hidden_root_stays_readable(tmp_path):
    inside = tmp_path / ".venv"
    inside.mkdir()
    paths = readable([str(inside), str(tmp_path), "relative", ""], {"PATH": "/no/such/place:/usr/bin"}, [tmp_path])
    assert str(inside) in paths
    assert str(tmp_path) not in paths
    assert "/" not in paths
    assert "/no/such/place" not in paths


def test_a_checkout_of_this_package_is_not_readable_as_a_whole():
    package = Path(sandbox.__file__).parents[1]
    paths = readable([str(package.parent)], {}, [])
    assert str(package) in paths
    assert (str(package.parent) in paths) is not (package.parent / "pyproject.toml").exists()


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "NVIDIA_API_KEY",
        "TORCH_HUB_TOKEN",
        "PYTEST_CURRENT_TEST",
        "PWD",
        "LD_PRELOAD",
    ],
)
def test_what_is_not_a_kernels_business_is_scrubbed(name):
    assert scrub({name: "x", "CUDA_HOME": "/c", "LC_ALL": "C"}) == {"CUDA_HOME": "/c", "LC_ALL": "C"}
    assert scrub({name: "x"}, [name]) == {name: "x"}
    assert scrub({name: "x"}, [f"{name[:4]}*"]) == {name: "x"}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_scrubbing_only_takes_away(environ):
    assert scrub(environ).items() <= environ.items()


@pytest.mark.parametrize(
    ("environ", "device", "visible"),
    [
        ({}, "cuda", "0"),
        ({}, "cuda:3", "3"),
        ({"CUDA_VISIBLE_DEVICES": "4, 7"}, "cuda:1", "7"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-abc"}, "cuda:0", "GPU-abc"),
    ],
)
def test_the_card_of_the_judge_is_the_only_one_of_the_worker(environ, device, visible):
    assert visible_device(environ, device)["CUDA_VISIBLE_DEVICES"] == visible


def test_triton_interprets_on_the_cpu():
    assert visible_device({}, "cpu")["TRITON_INTERPRET"] == "1"


def test_idle_threads_leave_the_core_to_the_judge_unless_told_otherwise():
    assert visible_device({}, "cpu")["OMP_WAIT_POLICY"] == "PASSIVE"
    assert visible_device({"OMP_WAIT_POLICY": "ACTIVE"}, "cpu")["OMP_WAIT_POLICY"] == "ACTIVE"
    assert visible_device({}, "cpu")["OPENBLAS_NUM_THREADS"] == "1"
    assert visible_device({"OPENBLAS_NUM_THREADS": "3"}, "cpu")["OPENBLAS_NUM_THREADS"] == "3"


def test_memory_that_is_got_on_the_cpu_holds_garbage():
    code = "import torch; print(*(bool((torch.empty(n) > 1e38).all()) for n in (8, 1 << 16, 1 << 24)))"
    environ = {**os.environ, **visible_device({}, "cpu")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3
