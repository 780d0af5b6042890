"""References run wide: what is lifted, what is kept, and what is said where lifting is impossible."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_flashinfer.judge.comparison.compare import compare
from pytest_flashinfer.judge.floats import name_of
from pytest_flashinfer.judge.oracle.evaluate import evaluate
from pytest_flashinfer.judge.oracle.truth import OutputSpec, OutputTruth, exact, inadmissible
from pytest_flashinfer.judge.reference.call import InvalidReferenceError, MutatesInputsError

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = torch.full((8,), 0.5)


def judge(
    function: Callable[..., Any], dtype: str = "float32", shape: tuple[int, ...] = (4, 8), **inputs: Any
) -> OutputTruth:
    if not inputs:
        inputs = {"x": torch.randn(4, 8, generator=torch.Generator().manual_seed(3)).bfloat16()}
    return evaluate(function, inputs, {"y": OutputSpec(dtype, shape)}).outputs["y"]


def asserting(x: torch.Tensor) -> torch.Tensor:
    assert x.untyped_storage().nbytes() == 2 * x.numel()
    return x.float()


def half_way(x: torch.Tensor) -> torch.Tensor:
    return (x.float() / 3).half().float() * 3


LIFTED: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "to": (lambda x: x.to(torch.float32) / 3, lambda x: x / 3),
    "float": (lambda x: x.float() / 3, lambda x: x / 3),
    "type": (lambda x: x.type(torch.FloatTensor) / 3, lambda x: x / 3),
    "type_as": (lambda x: (x / 3).type_as(x), lambda x: x / 3),
    "double": (lambda x: x.double() / 3, lambda x: x / 3),
    "half in between": (half_way, lambda x: x),
    "in its own dtype": (lambda x: (x / 3).to(x.dtype), lambda x: x / 3),
    "created": (lambda x: x + torch.full((8,), 0.1, dtype=torch.float32), lambda x: x + 0.1),
    "created like": (lambda x: torch.zeros_like(x) + x / 3, lambda x: x / 3),
    "arange": (lambda x: x * torch.arange(8, dtype=torch.float16) / 7, lambda x: x * torch.arange(8.0).double() / 7),
    "tensor": (lambda x: x * torch.tensor(0.1), lambda x: x * 0.1),
    "softmax with a dtype": (lambda x: torch.softmax(x, -1, dtype=torch.float32), lambda x: torch.softmax(x, -1)),
    "logsumexp": (lambda x: x - torch.logsumexp(x.float(), -1, keepdim=True), lambda x: torch.log_softmax(x, -1)),
    "ints promoted": (lambda x: torch.arange(8) / 3 + x, lambda x: torch.arange(8).double() / 3 + x),
    "python scalar": (lambda x: x * float(x.shape[1]) ** -0.5, lambda x: x / math.sqrt(8)),
    "masked": (lambda x: torch.where(x > 0, x.float() / 3, -1.0), lambda x: torch.where(x > 0, x / 3, -1.0)),
    "fused norm": (lambda x: F.rms_norm(x.float(), (8,), eps=1e-5), lambda x: F.rms_norm(x, (8,), eps=1e-5)),
    "inference mode": (torch.inference_mode()(lambda x: F.linear(x.float(), torch.eye(8) / 3)), lambda x: x / 3),
    "a table made at import": (lambda x: x * TABLE, lambda x: x * TABLE.double()),
    "sorted": (lambda x: (x.float() / 3).sort(dim=-1).values, lambda x: (x / 3).sort(dim=-1).values),
}


@pytest.mark.parametrize("name", LIFTED)
def test_the_truth_is_the_formula_in_float64(name: str) -> None:
    function, formula = LIFTED[name]
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = judge(function, x=x)
    assert found.how == "lifted"
    assert found.wide is not None
    torch.testing.assert_close(found.wide, formula(x.double()), rtol=1e-12, atol=1e-14)


def test_rows_written_in_place_into_a_narrow_output_are_not_rounded() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(4, 8, dtype=x.dtype)
        for row in range(4):
            out[row] = (x[row].float() / 3).to(x.dtype)
        out[:, 0].copy_(x[:, 0] / 3)
        out[torch.tensor([1]), :] = x[1] / 3
        return out

    x = torch.randn(4, 8).bfloat16()
    assert torch.equal(judge(run, "bfloat16", x=x).wide, x.double() / 3)


def test_destination_style_writes_into_wide_outputs() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        y.copy_(x.float() / 3)

    x = torch.randn(4, 8).bfloat16()
    specs = {"y": OutputSpec("bfloat16", (4, 8))}
    found = evaluate(run, {"x": x}, specs, style="destination").outputs["y"]
    assert torch.equal(found.wide, x.double() / 3)
    assert torch.equal(found.native, (x.float() / 3).bfloat16())


def test_an_input_written_in_place_is_a_copy_in_every_run() -> None:
    def run(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state += x
        return state * 2

    x, state = torch.randn(4, 8), torch.randn(4, 8)
    specs = {"y": OutputSpec("float32", (4, 8)), "new_state": OutputSpec("float32", (4, 8), param="state")}
    found = evaluate(run, {"x": x, "state": state.clone()}, specs).outputs
    assert torch.equal(found["new_state"].wide, x.double() + state.double())
    assert torch.equal(found["y"].native, (x + state) * 2)


def test_attention_is_taken_apart() -> None:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (torch.randn(1, 2, 5, 8).half() for _ in range(3))
    found = judge(run, "float16", (1, 2, 5, 8), q=q, k=k, v=v)
    scores = (q.double() @ k.double().mT / math.sqrt(8)).masked_fill(
        ~torch.ones(5, 5, dtype=torch.bool).tril(), -math.inf
    )
    torch.testing.assert_close(found.wide, torch.softmax(scores, -1) @ v.double())


def test_dtype_questions_get_the_native_answer() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.bfloat16
        assert x.float().dtype == torch.float32
        assert (x @ x.T).dtype == torch.bfloat16
        assert torch.zeros(2, dtype=x.dtype).dtype == torch.bfloat16
        assert (x.element_size(), x.itemsize, x.nbytes) == (2, 2, 64)
        assert (x.type(), x.float().type()) == ("torch.BFloat16Tensor", "torch.FloatTensor")
        return (x / 3).float()

    assert judge(run).how == "lifted"


def test_quantisation_to_eight_bits_is_kept_and_the_last_rounding_is_not() -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.float().abs().amax(-1, keepdim=True) / 448
        codes = (x.float() / scale).to(torch.float8_e4m3fn)
        return codes, codes.float() * scale

    x = torch.randn(4, 8).bfloat16()
    specs = {"codes": OutputSpec("float8_e4m3fn", (4, 8)), "back": OutputSpec("float32", (4, 8))}
    found = evaluate(run, {"x": x}, specs).outputs
    scale = x.double().abs().amax(-1, keepdim=True) / 448
    assert torch.allclose(found["codes"].wide, x.double() / scale)
    assert torch.allclose(found["back"].wide, (x.double() / scale).to(torch.float8_e4m3fn).double() * scale)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda x: (x * x).view(torch.int16).view(torch.bfloat16).float(), "bits of a"),
        (lambda x: x + TABLE.fill_(0.5), "made outside the reference"),
        (asserting, "AssertionError"),
    ],
)
def test_where_lifting_fails_the_reference_is_the_truth_and_says_why(run: Callable[..., Any], reason: str) -> None:
    found = judge(run)
    assert found.how.startswith("native: ")
    assert reason in found.how
    assert found.wide is None
    assert found.allowance is not None


WIDENED = {
    "float": lambda x: x.float(),
    "to": lambda x: x.to(torch.float32),
    "to a dtype": lambda x: x.to(dtype=torch.float32),
    "to another": lambda x: x.to(torch.ones(())),
    "type_as": lambda x: x.type_as(torch.ones(())),
    "double": lambda x: x.double(),
}


@pytest.mark.parametrize("widen", WIDENED.values(), ids=WIDENED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_what_is_lifted_to_float32_for_want_of_memory_has_the_same_bounds(
    widen: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        y = widen(x) * 0.1
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16()

    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(5)).to(dtype)
    specs = {"y": OutputSpec("bfloat16", (64, 256))}
    usual, small = (evaluate(norm, {"x": x}, specs, budget=budget) for budget in (None, 8 * 4 * x.numel() - 1))
    assert small.how == "lifted to float32 (memory)"
    one, other = usual.outputs["y"], small.outputs["y"]
    assert one.allowance is not None
    assert other.allowance is not None
    assert float(other.allowance.mean()) == pytest.approx(float(one.allowance.mean()), rel=0.1)
    assert other.widened == 1


E4M3 = torch.float8_e4m3fn
OLD = {torch.bfloat16: "BFloat16Tensor", torch.float16: "HalfTensor", torch.float32: "FloatTensor",
       torch.float64: "DoubleTensor"}  # fmt: skip
CASTS: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "to": lambda x, dtype: x.to(dtype),
    "to a dtype": lambda x, dtype: x.to(dtype=dtype),
    "to a device": lambda x, dtype: x.to("cpu", dtype),
    "to another": lambda x, dtype: x.to(torch.ones((), dtype=dtype)),
    "a copy": lambda x, dtype: x.to(dtype, copy=True),
    "a copy by place": lambda x, dtype: x.to(dtype, False, True),  # noqa: FBT003
    "type": lambda x, dtype: x.type(dtype),
    "an old type": lambda x, dtype: x.type(getattr(torch, OLD[dtype])),
    "an old name": lambda x, dtype: x.type(f"torch.{OLD[dtype]}"),
    "type_as": lambda x, dtype: x.type_as(torch.ones((), dtype=dtype)),
    "by name": lambda x, dtype: {4: x.float, 8: x.double}.get(dtype.itemsize, getattr(x, name_of(dtype), x.half))(),
    "written": lambda x, dtype: torch.zeros(x.shape, dtype=dtype).copy_(x),
    "written by rows": lambda x, dtype: by_rows(torch.zeros(x.shape, dtype=dtype), x),
}


def by_rows(made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    for row in range(0, x.shape[0], 4):
        made[row : row + 4] = x[row : row + 4]
    return made


def normal(rows: int = 16, columns: int = 64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


def both(run: Callable[..., Any], spec: OutputSpec, **inputs: torch.Tensor) -> list[OutputTruth]:
    """The truths as a float64 run gives them, and, for want of memory, one in float32."""
    wanted = 8 * (sum(x.numel() for x in inputs.values()) + 3 * math.prod(spec.shape or ()))
    found = [evaluate(run, inputs, {"y": spec}, budget=budget) for budget in (None, wanted - 1)]
    assert [each.how for each in found] == ["lifted", "lifted to float32 (memory)"]
    assert [inadmissible(each) for each in found] == [None, None]
    return [each.outputs["y"] for each in found]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_whatever_an_eight_bit_value_is_cast_to_it_was_rounded(
    cast: Callable[[torch.Tensor, torch.dtype], torch.Tensor], dtype: torch.dtype
) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return (cast((x.float() * 1.7).to(E4M3), dtype) * 2).bfloat16()

    x = normal().bfloat16()
    for truth in both(run, OutputSpec("bfloat16", (16, 64)), x=x):
        assert truth.widened == 1
        assert compare(run(x), truth).ok
        assert not compare((x.float() * 3.4).bfloat16(), truth).ok


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_what_a_cast_returns_is_the_tensor_itself_only_where_it_natively_is(
    cast: Callable[[torch.Tensor, torch.dtype], torch.Tensor], dtype: torch.dtype
) -> None:
    def run(x: torch.Tensor, given: torch.dtype) -> torch.Tensor:
        before = (x * 2).to(given)
        after = cast(before, dtype)
        after += 1
        return (before.float() + 16 * after.float()).bfloat16()

    x = normal().bfloat16()
    for given in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for truth in both(lambda x, given=given: run(x, given), OutputSpec("bfloat16", (16, 64)), x=x):
            torch.testing.assert_close(truth.wide, run(x, given).double(), rtol=0.1, atol=0.5)


def test_an_input_is_not_written_into_by_what_is_done_to_its_cast() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = x.double()
        total += w
        return (total * x).float()

    x, w = normal(), normal(16) + 1
    truth = evaluate(run, {"x": x, "w": w}, {"y": OutputSpec("float32", (16, 64))}).outputs["y"]
    assert torch.equal(truth.wide, (x.double() + w.double()) * x.double())
    assert compare(run(x, w), truth).ok
    assert not compare(-run(x, w), truth).ok


@pytest.mark.parametrize("dtype", [E4M3, torch.bfloat16])
@pytest.mark.parametrize("write", [by_rows, lambda state, x: state[1:].copy_(x[1:]), torch.Tensor.copy_])
def test_what_is_written_into_part_of_an_input_is_rounded_to_its_dtype(
    write: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    def run(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        write(state, (x * 1.7).to(state.dtype))
        return state.float() * 3

    x, state = normal(), torch.ones(16, 64).to(dtype)
    specs = {"y": OutputSpec("float32", (16, 64)), "new": OutputSpec(name_of(dtype), (16, 64), param="state")}
    truth = evaluate(run, {"x": x, "state": state}, specs).outputs["y"]
    assert truth.widened == 1
    assert compare(run(x, state.clone()), truth).ok
    if dtype is E4M3:
        assert not compare(x * 5.1, truth).ok


def test_exact_values_stay_exact_where_they_are_written_into_parts() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return by_rows(torch.zeros(16, 64), x) * 2

    assert exact(evaluate(run, {"x": normal()}, {"y": OutputSpec("float32", (16, 64))}))


@pytest.mark.parametrize("dtype", [E4M3, torch.bfloat16])
def test_a_number_read_from_a_narrow_tensor_was_rounded(dtype: torch.dtype) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * (x.abs().max() * 1.7).to(dtype).item()

    truth = judge(run, "float32", (16, 64), x=normal())
    assert truth.widened == 1
    assert compare(run(normal()), truth).ok


@pytest.mark.parametrize("cast", ["to", "written"])
def test_a_rounding_to_sixteen_bits_may_decide_one_to_eight(cast: str) -> None:
    """Some elements in a hundred differ by a whole step, and kernels may or may not round twice."""

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (CASTS[cast](x * 1.7, E4M3).float() @ w.float()).bfloat16()

    x, w = normal(16, 256).bfloat16(), normal(256).bfloat16()
    for truth in both(run, OutputSpec("bfloat16", (16, 64)), x=x, w=w):
        assert truth.widened == 1
        for y in (run(x, w), run(x.float(), w)):
            assert compare(y, truth).ok
        assert not compare(((x.float() * 1.7) @ w.float()).bfloat16(), truth).ok


def test_a_budget_too_small_says_so() -> None:
    x = torch.randn(64, 64)
    found = evaluate(lambda x: x / 3, {"x": x}, {"y": OutputSpec("float32", (64, 64))}, budget=1 << 10)
    assert found.how == "native: float64 copies need 0 MiB, the budget is 0 MiB"
    half = evaluate(lambda x: x / 3, {"x": x.half()}, {"y": OutputSpec("float16", (64, 64))}, budget=100_000)
    assert half.how == "lifted to float32 (memory)"


def test_small_integers_make_the_bound_collapse() -> None:
    a, b = (torch.randint(-4, 5, (16, 128)).half() for _ in range(2))
    found = evaluate(lambda a, b: a @ b.T, {"a": a, "b": b}, {"c": OutputSpec("float16", (16, 16))})
    assert exact(found)
    output = found.outputs["c"]
    assert bool((output.allowance <= 0.52 * output.wide.abs().clamp_min(1) * 2.0**-10).all())
    noisy = evaluate(lambda a, b: a @ b.T, {"a": a / 3, "b": b}, {"c": OutputSpec("float16", (16, 16))})
    assert not exact(noisy)


def test_operands_held_in_sixteen_bits_are_credited_only_where_asked() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.float(), -1) @ x.float().T

    x = torch.randn(16, 16).bfloat16()
    specs = {"y": OutputSpec("float32", (16, 16))}
    working = evaluate(run, {"x": x}, specs).outputs["y"].allowance
    strict = evaluate(run, {"x": x}, specs, operands="exact").outputs["y"].allowance
    assert working.median() > 100 * strict.median()


@pytest.mark.parametrize("keys", [1, 2])
def test_a_product_written_as_an_einsum_is_one_whatever_its_lengths(keys: int) -> None:
    """Over an axis of length 1 torch multiplies, and a kernel may hold its operands in 16 bits all the same."""

    def run(equation: str, p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, p.float() / 3, v.float()).bfloat16()

    def bound(equation: str) -> tuple[torch.Tensor, torch.Tensor]:
        found = evaluate(lambda p, v: run(equation, p, v), {"p": p, "v": v}, {"y": OutputSpec("bfloat16", (64, 8))})
        return found.outputs["y"].allowance, found.outputs["y"].wide

    p, v = torch.rand(64, keys).bfloat16(), torch.rand(keys, 8).bfloat16()
    for equation in ("ak,kb->ab", "ak,kb"):
        allowed, truth = bound(equation)
        held = ((p.float() / 3).bfloat16().double() @ v.double()).bfloat16()
        assert bool(((held.double() - truth).abs() <= allowed).all())
    if keys == 1:  # nothing is summed up: the product is the reference's own
        p, v = p[:, 0], v[0]
        allowed, truth = bound("a,b->ab")
        held = ((p.float() / 3).bfloat16().double()[:, None] * v.double()).bfloat16()
        assert bool(((held.double() - truth).abs() > allowed).any())


@pytest.mark.parametrize("hidden", [-1e4, -1e30, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_a_finite_mask_bounds_as_tightly_as_an_infinite_one(hidden: float, add: bool, name: str) -> None:  # noqa: FBT001
    x, mask = torch.randn(32, 64), torch.ones(32, 64).tril(3) > 0

    def run(x: torch.Tensor) -> torch.Tensor:
        scores = x + torch.where(mask, 0.0, hidden) if add else x.masked_fill(~mask, hidden)
        made = getattr(torch, name)(scores, -1)
        return made if name == "logsumexp" else torch.where(mask, made, 0.0)

    shape = (32,) if name == "logsumexp" else (32, 64)
    found = judge(run, "float32", shape, x=x)
    assert float(found.allowance.max()) < 4e-5


@pytest.mark.parametrize("kind", ["one large", "few values", "rising"])
@pytest.mark.parametrize("seed", range(3))
def test_a_softmax_over_a_vocabulary_may_be_as_far_off_as_torch_is(kind: str, seed: int) -> None:
    size = 128256
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, size, generator=generator)
    if kind == "one large":
        x = x - 18
        x[:, 0] = 0.0
    elif kind == "few values":
        x = x.masked_fill(torch.rand(2, size, generator=generator) < 0.9, 0.0)
    else:
        x = torch.linspace(0, 128, size).expand(2, size).contiguous() + x / 8

    def explicit(x: torch.Tensor) -> torch.Tensor:
        weights = torch.exp(x - x.amax(-1, keepdim=True))
        return weights / weights.sum(-1, keepdim=True)

    found = judge(explicit, "float32", (2, size), x=x)
    assert bool(((torch.softmax(x, -1).double() - found.wide).abs() <= found.allowance).all())
    largest = found.wide.argmax(-1, keepdim=True)
    assert bool((found.allowance.gather(-1, largest) <= 1e-3 * found.wide.gather(-1, largest)).all())


@pytest.mark.parametrize(
    ("run", "kernel"),
    [
        (lambda x: x / 448, lambda x: x * (1 / 448)),
        (lambda x: x.mean(-1), lambda x: x.sum(-1) * (1 / 7)),
        (lambda x: torch.rsqrt(x * 0 + 9) * x, lambda x: x * torch.tensor(1 / 3)),
    ],
    ids=["quotient", "mean", "root"],
)
def test_an_exact_quotient_may_be_off_by_a_rounding(run: Callable[..., Any], kernel: Callable[..., Any]) -> None:
    x = torch.full((4, 7), 448.0 * 9) * torch.tensor([[1.0], [3.0], [5.0], [11.0]])
    expected = kernel(x)
    found = judge(run, "float32", tuple(expected.shape), x=x)
    assert bool((found.allowance >= 2.0**-24 * found.wide.abs() * 1.5).all())
    even = judge(lambda x: x / 256, "float32", (4, 7), x=x)
    assert bool((even.allowance <= 2.0**-24 * even.wide.abs() * 1.04).all()), "by a power of two it is exact"


def test_a_product_of_inputs_gets_no_credit() -> None:
    a, b = torch.randn(16, 64), torch.randn(16, 64)
    specs = {"c": OutputSpec("bfloat16", (16, 16))}
    found = evaluate(lambda a, b: (a @ b.T).bfloat16(), {"a": a, "b": b}, specs).outputs["c"]
    rounded = (a.bfloat16().double() @ b.bfloat16().double().T).bfloat16()
    assert bool(((rounded.double() - found.wide).abs() > found.allowance).any())


def test_a_reference_that_rounds_on_the_way_accepts_both_ways() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return (x / 3) * 1.7

    x = torch.randn(64, 64).bfloat16()
    found = evaluate(run, {"x": x}, {"y": OutputSpec("bfloat16", (64, 64))}).outputs["y"]
    for value in (run(x), (x.float() / 3 * 1.7).bfloat16()):
        assert bool(((value.double() - found.wide).abs() <= found.allowance).all())


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda x: x.undefined, "AttributeError"),
        (lambda x: (x, x), "2 values for 1 outputs"),
        (lambda x: None, "returns no y"),
        (lambda x: x[:2], "as \\[2, 8\\], declared \\[4, 8\\]"),
        (lambda x: x.mul_(2), "writes into its inputs: x"),
        (lambda x: x.int(), "gives y in int32, declared bfloat16"),
        (lambda x: x > 0, "gives y in bool, declared bfloat16"),
    ],
)
def test_a_reference_that_breaks_its_contract_is_invalid(run: Callable[..., Any], words: str) -> None:
    with pytest.raises(InvalidReferenceError, match=words):
        judge(run, "bfloat16")


def test_bytes_may_be_given_as_the_floats_that_they_are() -> None:
    x = torch.randn(64, 32)
    specs = {"y": OutputSpec("uint8", (64, 32))}
    found = evaluate(lambda x: (x / 3).to(torch.float8_e4m3fn), {"x": x}, specs).outputs["y"]
    assert torch.equal(found.native, (x / 3).to(torch.float8_e4m3fn).view(torch.uint8))
    assert found.undecided is None or float(found.undecided.float().mean()) < 0.01


def test_floats_of_another_width_are_rounded() -> None:
    assert judge(lambda x: x.double(), "bfloat16").native.dtype is torch.bfloat16


def advance(x: torch.Tensor, state: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    state[place] += x / 3
    place += 1
    return state * x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("given", ["x", "place, state", "x, place, state"])
def test_inputs_that_are_mutated_are_copied_for_each_run(dtype: torch.dtype, given: str) -> None:
    inputs = {"x": torch.randn(3, 8).to(dtype), "state": torch.randn(3, 8).to(dtype), "place": torch.arange(3)}
    before = {name: x.clone() for name, x in inputs.items()}
    specs = {"y": OutputSpec(name_of(dtype), (3, 8))}
    if given == "x":
        with pytest.raises(MutatesInputsError, match="writes into its inputs: state, place"):
            evaluate(advance, inputs, specs, mutated=("x",))
        return
    found = evaluate(advance, inputs, specs, mutated=given.split(", ")).outputs["y"]
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)
    assert (found.how, found.notes, found.disputed) == ("lifted", (), 0)
    wide = (before["state"].double() + before["x"].double() / 3) * before["x"].double()
    torch.testing.assert_close(found.wide, wide, rtol=1e-12, atol=1e-14)
    declared = evaluate(advance, inputs, {**specs, **state_of(dtype)}, mutated=("place",)).outputs["y"]
    assert torch.equal(found.allowance, declared.allowance), "as where an output declares it"


def state_of(dtype: torch.dtype) -> dict[str, OutputSpec]:
    return {"new": OutputSpec(name_of(dtype), (3, 8), param="state")}


def test_optional_outputs_and_scalars() -> None:
    specs = {"s": OutputSpec("float32", None), "t": OutputSpec("float32", (2,), optional=True)}
    found = evaluate(lambda x, flag: (float(x.sum()), None), {"x": torch.ones(3), "flag": None}, specs).outputs
    assert float(found["s"].native) == 3.0
    assert found["t"].native is None


def test_two_calls_give_the_same_truth() -> None:
    x = torch.randn(8, 32).half()
    specs = {"y": OutputSpec("float16", (8, 32))}
    one, two = (evaluate(lambda x: torch.softmax(x, -1), {"x": x}, specs, seed=5).outputs["y"] for _ in range(2))
    assert torch.equal(one.allowance, two.allowance)


@pytest.mark.parametrize("shift", [0.0, 100.0, 2.0**14])
@pytest.mark.parametrize("seed", range(3))
def test_a_saved_logarithm_of_a_sum_may_be_off_for_its_whole_row(shift: float, seed: int) -> None:
    x = torch.randn(64, 100, generator=torch.Generator().manual_seed(seed)) + shift

    def run(x: torch.Tensor) -> torch.Tensor:
        logs = torch.log_softmax(x, -1)
        return -(logs.exp() * logs).sum(-1)

    def fused(x: torch.Tensor) -> torch.Tensor:
        logs = x - torch.logsumexp(x, -1, keepdim=True)
        return -(logs.exp() * logs).sum(-1)

    found = judge(run, "float32", (64,), x=x)
    assert compare(fused(x), found).ok
    assert not compare(run(x.bfloat16().float()), found).ok
    assert not compare(run(x) * (1 + 2.0**-7), found).ok


@pytest.mark.parametrize("error", ["AttributeError", "KeyError", "NameError", "RuntimeError"])
def test_an_error_of_the_judge_itself_loosens_no_bound(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is broken shows, while what torch raises where an operation cannot be run wide does not."""
    module: dict[str, Any] = {"__name__": "pytest_flashinfer.judge.oracle.distribute"}
    exec(f"def mark(*_):\n    raise {error}('gone')", module)
    monkeypatch.setattr("pytest_flashinfer.judge.oracle.distribute.mark", module["mark"])
    if error == "RuntimeError":
        assert judge(lambda x: x.float() / 3).how == "native: RuntimeError: gone"
    else:
        with pytest.raises(getattr(builtins, error), match="gone"):
            judge(lambda x: x.float() / 3)


@pytest.mark.parametrize("error", ["AttributeError", "KeyError"])
def test_an_error_of_the_reference_is_its_own_in_the_wide_run(error: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage().nbytes() != 2 * x.numel():
            raise getattr(builtins, error)("not here")
        return x.float() / 3

    assert judge(run).how.startswith(f"native: {error}")
