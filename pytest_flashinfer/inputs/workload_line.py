"""The workload line by which a drawn case is kept."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.inputs.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flashinfer.data.model import Definition


def workload_line(definition: Definition, axes: Mapping[str, int], recipe: Recipe, values: Mapping[str, Any]) -> str:
    """Return the line that replays a drawn case: its recipe makes the same inputs again. One case has one line."""
    free = definition.axes.keys() - definition.const_axes.keys()
    sizes = {name: axes[name] for name in definition.axes if name in free and name in axes}
    record = recipe.to_json()
    name = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([definition.name, sizes, record], sort_keys=True))
    inputs = {key: _descriptor(values.get(key)) for key in definition.inputs if key not in recipe.absent}
    workload = {"uuid": str(name), "axes": sizes, "inputs": inputs, "recipe": record}
    return json.dumps({"definition": definition.name, "solution": None, "workload": workload, "evaluation": None})


def but_for_the_seed(line: bytes) -> object:
    """Return what two lines have in common that differ in the seed of their recipes only; of another line itself."""
    if b'"recipe"' not in line:  # not worth reading: most lines are of no drawn case
        return line
    try:
        record = json.loads(line)
        workload = record["workload"]
        return record.get("definition"), workload["axes"], replace(Recipe.from_json(workload["recipe"]), seed=0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return line


def _descriptor(value: Any) -> dict[str, Any]:
    return {"type": "scalar", "value": value} if isinstance(value, (bool, int, float, str)) else {"type": "random"}
