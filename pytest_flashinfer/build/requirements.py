"""Can a solution run here at all? Asked by the judge before a worker is started; loads neither torch nor triton."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import platform
import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_flashinfer.build import tvm_ffi
from pytest_flashinfer.build.cpp import CppBuilder
from pytest_flashinfer.build.extension import find_nvcc
from pytest_flashinfer.build.python import importable
from pytest_flashinfer.build.registry import builder_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.data.model import Solution

_TOOLKIT = frozenset({"cuda", "cudatoolkit", "cuda-toolkit", "nvcc"})  # not on PyPI, but solutions list them
_ANYWHERE = frozenset({"", "any", "all", "*", "local", "generic"})
_ANY_CARD = frozenset({"cuda", "gpu", "nvidia", "nvidia gpu"})
_FAMILIES = {
    "volta": ((7, 0), (7, 2)),
    "turing": ((7, 5), (7, 5)),
    "ampere": ((8, 0), (8, 7)),
    "ada": ((8, 9), (8, 9)),
    "lovelace": ((8, 9), (8, 9)),
    "hopper": ((9, 0), (9, 9)),
    "blackwell": ((10, 0), (12, 9)),
}
# Memory size, form factor and interconnect: variants of one model, which run the same kernels.
_VARIANT = re.compile(r"\d+gb|sxm\d*|hbm\d*\w?|pcie\d*|nvl\d*|gddr\w*|mig|\d+g")


def cannot_run(
    solution: Solution, device_kind: str, device_name: str = "", capability: tuple[int, int] = (0, 0)
) -> str | None:
    """Return why `solution` cannot run on this machine and device, or `None`.

    `device_kind` is `"cpu"` or `"cuda"`; the name and the compute capability are the card's. All reasons that apply
    are joined into one line, so that a user mends them in one go.
    """
    reasons = [
        hardware_mismatch(solution.target_hardware, device_kind, device_name, capability),
        unavailable(solution.language, device_kind, solution.entry_file, solution.binding),
        *missing_dependencies(solution.dependencies),
    ]
    return "; ".join(reason for reason in reasons if reason) or None


def unavailable(language: str, device_kind: str, entry_file: str = "", binding: str | None = None) -> str | None:
    """Return why nothing in `language` can be built for the device here, or `None`.

    An unknown language is no reason to skip: it is a fault of the solution that its build reports.
    """
    builder = builder_for(language)
    if builder is None:
        return None
    if isinstance(builder, CppBuilder):
        if entry_file.endswith(".py"):  # such a file compiles by its own means, perhaps without nvcc or ninja
            return builder.needs_card(device_kind)
        if binding == "tvm-ffi" and tvm_ffi.missing():
            return tvm_ffi.missing()
    return builder.unavailable(device_kind)


def missing_dependencies(dependencies: Sequence[str]) -> list[str]:
    """Return one reason for each dependency that this environment does not satisfy.

    Each is a requirement as pip reads it (`"triton>=3.4"`) by distribution or import name. What is no requirement
    ("a recent driver") cannot be checked and is no reason.
    """
    reasons = []
    for text in dependencies:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        reason = _unsatisfied(requirement)
        if reason is not None:
            reasons.append(reason)
    return reasons


def _unsatisfied(requirement: Requirement) -> str | None:
    name = requirement.name
    if canonicalize_name(name) in _TOOLKIT:
        return None if find_nvcc() else f"needs {requirement}; install the CUDA toolkit or set CUDA_HOME"
    version = platform.python_version() if name.lower() == "python" else _installed(name)
    if version is None:  # to look for more than the first part would import it, and here that is a stranger's word
        top = name.replace("-", "_").partition(".")[0]
        return None if importable(top) else f"needs {requirement}; pip install '{requirement}'"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"needs {requirement}; {name} {version} is installed; pip install '{requirement}'"


def _installed(name: str) -> str | None:
    """Return the version of the distribution `name`, or of the one that provides the import name `name`."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    provider = _providers().get(name.replace("-", "_"))
    return importlib.metadata.version(provider[0]) if provider else None


@functools.cache
def _providers() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def hardware_mismatch(
    target_hardware: Sequence[str], device_kind: str, device_name: str = "", capability: tuple[int, int] = (0, 0)
) -> str | None:
    """Return why a solution for `target_hardware` should not run on the device, or `None`. One match is enough.

    Known spellings: `"NVIDIA_H100"`, `"H100"`, `"NVIDIA A100-SXM4-80GB"`, `"sm_90"`, `"hopper"`, `"cuda"`, `"cpu"`,
    `"LOCAL"`; none at all means anywhere. Form factor and memory size are ignored: they run the same kernels.

    On the CPU a solution for a card is run all the same, to check that it is right: whether its language can is
    `unavailable`'s question. A solution for the CPU alone is not run on a card.
    """
    targets = [target.strip() for target in target_hardware]
    if not targets or device_kind == "cpu":
        return None
    if any(_matches(target, device_name, capability) for target in targets):
        return None
    major, minor = capability
    return f"targets {', '.join(targets)}; this card is {device_name} (sm_{major}{minor})"


def _matches(target: str, device_name: str, capability: tuple[int, int]) -> bool:
    words = re.sub(r"[^a-z0-9.*]+", " ", target.lower()).strip()
    if words in _ANYWHERE or words in _ANY_CARD:
        return True
    number = re.fullmatch(r"(?:sm|compute) ?(\d+)(\d)([af]?)|(?:cc )?(\d+)\.(\d+)()", words)
    if number:
        major, minor, suffix = [part for part in number.groups() if part is not None]
        exact = (int(major), int(minor)) == capability
        return exact or (not suffix and int(major) == capability[0] and int(minor) <= capability[1])
    family = _FAMILIES.get(words.removeprefix("nvidia "))
    if family is not None:
        return family[0] <= capability <= family[1]
    model = _model(words)
    return bool(model) and model <= _model(device_name)


def _model(name: str) -> set[str]:
    """Return the words of a card's name that tell models apart: `{"h100"}`, `{"4090"}`, `{"6000", "ada"}`."""
    spaced = re.sub(r"rtx(?=\d)", "rtx ", re.sub(r"[^a-z0-9]+", " ", name.lower()))
    words = [word for word in spaced.split() if not _VARIANT.fullmatch(word)]
    return {word for word in words if re.search(r"\d", word) or word in ("ada", "ti", "super", "blackwell")}
