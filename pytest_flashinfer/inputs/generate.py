"""Inputs of one call: tensors and scalars that satisfy the contract, made on the device that will use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import told_values
from pytest_flashinfer.inputs import choice, elements, layout, repair, scalars
from pytest_flashinfer.inputs.arranged import arrange
from pytest_flashinfer.inputs.at_bounds import touch
from pytest_flashinfer.inputs.axes import shape_of, solve, verify
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import as_numbers, is_float, storage_shape, torch_dtype
from pytest_flashinfer.inputs.errors import AxisConflict, BadData, UnknownDtype, Unsatisfiable
from pytest_flashinfer.inputs.facts import failing
from pytest_flashinfer.inputs.families import SPECIAL
from pytest_flashinfer.inputs.limits import readable
from pytest_flashinfer.inputs.load import load_tensor
from pytest_flashinfer.inputs.plan import Plan, plan_of
from pytest_flashinfer.inputs.stale import overwritten, poison
from pytest_flashinfer.inputs.structure import index_tensors, setting_for
from pytest_flashinfer.inputs.values import Source, Want, family_of, float_tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.recipe import Recipe

DESCRIPTION: Final = 2  # the form whose scalars come as numbers and as 0-d tensors
Inputs = dict[str, Any]  # Tensor, int, float, bool, str or None, in the order of the definition


@dataclass(slots=True)
class _Making:
    """Inputs in the making: `fixed` came from outside, `env` knows all sizes and scalars, `made` is the result."""

    contract: Contract
    plan: Plan
    recipe: Recipe
    device: torch.device
    fixed: Inputs = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    made: Inputs = field(default_factory=dict)
    stated: frozenset[str] = frozenset()  # the inputs that a workload has an entry for

    @property
    def definition(self) -> Definition:
        return self.contract.definition

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape in which an input is stored. Raises Unsatisfiable where an axis has no size."""
        shape = shape_of(self.contract.dims[name] or (), self.env)
        if None in shape:
            axis = self.definition.inputs[name].shape or ()
            raise Unsatisfiable(f"shape of {name}", f"no size for {axis[shape.index(None)]}")
        return storage_shape([n for n in shape if n is not None], self.contract.dtype(name))


def make_inputs(  # noqa: PLR0913 - a case in all its parts
    definition: Definition, axes: Mapping[str, int], recipe: Recipe, *, device: str | torch.device = "cpu",
    workload: Workload | None = None, root: Path | None = None, given: Mapping[str, Any] | None = None,
) -> Inputs:  # fmt: skip
    """Return all inputs, in the order of the definition; what is optional and left out is `None`.

    What `given` (an override) or the workload states is taken as it is, stored tensors from below `root`; the rest
    is generated to agree with it. The same arguments give the same bits on the same kind of device.
    Raises AxisConflict where sizes or stored data contradict the contract, Unsatisfiable where no rule helps, and
    BadData where stored data is missing or what is there is of another shape or dtype.
    """
    contract = contract_of(definition)
    making = _Making(contract, plan_of(contract), recipe, torch.device(device))
    making.fixed.update(_from_workload(definition, workload, root, making.device) if workload else {})
    making.fixed.update(given or {})
    making.stated = frozenset(workload.inputs) if workload else frozenset()
    making.env.update(solve(contract, {**_bound(making), **axes}))
    verify(contract, making.env)
    for name, spec in definition.inputs.items():
        if name not in making.fixed and spec.optional and _left_out(making, name, workload):
            making.fixed[name] = None
        elif name in making.fixed and isinstance(making.fixed[name], torch.Tensor):
            _check_shape(making, name, workload)
    making.env.update({n: v for n, v in making.fixed.items() if isinstance(v, int | float | str)})
    wishes = {n: v for n, v in recipe.scalars.items() if n in definition.inputs and n not in making.fixed}
    making.env.update(choice.wished(contract, wishes, making.env))
    _make(making)
    _tame(making)
    _mend(making)
    _check(making)
    _lay_out(making)
    return {name: making.made[name] for name in definition.inputs}


def _left_out(making: _Making, name: str, workload: Workload | None) -> bool:
    if workload is not None:
        return name not in workload.inputs
    return name in making.contract.scratch or (name in making.recipe.absent and not _maps_rows(making, name))


def _maps_rows(making: _Making, name: str) -> bool:
    """Whether rows need to be told their sequence: there are more or fewer of them than rows of a table."""
    if name not in making.plan.roles or making.plan.roles[name].kind != "batch_ids":
        return False
    return any(making.shape(table)[0] != making.shape(name)[0] for table in making.plan.of("page_table"))


def _from_workload(definition: Definition, workload: Workload, root: Path | None, device: torch.device) -> Inputs:
    """Return the inputs that a workload fixes: scalars, stored tensors, and `None` for what it leaves out."""
    fixed: Inputs = {}
    for name, spec in definition.inputs.items():
        source = workload.inputs.get(name)
        if source is None and not spec.optional:
            raise BadData(f"workload {workload.uuid} has no entry for input `{name}`; add one, or declare it optional")
        if source is not None and source.kind == "scalar":
            as_number = definition.form == DESCRIPTION  # where a scalar is shape [], a number is one as well
            fixed[name] = _scalar(source.value, spec.dtype, None if as_number else spec.shape, device)
        elif source is not None and source.kind == "safetensors":
            stored = load_tensor(source, definition, name, workload.axes, root)
            fixed[name] = stored.to(device) if isinstance(stored, torch.Tensor) else stored
    return fixed


def _scalar(value: Any, dtype: str, shape: tuple[str, ...] | None, device: torch.device) -> Any:
    if shape is not None and value is not None:
        return torch.tensor(value, dtype=torch_dtype(dtype), device=device)
    return float(value) if is_float(dtype) and isinstance(value, int) and not isinstance(value, bool) else value


def _bound(making: _Making) -> dict[str, int]:
    """Return the sizes that the shapes of fixed tensors show."""
    sizes: dict[str, int] = {}
    for name, value in making.fixed.items():
        spec = making.definition.inputs.get(name)
        if isinstance(value, torch.Tensor) and spec is not None and spec.shape is not None:
            pairs = zip(spec.shape, value.shape, strict=False)
            sizes.update({axis: n for axis, n in pairs if axis in making.contract.axis_names and axis not in sizes})
    return sizes


def _check_shape(making: _Making, name: str, workload: Workload | None) -> None:
    want, have = making.shape(name), tuple(making.fixed[name].shape)
    if want != have:
        source = workload.inputs.get(name) if workload is not None else None
        holder = "the definition's own code makes it"
        if source is not None and source.kind == "safetensors":
            holder = f"{source.path} holds {source.tensor_key!r} as"
        elif source is not None and source.kind == "scalar":
            holder = "the workload gives one number, which is"
        raise BadData(f"input `{name}`: {holder} {list(have)}, the axes make it {list(want)}; correct one of the two")


def _make(making: _Making) -> None:
    """Fill in `made`: index tensors first, for the rest depends on them, then scalars, then floats."""
    made, plan = making.made, making.plan
    made.update(making.fixed)
    todo = [name for name, dims in making.contract.dims.items() if name not in made and dims]
    indexed = [name for name in todo if name in plan.roles and not _fills_floats(making, name)]
    given = {n: v for n, v in made.items() if isinstance(v, torch.Tensor)}
    setting = setting_for(making.contract, plan, making.env, making.recipe, given)
    made.update(index_tensors(setting, indexed, making.device))
    scalars.tied_scalars(making.contract, _env(making))
    as_numbers = making.definition.form == DESCRIPTION and making.recipe.seed % 2 == 1
    for name, dims in making.contract.dims.items():
        if name in made or dims:
            continue
        value = making.env[name] = choice.drawn(making.contract, name, making.env)
        number = dims is None or value is None or (as_numbers and name not in making.stated)
        made[name] = value if number else _zero_dim(making, name, value)
    source = Source(making.recipe.seed, making.device)
    for name in todo:
        if name not in made:
            made[name] = _float(making, name, source, family_of(name, making.recipe.family, making.contract, plan))
    theirs = making.fixed.keys() & overwritten(making.contract, plan)
    mine = {name: value for name, value in made.items() if name not in theirs}
    poison(making.contract, plan, mine, making.recipe)


def _fills_floats(making: _Making, name: str) -> bool:
    return is_float(making.contract.dtype(name))


def _float(making: _Making, name: str, source: Source, family: str) -> torch.Tensor:
    spec = making.definition.inputs[name]
    if name not in making.plan.roles:
        raise UnknownDtype(f"input `{name}` has dtype `{spec.dtype}`, which is none of a tensor's")
    role = making.plan.roles[name]
    fan_in = shape_of((role.axis,), making.env)[0] if role.axis is not None else None
    want = Want(name, role.kind, making.shape(name), torch_dtype(making.contract.dtype(name)), fan_in, role.base)
    return float_tensor(want, family, source)


def _zero_dim(making: _Making, name: str, value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch_dtype(making.contract.dtype(name)), device=making.device)


def _env(making: _Making) -> dict[str, Any]:
    """Return what constraints are evaluated on: sizes, scalars and tensors."""
    making.env.update(readable(making.made))
    return making.env


def _tame(making: _Making) -> None:
    """Make inputs anew that constraints forbid to hold NaN or infinities."""
    if making.recipe.family not in SPECIAL:
        return
    env, source = _env(making), Source(making.recipe.seed, making.device)
    broken = [rule for rule in making.contract.reading.data if rule.fails(env)]
    for name in frozenset().union(*(rule.names for rule in broken)) & making.plan.roles.keys() - making.fixed.keys():
        if _fills_floats(making, name) and name in making.made:
            making.made[name] = _float(making, name, source, "normal")


def _mend(making: _Making) -> None:
    """Put elements right that are beyond what constraints allow, of what was drawn."""
    env, drawn = _env(making), making.made.keys() - making.fixed.keys()
    for name in elements.mend(making.contract, making.plan, env, drawn):
        making.made[name].copy_(env[name])
    for name in arrange(making.contract, making.plan, env, drawn, making.recipe.seed):
        making.made[name].copy_(env[name])
    touch(making.contract, making.plan, making.made, drawn, making.recipe)
    _repair(making, drawn)


def _repair(making: _Making, drawn: Collection[str]) -> None:
    """Make integers what constraints ask for that no rule knows; what was poisoned for other ones is made anew."""
    env = _env(making)
    if not any(rule.fails(env) for rule in making.contract.reading.data):
        return
    changed = repair.mend(making.contract, making.plan, env, drawn, making.recipe.seed)
    for name in changed:
        making.made[name].copy_(env[name])
    source = Source(making.recipe.seed, making.device)
    for name in drawn if changed else ():
        value = making.made[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            making.made[name] = _float(making, name, source, "normal")


def _check(making: _Making) -> None:
    """Evaluate the constraints on data and scalars. Raises AxisConflict where they are stated, else Unsatisfiable."""
    reading, env = making.contract.reading, _env(making)
    drawn = {name for name, dims in making.contract.dims.items() if not dims and name not in making.fixed}
    rules = (*reading.data, *reading.scalar, *(rule for rule in reading.axis if rule.names & drawn))
    specs = making.definition.inputs.items()
    floats = {name: spec.dtype for name, spec in specs if isinstance(making.fixed.get(name), float)}
    broken = failing(rules, env, floats)
    last = making.plan.last_page
    if broken and last and last not in making.fixed and any(last in rule.names for rule in broken):
        lengths = making.made[last]
        lengths.copy_(as_numbers(lengths).clamp(min=1))  # this contract gives empty sequences a length of 1
        broken = failing(rules, _env(making), floats)
    for rule in broken:
        stored = rule.names & making.fixed.keys()
        if stored:
            data = f"the data of {', '.join(sorted(stored))}"
            raise AxisConflict(rule.text, told_values(rule.tree, env) if rule in reading.scalar else data)
        raise Unsatisfiable(rule.text, "no rule for this constraint made data that satisfies it")


def _lay_out(making: _Making) -> None:
    """Give generated tensors their declared order in memory, or rows with gaps between them; caches have equal ones."""
    for number, (name, spec) in enumerate(making.definition.inputs.items()):
        value = making.made[name]
        if not isinstance(value, torch.Tensor) or name in making.fixed:
            continue
        if spec.dim_order is not None:
            making.made[name] = layout.ordered(value, spec.dim_order)
        elif making.recipe.layout == "strided":
            making.made[name] = layout.strided(value, 0 if name in making.plan.caches else number)
