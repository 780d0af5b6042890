"""One case: a definition at given sizes with concrete inputs, and what a call must produce."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.data.dtypes import FOUR_BITS
from pytest_flashinfer.inputs.dtypes import NOT_TENSORS, torch_dtype
from pytest_flashinfer.inputs.sizes.axes import output_shapes
from pytest_flashinfer.worker.layout import Output
from pytest_flashinfer.worker.memory import DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition, TensorSpec, Workload
    from pytest_flashinfer.inputs.recipe import Recipe

_BYTES = (torch.uint8, torch.int8, torch.float4_e2m1fn_x2)  # that hold codes of 4 bits
_NARROW = tuple(dtype for dtype in DTYPES.values() if dtype.itemsize == 1 and dtype.is_floating_point)  # of one code


@dataclass(frozen=True, eq=False)
class Case:
    """`values` are the inputs in the definition's order: tensors, numbers or `None`.

    `shapes` are the outputs' shapes as they are stored, `()` for a Python scalar. `variant` tells calls on the same
    sizes apart; `moved` asks for storage at other addresses. `bound_of`: a case of the same sizes whose bound will do
    for this one, so that the reference need only be run as it stands. `marked` tells contents apart where others than
    this package made them, who may give other ones for the same recipe.
    """

    definition: Definition
    axes: Mapping[str, int]
    recipe: Recipe
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...] | None]
    variant: str = "first"
    workload: Workload | None = None
    moved: bool = False
    bound_of: Case | None = None
    marked: bytes = b""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what decides inputs and truth: cases of one run with equal keys have equal ones."""
        recipe = json.dumps(self.recipe.to_json(), sort_keys=True)
        uuid = self.workload.uuid if self.workload is not None else None
        reuses = self.bound_of is not None  # the truths differ
        return (self.definition.name, tuple(sorted(self.axes.items())), recipe, uuid, self.variant, self.marked, reuses)

    @property
    def outputs(self) -> list[Output]:
        """Return what a call must produce, in the definition's order."""
        inputs = self.definition.inputs
        return [_output(name, spec, self.shape(name), inputs) for name, spec in self.definition.outputs.items()]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an output as it is stored."""
        shape = self.shapes[name]
        assert shape is not None  # a case is complete before it is called
        return shape

    @property
    def given_nbytes(self) -> int:
        """Return the bytes that the inputs of one call take."""
        return sum(value.nbytes for value in self.values.values() if isinstance(value, torch.Tensor))

    @property
    def nbytes(self) -> int:
        """Return the bytes that the tensors of one call take, inputs and outputs."""
        return self.given_nbytes + sum(math.prod(output.shape) * output.dtype.itemsize for output in self.outputs)

    def with_values(self, values: Mapping[str, Any], variant: str) -> Case:
        """Return a case of the same sizes with other contents."""
        return replace(self, values=values, variant=variant)

    def as_told(
        self, told: Mapping[str, tuple[tuple[int, ...], str] | None], known: Mapping[str, tuple[int, ...] | None]
    ) -> Case:
        """Return the case with shapes, and dtypes that the definition leaves open, as the reference gives them.

        What is `known` stays: there the reference has to agree. An output that it leaves out has no elements.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        outputs: dict[str, TensorSpec] = {}
        for name, spec in self.definition.outputs.items():
            size, dtype = told[name] or ((0,) * len(spec.shape or ()), "float32")
            have = known[name]
            shapes[name] = size if have is None else have
            outputs[name] = replace(spec, dtype=dtype) if spec.dtype in NOT_TENSORS else spec
        definition = self.definition if declared(self.definition) else replace(self.definition, outputs=outputs)
        return replace(self, definition=definition, shapes=shapes)

    def elsewhere(self) -> Case:
        """Return the same case, to be called on storage at other addresses."""
        return replace(self, moved=True)


def shapes_of(definition: Definition, axes: Mapping[str, int]) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of every output as it is stored, `None` where no size decides one of its axes."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for name, shape in output_shapes(definition, axes).items():
        sizes = [size for size in shape or () if size is not None]
        shapes[name] = tuple(sizes) if len(sizes) == len(shape or ()) else None
    return shapes


def declared(definition: Definition) -> bool:
    """Say whether every output has a dtype that a tensor can have."""
    return not any(spec.dtype in NOT_TENSORS for spec in definition.outputs.values())


def _output(name: str, spec: TensorSpec, shape: tuple[int, ...], inputs: Mapping[str, TensorSpec]) -> Output:
    inplace = spec.param if spec.param in inputs else None
    return Output(
        name,
        shape,
        torch_dtype(spec.dtype),
        strides=None if spec.dim_order is None else _strides(shape, spec.dim_order),
        optional=spec.optional or inplace is not None,
        scalar=spec.shape is None,
        also=_BYTES if spec.dtype in FOUR_BITS else _NARROW if spec.dtype == "uint8" else (),
        inplace=inplace,
    )


def _strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor whose axes lie in memory in `order`, the outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
