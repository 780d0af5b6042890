# ruff: noqa: TRY004 - a bad recipe is one kind of error, whichever value is wrong
"""A recipe says, in a few words and a seed, how the inputs of a workload were made, so that a failure replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from pytest_flashinfer.inputs.floats.families import FAMILIES
from pytest_flashinfer.inputs.integers.structure import STRUCTURES
from pytest_flashinfer.inputs.seeds import SEEDS, derived

Layout = Literal["contiguous", "strided"]
Scalar = float | int | bool | str
_SHORT = 1 << 32
LAYOUTS: tuple[Layout, ...] = ("contiguous", "strided")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make inputs: the same definition, axes, recipe and device give the same bits.

    `family` names the float values, `structure` the index tensors, `absent` the optional inputs that are left out,
    `layout` the strides; `scalars` are the scalar inputs that do not take their usual value.
    """

    seed: int
    family: str = "normal"
    structure: str = "mixed"
    absent: frozenset[str] = frozenset()
    layout: Layout = "contiguous"
    scalars: Mapping[str, Scalar] = field(default_factory=dict)

    def with_seed_after(self, more: int) -> Recipe:
        """Return the recipe of other values of the same kind: its seed is `more` further on."""
        return replace(self, seed=(self.seed + more) % SEEDS)

    @property
    def short_seed(self) -> int:
        """The seed for code that may take 32 bits only, as NumPy's generators did; of a longer one all bits count."""
        return self.seed if 0 <= self.seed < _SHORT else derived(self.seed, "short") % _SHORT

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; what has its default value is left out, so that the line stays readable."""
        record: dict[str, Any] = {"seed": self.seed, "family": self.family, "structure": self.structure}
        if self.absent:
            record["absent"] = sorted(self.absent)
        if self.layout != "contiguous":
            record["layout"] = self.layout
        if self.scalars:
            record["scalars"] = dict(self.scalars)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Recipe:
        """Read what `Recipe.to_json` wrote; a scalar that is null has its usual value.

        Raises ValueError, naming the key, where a value is not of its type or a name is of nothing that there is.
        """
        if not isinstance(record, Mapping):
            raise ValueError(f"recipe: must be an object, got {record!r}")
        unknown = set(record) - {"seed", "family", "structure", "absent", "layout", "scalars"}
        if unknown:
            raise ValueError(f"recipe: unknown key {min(unknown)!r}")
        seed, layout = record.get("seed"), record.get("layout", "contiguous")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ValueError(f"recipe: `seed` must be an integer, got {seed!r}")
        family, structure = record.get("family", "normal"), record.get("structure", "mixed")
        for key, value, names in (
            ("layout", layout, LAYOUTS), ("family", family, tuple(FAMILIES)), ("structure", structure, STRUCTURES),
        ):  # fmt: skip
            if value not in names:
                raise ValueError(f"recipe: `{key}` must be one of {', '.join(names)}, got {value!r}")
        absent, scalars = record.get("absent", []), record.get("scalars", {})
        if not isinstance(absent, list) or not all(isinstance(name, str) for name in absent):
            raise ValueError(f"recipe: `absent` must be a list of input names, got {absent!r}")
        if not isinstance(scalars, Mapping):
            raise ValueError(f"recipe: `scalars` must be an object, got {scalars!r}")
        stated = {name: value for name, value in scalars.items() if value is not None}
        for name, value in stated.items():
            if not isinstance(value, bool | int | float | str):
                raise ValueError(f"recipe: `scalars.{name}` must be a number, a string or a boolean, got {value!r}")
        return cls(seed, family, structure, frozenset(absent), cast("Layout", layout), stated)
