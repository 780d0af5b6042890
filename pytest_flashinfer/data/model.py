"""The records of the FlashInfer Trace data model as frozen dataclasses; every dialect is read into these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

AxisKind = Literal["const", "var", "expr"]
InputKind = Literal["random", "scalar", "safetensors", "custom"]
Status = Literal[
    "PASSED",
    "INCORRECT_SHAPE",
    "INCORRECT_DTYPE",
    "INCORRECT_NUMERICAL",
    "RUNTIME_ERROR",
    "COMPILE_ERROR",
    "TIMEOUT",
    "REWARD_HACK",
    "INVALID_REFERENCE",
]
STATUSES: tuple[Status, ...] = get_args(Status)
Extra = Mapping[str, Any]  # keys of the file that this model does not name; kept and written back


def as_status(word: object) -> Status | None:
    """Return a word as the status that it is, `None` where it is none."""
    return next((status for status in STATUSES if status == word), None)


@dataclass(frozen=True, slots=True)
class Axis:
    """A named dimension: `const` has a value, `var` is bound by the data, `expr` follows from other axes."""

    kind: AxisKind
    value: int | None = None
    expression: str | None = None
    parent: str | None = None
    description: str | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of one input or output.

    `shape` is a tuple of axis names (a literal size is kept as its decimal digits), `()` for a 0-d tensor and `None`
    for a Python scalar. `dim_order` is the memory layout, outermost axis first. `param` names the input that an
    output is written back into.
    """

    shape: tuple[str, ...] | None
    dtype: str
    optional: bool = False
    description: str | None = None
    dim_order: tuple[int, ...] | None = None
    param: str | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel's contract: axes, tensors, constraints between axes and a plain PyTorch reference."""

    name: str
    op_type: str
    axes: Mapping[str, Axis]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    reference: str | None
    entry: str = "run"
    reference_style: Literal["return", "destination"] = "return"
    constraints: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    description: str | None = None
    init: str | None = None
    check: str | None = None
    custom_inputs: str | None = None
    form: int = field(default=3, compare=False)  # the dialect of the file; written back, every definition is form 3
    extra: Extra = field(default_factory=dict)

    @property
    def const_axes(self) -> dict[str, int]:
        """The axes whose value the definition fixes."""
        return {name: axis.value for name, axis in self.axes.items() if axis.kind == "const" and axis.value is not None}

    @property
    def is_sampling(self) -> bool:
        """Whether outputs are drawn at random, so that many draws are judged together."""
        return self.op_type == "sampling"

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """The inputs and outputs that a constraint can speak of: a name that is an axis too means the axis there."""
        return tuple(name for name in (*self.inputs, *self.outputs) if name not in self.axes)

    @property
    def var_axes(self) -> tuple[str, ...]:
        """The axes that a workload binds, in the order of the file."""
        return tuple(name for name, axis in self.axes.items() if axis.kind == "var")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Where a workload takes one input from."""

    kind: InputKind
    value: Any = None
    path: str | None = None
    tensor_key: str | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadTolerance:
    """The tolerance that a workload line may carry; `None` leaves the default in force."""

    max_atol: float | None = None
    max_rtol: float | None = None
    required_matched_ratio: float | None = None
    max_error_cap: float | None = None
    allow_negative_inf: bool | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes of the variable axes and the source of every input."""

    uuid: str
    axes: Mapping[str, int]
    inputs: Mapping[str, InputSpec]
    tolerance: WorkloadTolerance | None = None
    extra: Extra = field(default_factory=dict)

    @property
    def scalars(self) -> dict[str, Any]:
        """The values of the inputs that are given as scalars."""
        return {name: spec.value for name, spec in self.inputs.items() if spec.kind == "scalar"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a solution; `path` is relative to the solution's own folder."""

    path: str
    content: str
    extra: Extra = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Solution:
    """Somebody's kernel for one definition: sources, language and entry point."""

    name: str
    definition: str
    author: str
    language: str
    entry_file: str
    entry_function: str
    sources: tuple[SourceFile, ...]
    destination_passing: bool = True
    target_hardware: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    binding: str | None = None
    description: str | None = None
    extra: Extra = field(default_factory=dict)
    module: bool = field(default=False, compare=False)  # read from one Python file, whose entry is `run`

    @property
    def digest(self) -> str:
        """SHA-256, as hex, of all that decides what is executed: equal digests run the same code."""
        what = [
            self.language,
            self.binding,
            self.entry_file,
            self.entry_function,
            self.destination_passing,
            sorted((source.path, source.content) for source in self.sources),
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Correctness:
    """Largest errors of an evaluation, over all outputs."""

    max_relative_error: float
    max_absolute_error: float
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Performance:
    """Latencies in milliseconds; `speedup_factor` is reference over solution."""

    latency_ms: float
    reference_latency_ms: float
    speedup_factor: float
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an evaluation ran: card and library versions."""

    hardware: str
    libs: Mapping[str, str]
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of one solution on one workload."""

    status: Status
    environment: Environment
    timestamp: str
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload of a definition, with the evaluation of a solution where there is one."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None
    extra: Extra = field(default_factory=dict)
