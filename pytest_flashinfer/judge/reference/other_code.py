"""Code of a definition besides its reference, run in the reference's own worker: `init`, custom inputs and `check`.

Requests, told apart by `do`:

`make`: `what` ("init" or "custom"), `axes`, `seed`, `scalars`. The inputs are made and held here; the reply's `values`
describe them: `{"name", "size", "dtype"}` or a plain value. `unused` are names that are no inputs.
`take`: `slots`, by name: the held tensors are copied into them.
`check`: `pairs` of slots, reference and actual, in the order of the outputs; `settings`. The reply says `passed` and
`why`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_flashinfer.data.model import Definition, TensorSpec
from pytest_flashinfer.data.raised import told
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.inputs.hooks import by_input, call_custom, call_init, load_last
from pytest_flashinfer.judge.reference import default_check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flashinfer.worker.call_request import Slots


class ForeignError(Exception):
    """An error with the kind that the judge tells apart: "inputs", "absent" (a module is) or "reference"."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(message)


class Foreign:
    """The foreign code of one definition. `description` as `describe` makes it."""

    def __init__(self, description: Mapping[str, Any], device: str) -> None:
        inputs = {
            name: TensorSpec(None if shape is None else tuple(shape), dtype, param=param)
            for name, shape, dtype, param in description["inputs"]
        }
        self.definition = Definition(
            description["name"], "", {}, inputs, {}, description["reference"], init=description["init"],
            check=description["check"], custom_inputs=description["custom_inputs"],
        )  # fmt: skip
        self.device = device
        self.held: dict[str, torch.Tensor] = {}
        self._check: Callable[..., Any] | None = None

    def make(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make inputs and hold them. Raises ForeignError where the code fails, or makes no such inputs."""
        axes = dict(request["axes"])
        try:
            with torch.no_grad():
                made = self._make(request["what"], axes, request)
        except InputsError as error:
            raise ForeignError(_kind(error, "inputs"), str(error)) from error
        found = by_input(self.definition, made)
        self.held = {name: value.detach() for name, value in found.items() if isinstance(value, torch.Tensor)}
        values = [self._described(name, value) for name, value in found.items()]
        return {"values": values, "unused": [str(name) for name in made if name not in found]}

    def _make(self, what: str, axes: dict[str, int], request: Mapping[str, Any]) -> dict[str, Any]:
        if what == "init":
            return call_init(self.definition, axes, device=self.device, seed=request["seed"])
        torch.manual_seed(request["seed"])
        return call_custom(self.definition, {**axes, **request["scalars"]}, device=self.device)

    def _described(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                raise ForeignError("inputs", f"input {name} is made with layout {value.layout}, not a plain tensor")
            return {"name": name, "size": list(value.shape), "dtype": str(value.dtype)}
        if isinstance(value, float):
            return {"name": name, "float": value.hex()}
        if value is None or isinstance(value, (bool, int, str)):
            return {"name": name, "value": value}
        raise ForeignError("inputs", f"input {name} is made as a {type(value).__name__}, not a tensor or a plain value")

    def take(self, request: Mapping[str, Any], memory: Slots) -> dict[str, Any]:
        """Copy the held tensors to where the judge wants them, and let go of them."""
        for slot in request["slots"]:
            memory.tensor(slot).copy_(self.held[slot["name"]])
        self.held = {}
        return {}

    def check(self, request: Mapping[str, Any], memory: Slots) -> dict[str, Any]:
        """Ask the definition's own check."""
        pairs = [[None if slot is None else memory.tensor(slot) for slot in pair] for pair in request["pairs"]]
        reference, actual = ([pair[side] for pair in pairs] for side in (0, 1))
        with default_check.provided(), torch.no_grad():
            check = self._loaded()
            settings = default_check.settings(check, request["settings"])
            try:
                passed, why = bool(check(_packed(reference), _packed(actual), **settings)), ""
            except Exception as error:  # noqa: BLE001 - foreign code may raise anything; whose fault it is shows next
                passed, why = False, told(error)
                _accuse(check, _packed(reference), settings, why)
        return {"passed": passed, "why": why.splitlines()[0] if why else ""}

    def _loaded(self) -> Callable[..., Any]:
        if self._check is None:
            try:
                self._check = load_last(self.definition, self.definition.check or "", "check")
            except InputsError as error:
                raise ForeignError(_kind(error, "reference"), str(error)) from error
        return self._check


def _kind(error: InputsError, usual: str) -> str:
    return "absent" if isinstance(error.__cause__, ModuleNotFoundError) else usual


def _accuse(check: Callable[..., Any], reference: Any, settings: dict[str, Any], why: str) -> None:
    """Blame the check where it raises for the reference's own outputs as well."""
    try:
        check(reference, reference, **settings)
    except Exception as error:
        raise ForeignError("reference", f"the definition's check raised {why}") from error


def _packed(values: list[Any]) -> Any:
    """Give outputs in the form in which functions return them: one, or a tuple."""
    return values[0] if len(values) == 1 else tuple(values)
