"""Call a reference natively or wide, and give its results their names."""

from __future__ import annotations

import linecache
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_flashinfer.data.dtypes import PAIRS
from pytest_flashinfer.data.raised import told
from pytest_flashinfer.judge.floats import canonical, is_packed
from pytest_flashinfer.judge.oracle.lifted import Lifted, tag
from pytest_flashinfer.judge.oracle.wide import WideMode, run_wide

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pytest_flashinfer.judge.oracle.truth import OutputSpec

MODULE = "reference"  # the name under which a definition's reference is run
_OF_PAIRS = torch.float4_e2m1fn_x2  # in which torch computes nothing
_SHOWN = 120  # characters of a line
Style = Literal["return", "destination"]
Results = dict[str, "torch.Tensor | None"]


class InvalidReferenceError(Exception):
    """The reference raised, or did not return what its definition says."""


class MutatesInputsError(InvalidReferenceError):
    """The reference writes into inputs that it was not given copies of: they are not as they were."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"the reference writes into its inputs: {', '.join(names)}")


def described(error: BaseException) -> str:
    """Return an exception in one line, with the innermost line of the reference's source that it passed through."""
    text = told(error)
    frames = [each for each in traceback.walk_tb(error.__traceback__) if each[0].f_globals.get("__name__") == MODULE]
    if not frames:
        return text
    frame, line = frames[-1]
    source = linecache.getline(frame.f_code.co_filename, line).strip()
    return f"{text}, at line {line} of the reference" + (f": {source[:_SHOWN]}" if source else "")


def storage(spec: OutputSpec) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of the tensor that holds an output: bytes of packed dtypes, the last axis halved.

    The shape of a dtype of pairs counts those.
    """
    shape = spec.shape or ()
    if is_packed(spec.dtype):
        halved = (*shape[:-1], (shape[-1] + 1) // 2) if shape and spec.dtype != PAIRS else shape
        return halved, torch.uint8
    return shape, getattr(torch, canonical(spec.dtype))


@dataclass(slots=True)
class Reference:
    """A reference with one set of inputs (tensors, numbers, `None`; in the order of its parameters).

    Each run has a copy of those that are `mutated`, as of those that an output is written back into. Of `pairs` of
    4-bit floats `inputs` has the bytes: torch computes with nothing else of them.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, OutputSpec]
    style: Style = "return"
    seed: int = 0
    mutated: Collection[str] = ()
    pairs: Collection[str] = ()

    def __post_init__(self) -> None:
        """Have the bytes of pairs in place of them."""
        found = {n: x for n, x in self.inputs.items() if isinstance(x, torch.Tensor) and x.dtype is _OF_PAIRS}
        self.pairs = {*self.pairs, *found}
        self.inputs = {**self.inputs, **{name: x.view(torch.uint8) for name, x in found.items()}}

    @property
    def device(self) -> torch.device:
        """The device of the first tensor."""
        return next((x.device for x in self.inputs.values() if isinstance(x, torch.Tensor)), torch.device("cpu"))

    def native(self, mode: AbstractContextManager[Any] | None = None) -> Results:
        """Run as written, under `mode` if there is one; outputs in their declared dtypes and storage shapes."""
        return {name: self._declare(name, value) for name, value in self.raw(mode).items()}

    def raw(self, mode: AbstractContextManager[Any] | None = None) -> Results:
        """Run as written; outputs as the reference gives them. Raises InvalidReferenceError and MutatesInputsError."""
        versions = {name: x._version for name, x in self.inputs.items() if isinstance(x, torch.Tensor)}  # noqa: SLF001
        try:
            with torch.no_grad(), mode or nullcontext():
                results = self._call({**self.inputs, **{n: self.inputs[n].view(_OF_PAIRS) for n in self.pairs}})
        except InvalidReferenceError:
            raise
        except Exception as error:
            raise InvalidReferenceError(f"the reference raised {described(error)}") from error
        changed = [name for name, version in versions.items() if self.inputs[name]._version != version]  # noqa: SLF001
        if changed:
            raise MutatesInputsError(changed)
        return results

    def widen(self, wide: torch.dtype) -> dict[str, Any]:
        """Return the inputs with every floating tensor lifted to `wide`."""
        lifted: dict[str, Any] = {}
        for name, value in self.inputs.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                lifted[name] = tag(value.to(wide), value.dtype, origin=True, clean=True)
            else:
                lifted[name] = value
        return lifted

    def under(self, mode: WideMode, lifted: Mapping[str, Any]) -> Results:
        """Run wide under a dispatch mode; `LiftError` where that is impossible."""
        results: Results = run_wide(mode, lambda: self._call(lifted))
        return {name: None if x is None else self._plain(name, x) for name, x in results.items()}

    def _plain(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return what a wide run gave for an output without what the run noted about it."""
        if not isinstance(value, Lifted):
            plain = value.as_subclass(torch.Tensor)
            return plain.view(torch.uint8) if plain.dtype is _OF_PAIRS else plain
        wide, given = value.as_subclass(torch.Tensor), value.declared
        return wide.to(given).view(torch.uint8) if self._are_codes(name, given) else wide.clone()

    def _are_codes(self, name: str, given: torch.dtype) -> bool:
        """Whether an output is declared as the bytes of the narrow floats that the reference gives."""
        if given is _OF_PAIRS:
            return storage(self.outputs[name])[1] is torch.uint8
        return canonical(self.outputs[name].dtype) == "uint8" and given.itemsize == 1 and given.is_floating_point

    def _call(self, inputs: Mapping[str, Any]) -> Results:
        _seed(self.device, self.seed)
        given = dict(inputs)
        written = [spec.param for spec in self.outputs.values() if spec.param]
        for name in dict.fromkeys((*written, *self.mutated)):
            if isinstance(given.get(name), torch.Tensor):
                given[name] = _copy(given[name])
        if self.style == "destination":
            made: Results = {}
            for name, spec in self.outputs.items():
                shape, dtype = storage(spec)
                dtype = _OF_PAIRS if spec.dtype == PAIRS else dtype
                made[name] = given[spec.param] if spec.param else torch.zeros(shape, dtype=dtype, device=self.device)
            fresh = [x for name, x in made.items() if not self.outputs[name].param]
            self.function(*given.values(), *fresh)
            return made
        return name_results(self.function(*given.values()), self.outputs, given, self.device)

    def _declare(self, name: str, value: torch.Tensor | None) -> torch.Tensor | None:
        spec = self.outputs[name]
        if value is None:
            return None
        shape, dtype = storage(spec)
        if spec.shape is not None and tuple(value.shape) != shape:
            given = f"{name} as {list(value.shape)}, declared {list(shape)}"
            advice = "correct one of them; state no size that only the result decides"
            raise InvalidReferenceError(f"the reference gives {given}: {advice}")
        if self._are_codes(name, value.dtype):
            return value.view(torch.uint8)
        if value.dim() and _is_real(value.dtype) != _is_real(dtype):  # a Python number is either
            given, declared = (str(each).removeprefix("torch.") for each in (value.dtype, dtype))
            raise InvalidReferenceError(f"the reference gives {name} in {given}, declared {declared}")
        return value if value.dtype == dtype else value.to(dtype)


def _is_real(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _seed(device: torch.device, seed: int) -> None:
    """Seed the default generators that the reference may draw from (`torch.manual_seed` is slow without a card)."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, Lifted):
        return tag(torch.Tensor.clone(tensor), tensor.declared, origin=tensor.origin, clean=tensor.clean)
    return tensor.clone()


def name_results(
    result: Any, outputs: Mapping[str, OutputSpec], inputs: Mapping[str, Any], device: torch.device
) -> Results:
    """Assign what a reference returned to output names: one value, a sequence in order, or a dict by name.

    Outputs written in place (`param`) may be missing from the result; their values are read from the inputs. Raises
    InvalidReferenceError where names and values do not match.
    """
    in_place = {name: inputs[spec.param] for name, spec in outputs.items() if spec.param and spec.param in inputs}
    if isinstance(result, dict):
        found = {name: result[name] for name in outputs if name in result}
    else:
        values = list(result) if isinstance(result, (tuple, list)) else [] if result is None else [result]
        names = list(outputs)
        if len(values) == len(names) - len(in_place):
            names = [name for name in names if name not in in_place]
        if len(values) > len(names):
            raise InvalidReferenceError(f"the reference returns {len(values)} values for {len(names)} outputs")
        found = dict(zip(names, values, strict=False))
    named: Results = {}
    for name, spec in outputs.items():
        value = found.get(name, in_place.get(name))
        if value is None and not spec.optional:
            raise InvalidReferenceError(f"the reference returns no {name}; the outputs are {', '.join(outputs)}")
        if value is not None and not isinstance(value, torch.Tensor):
            integral = isinstance(value, (bool, int))
            value = torch.tensor(value, dtype=torch.int64 if integral else torch.float64, device=device)
        named[name] = value
    return named
