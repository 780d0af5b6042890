"""What no schema can say of a workload: whether it fits its definition, and whether its data is there."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data import scalars, schema
from pytest_flashinfer.data.blobs import BlobError, candidates, find_tensor
from pytest_flashinfer.data.constraints import ConstraintError, parse
from pytest_flashinfer.data.faults import Fault, Finding, JsonPath, Loaded, unique
from pytest_flashinfer.data.misspelt import check_record
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.sizes import SizeError, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_flashinfer.data.model import Definition, Workload

MAX_FAULTS = 2000  # told of the workloads of one definition
_AXES: JsonPath = ("workload", "axes")
_INPUTS: JsonPath = ("workload", "inputs")


def axes_are_given(definition: Definition, workload: Workload) -> Iterator[Finding]:
    """Demand a size for every variable axis but those that the result decides, and none against the definition."""
    for name in definition.var_axes:
        if name not in workload.axes and not _only_in_outputs(definition, name):
            yield _AXES, f"missing axis {name}: give its size", "fault"
    for name, size in workload.axes.items():
        axis = definition.axes.get(name)
        if axis is None:
            yield (*_AXES, name), _unknown_axis(definition, name), "fault"
        elif axis.kind == "const" and axis.value not in (None, size):
            yield (*_AXES, name), f"axis {name!r} is the constant {axis.value}, not {size}", "fault"
        elif axis.kind == "expr":
            problem = _against_expression(definition, workload, name)
            if problem:
                yield (*_AXES, name), problem, "fault"


def _unknown_axis(definition: Definition, name: str) -> str:
    """Say that there is no such axis, also where the file declares one: a ragged axis is packed into its total."""
    if f"{name}_total" in definition.axes and f"{name}_indptr" in definition.inputs:
        return f"{name!r} is packed (the reference takes {name}_indptr): give {name}_total"
    return f"unknown axis {name!r}{did_you_mean(name, definition.axes)}"


def _against_expression(definition: Definition, workload: Workload, name: str) -> str | None:
    """Say what an axis of kind `expr` comes to from the other sizes, where that is not the size that is given."""
    others = {other: size for other, size in workload.axes.items() if other != name}
    try:
        due = resolve(definition, others).get(name)
    except SizeError as error:
        return str(error) if error.axis == name and not error.circular else None
    if due in (None, workload.axes[name]):
        return None
    return f"axis {name!r} comes to {due}, not {workload.axes[name]}: {definition.axes[name].expression}"


def _only_in_outputs(definition: Definition, name: str) -> bool:
    """Whether an axis is in the shape of an output, and nothing else that is known before the call mentions it.

    A constraint that reads data, as `total == lens.sum()`, is no such thing: the data of a drawn case decide.
    """
    texts = [text for text in definition.constraints if not _reads_data(definition, text)]
    texts += [axis.expression or "" for axis in definition.axes.values()]
    named = [size for tensor in definition.inputs.values() for size in tensor.shape or ()]
    made = [size for tensor in definition.outputs.values() for size in tensor.shape or ()]
    return name in made and name not in named and not any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts)


def _reads_data(definition: Definition, text: str) -> bool:
    try:
        return parse(text, tensors=definition.tensor_names).reads_tensors
    except ConstraintError:
        return False  # the definition's own check tells of it


def constraints_hold(definition: Definition, workload: Workload) -> Iterator[Finding]:
    """Demand that the constraints hold, as far as sizes and the scalars that are stated can tell."""
    try:
        sizes = resolve(definition, workload.axes)
    except SizeError as error:
        yield _AXES, str(error), "fault"
        return
    for name, size in sizes.items():
        if size < 0 and name not in workload.axes:
            yield _AXES, f"axis {name!r} comes to {size}: a size is not negative", "fault"
    known = {**_scalars(definition, workload), **sizes}
    for text in definition.constraints:
        try:
            constraint = parse(text, tensors=definition.tensor_names)
            if constraint.kind == "prose" or not constraint.names <= known.keys():
                continue
            named = sorted(constraint.names - sizes.keys())
            if not constraint.holds(known, scalars.rounding(definition.inputs[name].dtype for name in named)):
                where = (*_INPUTS, named[0], "value") if named else _AXES
                yield where, f"constraint {constraint.explain(known)}", "fault"
        except ConstraintError:
            continue  # the definition's own check tells of it


def _scalars(definition: Definition, workload: Workload) -> dict[str, Any]:
    """Return the values that a workload states of Python scalars; 0-d tensors compute in their dtype, in a run."""
    plain = {name for name, tensor in definition.inputs.items() if tensor.shape is None}
    return {name: spec.value for name, spec in workload.inputs.items() if spec.kind == "scalar" and name in plain}


def inputs_are_there(definition: Definition, workload: Workload) -> Iterator[Finding]:
    """Demand a source for every input that is not optional, and for no others."""
    for name, tensor in definition.inputs.items():
        if name not in workload.inputs and not tensor.optional:
            yield _INPUTS, f'missing input {name}: say where it comes from, such as {{"type": "random"}}', "fault"
    for name in workload.inputs:
        if name not in definition.inputs:
            yield (*_INPUTS, name), f"unknown input {name!r}{did_you_mean(name, definition.inputs)}", "fault"


def inputs_are_of_the_right_kind(definition: Definition, workload: Workload) -> Iterator[Finding]:
    """Demand scalars where the definition has scalars, and a function for custom inputs."""
    for name, spec in workload.inputs.items():
        tensor = definition.inputs.get(name)
        if tensor is None:
            continue
        where = (*_INPUTS, name)
        if spec.kind == "scalar":
            if tensor.shape:
                shape = ", ".join(tensor.shape)
                yield where, f"{name} is a tensor [{shape}]: a scalar cannot stand for it", "fault"
            else:
                problem = scalars.problem(spec.value, tensor.dtype, optional=tensor.optional)
                if problem:
                    yield (*where, "value"), f"{name} is {problem}", "fault"
        elif spec.kind == "custom" and definition.custom_inputs is None and definition.init is None:
            yield where, "a custom input, but the definition names no 'custom_inputs_entrypoint'", "fault"


def tolerance_is_of_outputs(definition: Definition, workload: Workload) -> Iterator[Finding]:
    """Warn of a tolerance by name of an output that the definition does not have: it does nothing."""
    for name, own in workload.tolerance.extra.items() if workload.tolerance is not None else ():
        if isinstance(own, dict) and name not in definition.outputs:
            hint = did_you_mean(name, definition.outputs) or f"; there are {', '.join(definition.outputs)}"
            yield ("workload", "tolerance", name), f"no such output{hint}", "warning"


RULES: tuple[Callable[[Definition, Workload], Iterator[Finding]], ...] = (
    axes_are_given,
    constraints_hold,
    inputs_are_there,
    inputs_are_of_the_right_kind,
    tolerance_is_of_outputs,
)


def blobs_are_there(definition: Definition, workload: Workload, root: Path | None) -> Iterator[Finding]:
    """Demand that stored tensors are there and of the right dtype and shape; without a root, that none lies outside."""
    try:
        sizes = resolve(definition, workload.axes)
    except SizeError:
        return  # told by constraints_hold
    for name, spec in workload.inputs.items():
        if spec.kind != "safetensors" or name not in definition.inputs:
            continue
        where = (*_INPUTS, name)
        try:
            if root is None:
                candidates(Path(), spec.path or "", definition.name)
                continue
            stored = find_tensor(root, spec, definition, name, sizes)
        except BlobError as error:
            yield where, error.message, error.kind
        else:
            if stored.note:
                yield where, stored.note, "warning"


def check_workload(loaded: Loaded[Workload], definition: Definition, root: Path | None = None) -> tuple[Fault, ...]:
    """Say all that is wrong or odd with one workload line for its definition.

    `root` is the data set's root, below which stored tensors lie; without it they are not looked for.
    """
    faults = check_record("trace", loaded)
    if loaded.value is not None:
        found = [each for rule in RULES for each in islice(rule(definition, loaded.value), schema.MAX_FINDINGS)]
        found += blobs_are_there(definition, loaded.value, root)
        faults += [loaded.fault(where, message, kind) for where, message, kind in found]
    return unique(faults)


def check_workloads(
    lines: Sequence[Loaded[Workload]], definition: Definition, roots: Mapping[Path, Path] | None = None
) -> tuple[Fault, ...]:
    """Check all lines of a definition, and that no two have one uuid; `roots` are those of their files."""
    known = roots or {}
    found = (fault for loaded in lines for fault in check_workload(loaded, definition, known.get(loaded.path)))
    faults = list(islice(found, MAX_FAULTS))
    first: dict[str, Loaded[Workload]] = {}
    for loaded in lines:
        if loaded.value is None:
            continue
        other = first.setdefault(loaded.value.uuid, loaded)
        if other is not loaded:
            message = f"uuid {loaded.value.uuid!r} is that of {other.path}:{other.line} too: give each line its own"
            faults.append(loaded.fault(("workload", "uuid"), message))
    return unique(faults)
