"""What no schema can say of a definition: one small generator per rule, each yielding places and messages.

Those about axes are in axis_rules.py, those about its code in reference_rules.py.
"""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING

from pytest_flashinfer.data import axis_rules, schema
from pytest_flashinfer.data.constraints import ConstraintError, UnsupportedError, parse, zero_divisor
from pytest_flashinfer.data.contradictions import contradictions
from pytest_flashinfer.data.faults import Fault, Finding, JsonPath, Loaded, unique
from pytest_flashinfer.data.losses import nothing_is_lost
from pytest_flashinfer.data.misspelt import check_record
from pytest_flashinfer.data.nearest import did_you_mean
from pytest_flashinfer.data.reference_rules import DUMP, REFERENCE_RULES
from pytest_flashinfer.data.truth_values import elementwise, ranks_of
from pytest_flashinfer.data.vocabulary import COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition

CANONICAL = (3, 4)  # the forms of which a data set holds one file each, of the definition's name


def names_do_not_overlap(definition: Definition) -> Iterator[Finding]:
    """Let an output have the name of an input only if it is written back into that input."""
    for name, tensor in definition.outputs.items():
        if name in definition.inputs and tensor.param != name:
            yield ("outputs", name), f"{name!r} is the name of an input too: rename one of the two", "fault"
        if tensor.param is not None and tensor.param not in definition.inputs:
            known = did_you_mean(tensor.param, definition.inputs)
            known = known or f"; name one of {', '.join(definition.inputs)}, or leave param out"
            yield ("outputs", name, "param"), f"{tensor.param!r} is not an input{known}", "warning"
    if not definition.outputs:
        yield ("outputs",), "no outputs: there is nothing to compare", "warning"


def outputs_fit_their_inputs(definition: Definition) -> Iterator[Finding]:
    """Demand that what is written back into an input is as large as that, of its dtype, and the only one."""
    first: dict[str, str] = {}
    sizes = {name: str(value) for name, value in definition.const_axes.items()}
    for name, tensor in definition.outputs.items():
        target = None if tensor.param is None else definition.inputs.get(tensor.param)
        if target is None or tensor.param is None:
            continue
        where: JsonPath = ("outputs", name)
        other = first.setdefault(tensor.param, name)
        if other != name:
            yield (*where, "param"), f"{tensor.param!r} is what {other!r} is written into: name another", "fault"
        if tensor.dtype != target.dtype and "unknown" not in (tensor.dtype, target.dtype):
            message = f"{name!r} is written into {tensor.param!r}, which is {target.dtype}, not {tensor.dtype}"
            yield (*where, "dtype"), message, "fault"
        shapes = [[sizes.get(size, size) for size in spec.shape or ()] for spec in (tensor, target)]
        if shapes[0] != shapes[1]:
            said = " and ".join(f"[{', '.join(spec.shape or ())}]" for spec in (target, tensor))
            yield (*where, "shape"), f"{name!r} is written into {tensor.param!r}: their shapes differ, {said}", "fault"


def layouts_are_permutations(definition: Definition) -> Iterator[Finding]:
    """Demand that a memory layout names every axis of its tensor once."""
    for group, tensors in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, tensor in tensors.items():
            rank = len(tensor.shape or ())
            if tensor.dim_order is not None and sorted(tensor.dim_order) != list(range(rank)):
                message = f"{list(tensor.dim_order)} is not an order of the {rank} axes 0 to {rank - 1}"
                yield (group, name, "dim_order"), message, "fault"
            if tensor.dtype in ("string", "dtype", "device") and tensor.shape is not None:
                yield (group, name, "dtype"), f"a {tensor.dtype} has no shape: write null", "fault"


def constraints_are_true_of_constants(definition: Definition) -> Iterator[Finding]:
    """Demand that constraints parse, speak of what there is and are not false whatever the workload."""
    tensors = definition.tensor_names
    names = [*definition.axes, *tensors] if definition.form != DUMP else None
    for number, text in enumerate(definition.constraints):
        where: JsonPath = ("constraints", number)
        try:
            constraint = parse(text, names, tensors=tensors)
            constants = definition.const_axes
            if constraint.kind == "prose":
                yield where, f"{text!r} is in words: it is not checked, nor kept to when inputs are made", "warning"
            elif part := zero_divisor(constraint, constants):
                yield where, f"{text!r}: cannot be computed: {part} divides by zero", "fault"
            elif constraint.reads_tensors or not constraint.names <= constants.keys():
                continue  # a workload has to tell
            elif not constraint.holds(constants):
                yield where, constraint.explain(constants), "fault"
        except UnsupportedError as error:
            yield where, f"{text!r} is not checked: {error}", "warning"
        except ConstraintError as error:
            yield where, f"{text!r}: {error}", "fault"


def constraints_have_a_truth_value(definition: Definition) -> Iterator[Finding]:
    """Demand that no constraint compares a tensor and leaves open whether that has to hold of all of its elements."""
    ranks = ranks_of(definition)
    for number, text in enumerate(definition.constraints):
        with contextlib.suppress(ConstraintError):  # which is told of by itself
            tree = parse(text).tree
            part = "" if tree is None else elementwise(tree, ranks)
            if part:
                yield ("constraints", number), f"{text!r} has no truth value: write `({part}).all()`", "fault"


def constraints_agree(definition: Definition) -> Iterator[Finding]:
    """Demand that the constraints of one size or number leave it a value."""
    for name, rules in contradictions(definition):
        texts = " and ".join(repr(constraint.text) for _, constraint in rules)
        yield ("constraints", rules[-1][0]), f"no value of {name!r} satisfies {texts}: correct the constraints", "fault"


def counts_are_expressions(definition: Definition) -> Iterator[Finding]:
    """Warn of a count of operations or bytes that cannot be computed: it would be left out of every report."""
    names = [*definition.axes, *definition.tensor_names]
    for key in COUNTS:
        text = definition.extra.get(key)
        if text is None or (isinstance(text, (int, float)) and not isinstance(text, bool)):
            continue
        try:
            prose = not isinstance(text, str) or parse(text, names, tensors=definition.tensor_names).kind == "prose"
            message = "it is no expression over axes and inputs" if prose else ""
        except ConstraintError as error:
            message = str(error)
        if message:
            yield (key,), f"{text!r} is not used: {message}", "warning"


# A fault of these leaves open what is right: the reference means something else than the contract, or inputs are drawn
# that the contract rules out. With one of the others a kernel can still be judged.
CONTRACT_RULES: tuple[Callable[[Definition], Iterator[Finding]], ...] = (
    *axis_rules.CONTRACT_RULES,
    outputs_fit_their_inputs,
    layouts_are_permutations,
    *REFERENCE_RULES,
    constraints_are_true_of_constants,
    constraints_agree,
)
RULES = (
    *axis_rules.FIRST_RULES,
    names_do_not_overlap,
    *CONTRACT_RULES,
    constraints_have_a_truth_value,
    counts_are_expressions,
    axis_rules.axes_are_used,
)


def check_definition(loaded: Loaded[Definition]) -> tuple[Fault, ...]:
    """Say all that is wrong or odd with a definition file: its text, its form, its schema and these rules.

    The faults are ordered by line; kind `warning` marks those that stop nothing.
    """
    faults = check_record("definition", loaded)
    if loaded.value is not None:
        for rule in (*RULES, *(() if loaded.faults else (nothing_is_lost,))):  # what is not even read may well be lost
            found = islice(rule(loaded.value), schema.MAX_FINDINGS)
            faults.extend(loaded.fault(where, message, kind) for where, message, kind in found)
    return unique(faults)


def check_folder(loaded: Loaded[Definition], root: Path) -> tuple[Fault, ...]:
    """Warn of a definition that lies in the folder of another operation type below `root`."""
    if loaded.value is None or not loaded.path.is_relative_to(root):
        return ()
    folders, op_type = loaded.path.relative_to(root).parts[:-1], loaded.value.op_type
    if not folders or op_type in (*folders, "unspecified"):
        return ()
    message = f"op_type is {op_type!r}, the folder {folders[0]!r}: move the file or correct the op_type"
    return (loaded.fault(("op_type",), message, "warning"),)


def check_name(loaded: Loaded[Definition]) -> tuple[Fault, ...]:
    """Warn of a definition in a file of another name: what goes by the file looks for the other one.

    Older forms and dumps have other habits, and problems of SOL-ExecBench a folder each.
    """
    value, path = loaded.value, loaded.path
    if value is None or value.form not in CANONICAL or value.name == path.stem:
        return ()
    message = f"its name is {value.name!r}: call the file {value.name}.json, as its workloads {value.name}.jsonl"
    return (loaded.fault(("name",), f"{message}, or correct the name", "warning"),)
