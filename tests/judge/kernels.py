"""Four kernels in honest and wrong variants: what a bound must tell apart. All in plain torch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

BF16, FP16, FP32, FP8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn
Kernel = Callable[..., Any]


def held(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


def tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.float().contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def quantised(x: torch.Tensor) -> torch.Tensor:
    scale = x.float().abs().amax().clamp_min(1e-12) / 448
    return (x.float() / scale).to(FP8).float() * scale


def cut(x: torch.Tensor) -> torch.Tensor:
    """Round float64 to float32 towards zero, as tensor cores do."""
    near = x.float()
    return torch.where(near.double().abs() > x.abs(), torch.nextafter(near, torch.zeros_like(near)), near)


# --- gemm: A [m, k], B [n, k]


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b.T)


def gemm_tiles(tile: int, accumulator: torch.dtype = FP32, step: int = 1) -> Kernel:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[0])
        for start in list(range(0, a.shape[1], tile))[::step]:
            part = a[:, start : start + tile].float() @ b[:, start : start + tile].float().T
            total = held(total + part, accumulator)
        return total.to(a.dtype)

    return run


def gemm_tensor_core(products: int = 16) -> Kernel:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[0])
        for start in range(0, a.shape[1], products):
            part = a[:, start : start + products].double() @ b[:, start : start + products].double().T
            total = cut(total.double() + part)
        return total.to(a.dtype)

    return run


def gemm_split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sum(a[:, i::4].float() @ b[:, i::4].float().T for i in range(4)).to(a.dtype)  # type: ignore[union-attr]


def gemm_with(operand: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    return lambda a, b: (operand(a).float() @ operand(b).float().T).to(a.dtype)


def one_element(kernel: Kernel, change: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    def run(*args: torch.Tensor) -> Any:
        result = kernel(*args)
        flat = (result[0] if isinstance(result, tuple) else result).view(-1)
        place = int(flat.float().abs().argmax())
        flat[place] = change(flat[place])
        return result

    return run


def gemm_rounded_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    other = BF16 if a.dtype is not BF16 else FP8
    return held(a.float() @ b.float().T, other).to(a.dtype)


def gemm_cut_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    exact = a.float() @ b.float().T
    near = exact.to(a.dtype)
    return torch.where(near.float().abs() > exact.abs(), torch.nextafter(near, torch.zeros_like(near)), near)


# --- rmsnorm: x [n, h], w [h]


def rmsnorm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    return (wide * scale * w.to(torch.float32)).to(x.dtype)


def rms_with(
    eps: float = 1e-6,
    shift: int = 0,
    before_weight: torch.dtype = FP32,
    squares: torch.dtype = FP32,
    mean: torch.dtype = FP32,
) -> Kernel:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        total = held(held(wide, squares) * held(wide, squares), squares).sum(-1, keepdim=True)
        scale = 1 / torch.sqrt(held(total / (x.shape[1] + shift), mean) + eps)
        return (held(wide * scale, before_weight) * w.float()).to(x.dtype)

    return run


def rms_one_by_one(accumulator: torch.dtype, step: int) -> Kernel:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide, total = x.float(), torch.zeros(x.shape[0])
        for start in range(0, x.shape[1], step):
            total = held(total + wide[:, start : start + step].square().sum(1), accumulator)
        return (wide * torch.rsqrt(total[:, None] / x.shape[1] + 1e-6) * w.float()).to(x.dtype)

    return run


# --- softmax with lse: x [n, v]


def softmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x.float(), -1).to(x.dtype), torch.logsumexp(x.float(), -1)


def softmax_with(
    exponentials: torch.dtype = FP32,
    logits: torch.dtype = FP32,
    *,
    base2: bool = False,
    drop: int = 0,
    floor: float = 0.0,
) -> Kernel:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = held(x.float(), logits)
        top = z.amax(-1, keepdim=True)
        e = torch.exp2((z - top) * math.log2(math.e)) if base2 else torch.exp(z - top)
        e = held(e, exponentials)
        if drop:
            e[:, -drop:] = 0
        total = e.sum(-1, keepdim=True)
        p = e / total
        return torch.where(p < floor, 0, p).to(x.dtype), (top + torch.log(total))[:, 0]

    return run


def softmax_online_on(device: torch.device) -> Kernel:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x.float()
        top = torch.full((x.shape[0], 1), -math.inf, device=device)
        total = torch.zeros_like(top)
        for part in z.split(32, -1):
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            total = total * torch.exp(top - new) + torch.exp(part - new).sum(-1, keepdim=True)
            top = new
        return (torch.exp(z - top) / total).to(x.dtype), (top + torch.log(total))[:, 0]

    return run


# --- attention, one query: q [b, h, d], k and v [b, n, h, d]; lse to base 2


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float32)
    for b in range(q.shape[0]):
        logits = torch.einsum("hd,nhd->hn", q[b].float(), k[b].float()) * scale
        lse[b] = torch.logsumexp(logits, -1) / math.log(2.0)
        out[b] = torch.einsum("hn,nhd->hd", torch.softmax(logits, -1), v[b].float()).to(q.dtype)
    return out, lse


def attention_with(  # noqa: PLR0913
    tile: int = 1 << 20,
    *,
    p: torch.dtype | None = FP32,
    sums_p: bool = False,
    logits: torch.dtype = FP32,
    accumulator: torch.dtype | None = FP32,
    operand: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.float,
    factor: float = 1.0,
    drop: int = 0,
) -> Kernel:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        count = k.shape[1] - drop
        top = torch.full((*q.shape[:2], 1), -math.inf)
        total, out = torch.zeros_like(top), torch.zeros(q.shape)
        for start in range(0, count, tile):
            keys, values = (operand(x[:, start : min(start + tile, count)].transpose(1, 2)) for x in (k, v))
            s = held((q.float()[:, :, None] @ keys.mT)[:, :, 0] * scale * factor, logits)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            weights, fade = torch.exp(s - new), torch.exp(top - new)
            low = held(weights, p or q.dtype) if p is not FP8 else (weights * 448).to(FP8).float() / 448
            total = total * fade + (low if sums_p else weights).sum(-1, keepdim=True)
            out = held(out * fade + (low[:, :, None] @ values)[:, :, 0], accumulator or q.dtype)
            top = new
        return (out / total).to(q.dtype), ((top + torch.log(total)) * math.log2(math.e))[:, :, 0]

    return run


WORKING = None  # the dtype of the inputs

HONEST: dict[str, dict[str, Kernel]] = {
    "gemm": {
        "reference": gemm,
        "transposed": lambda a, b: (b.float() @ a.float().T).T.to(a.dtype),
        "tiles_16": gemm_tiles(16),
        "tiles_64_backwards": gemm_tiles(64, step=-1),
        "one_by_one": gemm_tiles(1),
        "split_k": gemm_split,
        "tensor_core_cuts": gemm_tensor_core(),
        "tensor_core_cuts_every_8": gemm_tensor_core(8),
    },
    "rmsnorm": {
        "reference": rmsnorm,
        "square_root": rms_with(),
        "one_by_one": rms_one_by_one(FP32, 1),
        "weight_first": lambda x, w: rmsnorm(x.float(), w.float()).to(x.dtype),
        "float64": lambda x, w: rmsnorm(x.double(), w.double()).to(x.dtype),
    },
    "softmax": {
        "reference": softmax,
        "by_hand": softmax_with(),
        "base_2": softmax_with(base2=True),
        "online": softmax_online_on(torch.device("cpu")),
    },
    "attention": {
        "reference": attention,
        "dense": attention_with(),
        "flash_16": attention_with(16),
        "flash_64_p_in_working_dtype": attention_with(64, p=WORKING),
        "lse_from_held_p": attention_with(64, p=WORKING, sums_p=True),
    },
}
WRONG: dict[str, dict[str, Kernel]] = {
    "gemm": {
        "bf16_accumulator_two_blocks": lambda a, b: gemm_tiles(-(-a.shape[1] // 2), BF16)(a, b),
        "fp16_accumulator_blocks_of_32": gemm_tiles(32, FP16),
        "fp8_operands": gemm_with(quantised),
        "small_operands_dropped": gemm_with(lambda x: torch.where(x.abs() < 0.05, 0, x)),
        "one_element_zero": one_element(gemm, torch.zeros_like),
        "one_element_2_percent": one_element(gemm, lambda x: x * 1.02),
        "one_element_1_percent": one_element(gemm, lambda x: x * 1.01),
        "result_rounded_twice": gemm_rounded_twice,
        "result_cut": gemm_cut_result,
        "last_k_dropped": lambda a, b: gemm(a[:, :-1], b[:, :-1]),
        "scale_off_by_a_thousandth": lambda a, b: (a.float() @ b.float().T * 1.001).to(a.dtype),
    },
    "rmsnorm": {
        "eps_dropped": rms_with(eps=0.0),
        "eps_ten_times": rms_with(eps=1e-5),
        "rounded_before_weight": rms_with(before_weight=BF16),
        "bf16_sum_of_squares": rms_one_by_one(BF16, 1),
        "bf16_squares": rms_with(squares=BF16),
        "bf16_mean": rms_with(mean=BF16),
        "mean_over_h_minus_1": rms_with(shift=-1),
        "one_element_zero": one_element(rmsnorm, torch.zeros_like),
        "one_element_2_percent": one_element(rmsnorm, lambda x: x * 1.02),
        "fp8_input": lambda x, w: rmsnorm(quantised(x), w.float()).to(x.dtype),
        "weight_ignored": lambda x, w: rmsnorm(x, torch.ones_like(w)),
    },
    "softmax": {
        "bf16_exponentials": softmax_with(exponentials=BF16),
        "fp8_logits": softmax_with(logits=FP8),
        "last_column_dropped": softmax_with(drop=1),
        "small_ones_zero": softmax_with(floor=1e-3),
        "zeros": lambda x: (torch.zeros_like(x), softmax(x)[1]),
        "lse_in_bf16": lambda x: (softmax(x)[0], held(softmax(x)[1], BF16)),
        "one_element_1_percent": one_element(softmax, lambda x: x * 1.01),
    },
    "attention": {
        "fp8_p": attention_with(p=FP8),
        "fp8_keys_and_values": attention_with(operand=quantised),
        "scale_missing": lambda q, k, v, scale: attention(q, k, v, 1.0),
        "scale_of_d_plus_1": lambda q, k, v, scale: attention(q, k, v, (q.shape[-1] + 1) ** -0.5),
        "last_token_dropped": attention_with(drop=1),
        "accumulator_in_bf16": attention_with(16, accumulator=BF16),
        "accumulator_in_fp16": attention_with(16, accumulator=FP16),
        "lse_natural": lambda q, k, v, scale: (
            attention(q, k, v, scale)[0],
            attention(q, k, v, scale)[1] * math.log(2),
        ),
        "lse_in_bf16": lambda q, k, v, s: (attention(q, k, v, s)[0], held(attention(q, k, v, s)[1], BF16)),
        "one_element_zero": one_element(attention, torch.zeros_like),
        "one_element_4_percent": one_element(attention, lambda x: x * 1.04),
    },
}
# what a 16-bit output cannot show, or a wider dtype makes right
INDISTINCT = {
    ("attention", "accumulator_in_fp16", BF16): "three bits better than the output",
    ("gemm", "result_cut", FP32): "there is nothing to cut",
}
STRICT_FP32: dict[str, dict[str, Kernel]] = {
    "gemm": {"tf32_operands": gemm_with(tf32), "bf16_operands": gemm_with(lambda x: held(x, BF16))},
    "attention": {
        "p_in_fp16": attention_with(p=FP16),
        "p_in_bf16": attention_with(p=BF16),
        "logits_in_bf16": attention_with(logits=BF16),
    },
}
