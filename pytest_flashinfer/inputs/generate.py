"""Inputs of one call: tensors and scalars that satisfy the contract, made on the device that will use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pytest_flashinfer.data.constraints import told_values
from pytest_flashinfer.data.vocabulary import NoTruthError
from pytest_flashinfer.inputs import layout
from pytest_flashinfer.inputs.constraints.facts import failing
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.draft import Draft, Inputs, env_of, fills_floats, float_of
from pytest_flashinfer.inputs.dtypes import as_numbers, is_float, torch_dtype
from pytest_flashinfer.inputs.errors import AxisConflict, BadData, Unsatisfiable
from pytest_flashinfer.inputs.floats.values import Source, family_of
from pytest_flashinfer.inputs.integers.structure import index_tensors, setting_for
from pytest_flashinfer.inputs.load import load_tensor
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.repair.checks import mend, repaired, tame
from pytest_flashinfer.inputs.scalars import choice, usual_values
from pytest_flashinfer.inputs.scalars.agreement import agreed
from pytest_flashinfer.inputs.seeds import way_of
from pytest_flashinfer.inputs.sizes.axes import solve, verify
from pytest_flashinfer.inputs.stale import overwritten, poison

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flashinfer.data.model import Definition, Workload
    from pytest_flashinfer.inputs.constraints.facts import Rule
    from pytest_flashinfer.inputs.recipe import Recipe

DESCRIPTION: Final = 2  # the form whose scalars come as numbers and as 0-d tensors


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
    draft = Draft(contract, plan_of(contract), recipe, torch.device(device))
    draft.fixed.update(_from_workload(definition, workload, root, draft.device) if workload else {})
    draft.fixed.update(given or {})
    draft.stated = frozenset(workload.inputs) if workload else frozenset()
    draft.env.update(solve(contract, {**_bound(draft), **axes}))
    verify(contract, draft.env)
    for name, spec in definition.inputs.items():
        if name not in draft.fixed and spec.optional and _left_out(draft, name, workload):
            draft.fixed[name] = None
        elif name in draft.fixed and isinstance(draft.fixed[name], torch.Tensor):
            _check_shape(draft, name, workload)
    draft.env.update({n: v for n, v in draft.fixed.items() if isinstance(v, int | float | str)})
    wishes = {n: v for n, v in recipe.scalars.items() if n in definition.inputs and n not in draft.fixed}
    draft.env.update(choice.wished(contract, wishes, draft.env))
    draft.env.update(agreed(contract, draft.env, recipe.seed))
    _make(draft)
    tame(draft)
    mend(draft)
    _check(draft)
    _lay_out(draft)
    return {name: draft.made[name] for name in definition.inputs}


def _left_out(draft: Draft, name: str, workload: Workload | None) -> bool:
    if workload is not None:
        return name not in workload.inputs
    return name in draft.contract.scratch or (name in draft.recipe.absent and not _maps_rows(draft, name))


def _maps_rows(draft: Draft, name: str) -> bool:
    """Whether rows need to be told their sequence: there are more or fewer of them than rows of a table."""
    if name not in draft.plan.roles or draft.plan.roles[name].kind != "batch_ids":
        return False
    return any(draft.shape(table)[0] != draft.shape(name)[0] for table in draft.plan.of("page_table"))


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


def _bound(draft: Draft) -> dict[str, int]:
    """Return the sizes that the shapes of fixed tensors show."""
    sizes: dict[str, int] = {}
    for name, value in draft.fixed.items():
        spec = draft.definition.inputs.get(name)
        if isinstance(value, torch.Tensor) and spec is not None and spec.shape is not None:
            pairs = zip(spec.shape, value.shape, strict=False)
            sizes.update({axis: n for axis, n in pairs if axis in draft.contract.axis_names and axis not in sizes})
    return sizes


def _check_shape(draft: Draft, name: str, workload: Workload | None) -> None:
    want, have = draft.shape(name), tuple(draft.fixed[name].shape)
    if want != have:
        source = workload.inputs.get(name) if workload is not None else None
        holder = "the definition's own code makes it"
        if source is not None and source.kind == "safetensors":
            holder = f"{source.path} holds {source.tensor_key!r} as"
        elif source is not None and source.kind == "scalar":
            holder = "the workload gives one number, which is"
        raise BadData(f"input `{name}`: {holder} {list(have)}, the axes make it {list(want)}; correct one of the two")


def _make(draft: Draft) -> None:
    """Fill in `made`: index tensors first, for the rest depends on them, then scalars, then floats."""
    made, plan = draft.made, draft.plan
    made.update(draft.fixed)
    todo = [name for name, dims in draft.contract.dims.items() if name not in made and dims]
    indexed = [name for name in todo if name in plan.roles and not fills_floats(draft, name)]
    given = {n: v for n, v in made.items() if isinstance(v, torch.Tensor)}
    setting = setting_for(draft.contract, plan, draft.env, draft.recipe, given)
    made.update(index_tensors(setting, indexed, draft.device))
    usual_values.tied_scalars(draft.contract, env_of(draft))
    as_numbers = draft.definition.form == DESCRIPTION and way_of(draft.recipe.seed, "as numbers", 2) == 1
    for name, dims in draft.contract.dims.items():
        if name in made or dims:
            continue
        value = draft.env[name] = choice.drawn(draft.contract, name, draft.env)
        number = dims is None or value is None or (as_numbers and name not in draft.stated)
        made[name] = value if number else _zero_dim(draft, name, value)
    source = Source(draft.recipe.seed, draft.device)
    for name in todo:
        if name not in made:
            made[name] = float_of(draft, name, source, family_of(name, draft.recipe.family, draft.contract, plan))
    theirs = draft.fixed.keys() & overwritten(draft.contract, plan)
    mine = {name: value for name, value in made.items() if name not in theirs}
    poison(draft.contract, plan, mine, draft.recipe)


def _zero_dim(draft: Draft, name: str, value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch_dtype(draft.contract.dtype(name)), device=draft.device)


def _check(draft: Draft) -> None:
    """Evaluate the constraints on data and scalars. Raises AxisConflict where they are stated, else Unsatisfiable."""
    reading, env = draft.contract.reading, env_of(draft)
    drawn = {name for name, dims in draft.contract.dims.items() if not dims and name not in draft.fixed}
    rules = (*reading.data, *reading.scalar, *(rule for rule in reading.axis if rule.names & drawn))
    specs = draft.definition.inputs.items()
    floats = {name: spec.dtype for name, spec in specs if isinstance(draft.fixed.get(name), float)}
    broken = failing(rules, env, floats)
    last = draft.plan.last_page
    if broken and last and last not in draft.fixed and any(last in rule.names for rule in broken):
        lengths = draft.made[last]
        lengths.copy_(as_numbers(lengths).clamp(min=1))  # this contract gives empty sequences a length of 1
        broken = failing(rules, env_of(draft), floats)
    if broken and repaired(draft):
        broken = failing(rules, env_of(draft), floats)
    if broken and tame(draft, whole=True):
        mend(draft)
        broken = failing(rules, env_of(draft), floats)
    for rule in broken:
        stored = rule.names & draft.fixed.keys()
        if stored:
            data = f"the data of {', '.join(sorted(stored))}"
            raise AxisConflict(rule.text, told_values(rule.tree, env) if rule in reading.scalar else data)
        raise Unsatisfiable(rule.text, *_why(rule, env))


def _why(rule: Rule, env: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a constraint does not hold, and what to do about it where that is not to supply the inputs."""
    try:
        rule.holds(env)
    except NoTruthError as error:
        return str(error), "correct the constraint"
    return "no rule for this constraint made data that satisfies it", ""


def _lay_out(draft: Draft) -> None:
    """Give generated tensors their declared order in memory, or rows with gaps between them; caches have equal ones."""
    for number, (name, spec) in enumerate(draft.definition.inputs.items()):
        value = draft.made[name]
        if not isinstance(value, torch.Tensor) or name in draft.fixed:
            continue
        if spec.dim_order is not None:
            draft.made[name] = layout.ordered(value, spec.dim_order)
        elif draft.recipe.layout == "strided":
            draft.made[name] = layout.strided(value, 0 if name in draft.plan.caches else number)
