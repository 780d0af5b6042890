"""The environment that workers see: an allow-list, because what CI puts there (tokens, paths) is not theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMES = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH"}
    | {"LIBRARY_PATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "MAX_JOBS", "CUDAHOSTCXX", "SYSTEMROOT", "NO_COLOR"}
)
_PREFIXES = (
    *("LC_", "CUDA_", "NVIDIA_", "NVCC_", "TRITON_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "CUBLAS"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "CUTLASS_", "CUTE_", "TILELANG_", "TVM_", "FLASHINFER_", "ROCR_"),
    *("HIP_", "ROCM_", "CUDNN_", "NCCL_"),
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)API|(^|_)KEY|(^|_)AUTH|(^|_)PAT$", re.IGNORECASE)
# Each of these would name a folder that the sandbox replaces, or bring back what was scrubbed.
_REPLACED = frozenset({"TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"})
# The C library pins a new thread by its id, which the sandbox refuses, and GNU's OpenMP ends where that fails.
_PINNING = frozenset({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})

# The C library fills memory that is got with the complement of this byte, 0x7f: floats are large or no numbers. Fresh
# pages are zero, and an output that nobody writes would be right where zeros are.
_GARBAGE = "128"
# What the C library keeps of freed memory, in bytes: temporaries of some 100 KiB would each be got anew, page by page.
_HEAP = str(64 << 20)


def scrub(environ: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of `environ` that a worker may see.

    `extra` names further variables; one that ends in `*` is a prefix. They are let through even where they look like
    a secret: whoever lists one means it.
    """
    wanted = list(extra)
    names = {name for name in wanted if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in wanted if name.endswith("*"))
    return {
        name: value for name, value in environ.items() if name in names or name.startswith(prefixes) or _harmless(name)
    }


def _harmless(name: str) -> bool:
    known = name in _NAMES or name.startswith(_PREFIXES)
    return known and name not in _REPLACED | _PINNING and not _SECRET.search(name)


def caches(folder: str, private: str) -> dict[str, str]:
    """Return the variables that point compilers' caches into `folder` and everything temporary into `private`."""
    return {
        "HOME": private,
        "TMPDIR": private,
        "XDG_CACHE_HOME": f"{folder}/xdg",
        "XDG_CONFIG_HOME": f"{private}/.config",
        "XDG_DATA_HOME": f"{private}/.local",
        "TRITON_HOME": f"{folder}/triton",
        "TRITON_CACHE_DIR": f"{folder}/triton/cache",
        "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "CUDA_CACHE_PATH": f"{folder}/cuda",
        "FLASHINFER_WORKSPACE_BASE": f"{folder}/flashinfer",
        "TVM_FFI_CACHE_DIR": f"{folder}/tvm_ffi",
        "USER": "worker",
        "LOGNAME": "worker",
    }


def visible_device(environ: Mapping[str, str], device: str) -> dict[str, str]:
    """Return the variables that make `device` (`cpu`, `cuda`, `cuda:N`) the only card of a worker, its `cuda:0`."""
    heap = {"MALLOC_TOP_PAD_": environ.get("MALLOC_TOP_PAD_", _HEAP)}
    if device == "cpu":
        # Idle threads that spin would take the judge's core; the two never compute at the same time. OpenBLAS, which
        # the interpreter's small products go through, cannot be told to wait quietly. A temporary of 100 MB in small
        # pages takes longer to get than to fill.
        usual = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1", "THP_MEM_ALLOC_ENABLE": "1"}
        usual["MALLOC_PERTURB_"] = _GARBAGE
        return {"TRITON_INTERPRET": "1", **heap, **{name: environ.get(name, value) for name, value in usual.items()}}
    index = int(device.partition(":")[2] or 0)
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    cards = [card.strip() for card in listed.split(",")] if listed else []
    card = cards[index] if index < len(cards) else str(index)
    return {"CUDA_VISIBLE_DEVICES": card, "TRITON_INTERPRET": "0", **heap}
