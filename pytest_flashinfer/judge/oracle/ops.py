"""What each ATen operation does to rounding errors: the vocabulary that `lift` and `noise` share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch


class Kind(enum.Enum):
    """How an operation rounds."""

    MOVE = "moves or selects values: exact"
    ELEMENT = "one rounding per element"
    CONTRACT = "sums of products: rounds relative to the product of the magnitudes"
    SUM = "sums: rounds relative to the sum of the magnitudes"
    LOGSUM = "logarithm of a sum: rounds relative to its largest term"
    SMOOTH = "anything else: its inputs and its result are uncertain"
    ROUND = "rounds to integers: near a boundary it may go either way"
    SELECT = "orders values: equal or nearly equal ones may change places"
    COMPARE = "compares values: certain about those that no rounding has touched, as a threshold taken from them is"


_NAMES = {
    Kind.MOVE: """view reshape _reshape_alias _unsafe_view expand permute transpose t slice select unsqueeze squeeze
    as_strided _unsafe_index
        split split_with_sizes unbind chunk cat stack index gather index_select take repeat clone copy _to_copy
        contiguous where masked_fill masked_select masked_scatter scatter index_put _index_put_impl index_copy
        index_fill fill zero zeros ones empty full arange linspace eye scalar_tensor new_zeros new_ones new_empty
        new_full zeros_like ones_like empty_like full_like empty_strided new_empty_strided max min amax amin aminmax
        cummax cummin clamp clamp_min clamp_max relu neg abs maximum minimum fmax fmin flip roll tril triu
        constant_pad_nd unfold embedding detach lift_fresh lift alias diagonal diag_embed repeat_interleave movedim
        nan_to_num threshold hardtanh select_scatter slice_scatter view_as_real view_as_complex triu_indices
        isnan isinf narrow swapaxes
        expand_as view_as resize set _conj _neg_view conj_physical resolve_conj resolve_neg
        positive unsafe_split unsafe_chunk take_along_dim
        block_diag meshgrid max_pool2d_with_indices pixel_shuffle _pin_memory pin_memory to_dense diag copysign ldexp
        frexp is_same_size _local_scalar_dense equal""",
    Kind.ELEMENT: """add sub rsub mul div true_divide reciprocal square addcmul addcdiv add_relu hypot prod cumprod
        sqrt rsqrt""",
    Kind.CONTRACT: "mm bmm addmm baddbmm addbmm mv dot vdot addmv addr linear convolution _convolution _scaled_mm",
    Kind.SUM: "sum mean nansum cumsum index_add scatter_add scatter_reduce index_reduce trace segment_reduce",
    Kind.LOGSUM: "logsumexp log_softmax _log_softmax logcumsumexp logaddexp logaddexp2",
    Kind.ROUND: "round floor ceil trunc sign frac fmod remainder floor_divide",
    Kind.SELECT: "sort topk argmax argmin argsort kthvalue msort median mode",
    Kind.COMPARE: "eq ne lt le gt ge",
}
_DRAWS = """rand rand_like randn randn_like randint randint_like randperm random uniform normal log_normal cauchy
    exponential geometric bernoulli binomial poisson multinomial _standard_gamma _sample_dirichlet"""
_NAMES[Kind.MOVE] += f" {_DRAWS}"
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_TIES = {"sort", "topk", "argmax", "argmin", "argsort", "kthvalue", "max", "min", "mode", "median"}


@dataclass(frozen=True, slots=True)
class Op:
    """Facts about one ATen overload, worked out once."""

    name: str  # without the underscore of the in-place form
    kind: Kind
    writes: tuple[int, ...]  # positions of arguments written in place; -1 for a keyword such as `out`
    view: bool
    composite: bool
    selects: bool
    bits: bool  # views the bits as another dtype
    simple: bool  # moves values, and neither writes, nor casts, nor makes any, as an infinity's finite neighbour
    draws: bool  # at random: which numbers come depends on the dtype


_cache: dict[Any, Op] = {}


def describe(func: Any) -> Op:
    """Return the facts about an ATen overload (`torch._ops.OpOverload`)."""
    found = _cache.get(func)
    if found is None:
        found = _cache[func] = _describe(func)
    return found


def _describe(func: Any) -> Op:
    schema = func._schema  # noqa: SLF001 - the only place where an overload states what it writes
    name = schema.name.split("::")[1]
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    writes = tuple(
        -1 if arg.kwarg_only else place
        for place, arg in enumerate(schema.arguments)
        if arg.alias_info is not None and arg.alias_info.is_write
    )
    returns_alias = any(item.alias_info is not None for item in schema.returns)
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 - under inference mode composites arrive whole
    kind = _KINDS.get(base, Kind.SMOOTH)
    composite = bool(func.has_kernel_for_dispatch_key(key))
    bits = base == "view" and func._overloadname == "dtype"  # noqa: SLF001
    casts = any(arg.name == "dtype" for arg in schema.arguments)
    draws = base in _DRAWS.split()
    return Op(
        name=base,
        kind=kind,
        writes=writes,
        view=returns_alias and not writes,
        composite=composite,
        selects=base in _TIES,
        bits=bits,
        simple=kind is Kind.MOVE and not (writes or composite or casts or bits or draws or base == "nan_to_num"),
        draws=draws,
    )


def magnitude(func: Any, args: list[Any]) -> torch.Tensor:
    """Apply a linear operation to magnitudes: |A| @ |B| for A @ B, the sum of |x| for a sum.

    The result has the operation's own shape. Raises TypeError for an operation with another result than one tensor.
    """
    bare = [arg.as_subclass(torch.Tensor).abs() if _is_real(arg) else arg for arg in args]
    result = func(*bare)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"{func} gives {type(result).__name__}, not a tensor")
    return result


def _is_real(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and torch.Tensor.dtype.__get__(arg).is_floating_point  # type: ignore[attr-defined]
