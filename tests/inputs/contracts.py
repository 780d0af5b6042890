"""A dozen contracts of different kinds, with references that complain about inputs that make no sense."""

from __future__ import annotations

import textwrap
from functools import cache

import torch

from pytest_flashinfer.data.model import Axis, Definition, TensorSpec

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n\n"


def axes(**sizes: int | None) -> dict[str, Axis]:
    return {name: Axis("var") if n is None else Axis("const", n) for name, n in sizes.items()}


def tensor(shape: str | None, dtype: str = "float32", **kwargs) -> TensorSpec:
    return TensorSpec(None if shape is None else tuple(shape.split()), dtype, **kwargs)


def define(name: str, sizes, inputs, outputs, reference: str, *constraints: str, **kwargs) -> Definition:
    op_type = kwargs.pop("op_type", name)
    code = HEAD + textwrap.dedent(reference)
    return Definition(name, op_type, sizes, inputs, outputs, code, constraints=constraints, **kwargs)


def call(definition: Definition, inputs) -> list:
    namespace: dict = {}
    exec(definition.reference, namespace)  # our own text, above and below
    out = namespace["run"](*inputs.values())
    return list(out) if isinstance(out, tuple) else [out]


def finite(outputs) -> bool:
    floats = [x for x in outputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return not any(bool((x.isnan() | (x == math_inf)).any()) for x in floats)


math_inf = float("inf")

RAGGED = define(
    "ragged_sum", axes(n=None, total=None, len_indptr=None, h=8),
    {"x": tensor("total h"), "indptr": tensor("len_indptr", "int32")}, {"y": tensor("n h")},
    """
    def run(x, indptr):
        assert indptr[0] == 0 and indptr[-1] == len(x) and (indptr[1:] >= indptr[:-1]).all()
        sums = [x[a:b].sum(0) for a, b in zip(indptr, indptr[1:])]
        return torch.stack(sums) if sums else x.new_zeros(0, 8)
    """,
    "len_indptr == n + 1", "total == indptr[-1].item()", "every segment is summed on its own",
)  # fmt: skip

_PAGED = {
    "q": tensor("batch heads d", "float16"), "k_cache": tensor("pages page_size kv_heads d", "float16"),
    "v_cache": tensor("pages page_size kv_heads d", "float16"), "kv_indptr": tensor("len_indptr", "int32"),
    "kv_indices": tensor("num_kv_indices", "int32"), "kv_last_page_len": tensor("batch", "int32"),
    "sm_scale": tensor(None),
}  # fmt: skip
PAGED_DECODE = define(
    "paged_decode",
    axes(batch=None, pages=None, num_kv_indices=None, len_indptr=None, heads=4, kv_heads=2, d=16, page_size=4),
    _PAGED, {"out": tensor("batch heads d", "float16"), "lse": tensor("batch heads")},
    """
    def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
        out, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf)
        assert kv_indices.unique().numel() == kv_indices.numel()
        for b in range(len(q)):
            ids = kv_indices[kv_indptr[b] : kv_indptr[b + 1]].long()
            assert (len(ids) == 0) == (kv_last_page_len[b] == 0)
            if len(ids):
                n = (len(ids) - 1) * 4 + int(kv_last_page_len[b])
                k = k_cache[ids].reshape(-1, 2, 16)[:n].float().repeat_interleave(2, 1)
                v = v_cache[ids].reshape(-1, 2, 16)[:n].float().repeat_interleave(2, 1)
                s = torch.einsum("hd,nhd->hn", q[b].float(), k) * sm_scale
                out[b], lse[b] = torch.einsum("hn,nhd->hd", s.softmax(-1), v).half(), s.logsumexp(-1)
        return out, lse
    """,
    "len_indptr == batch + 1", "num_kv_indices == kv_indptr[-1].item()",
    description="Slots past kv_last_page_len hold arbitrary data.",
)  # fmt: skip

BAGS = define(
    "bags", axes(n=None, total=None, h=8, rows=30),
    {"table": tensor("rows h"), "indices": tensor("total", "int64"), "offsets": tensor("n", "int64")},
    {"y": tensor("n h")},
    """
    def run(table, indices, offsets):
        assert offsets[0] == 0 and (offsets.diff() >= 0).all()
        ends = [*offsets.tolist()[1:], len(indices)]
        return torch.stack([table[indices[a:b]].sum(0) for a, b in zip(offsets.tolist(), ends)])
    """,
    "n >= 1", "int(offsets[-1]) <= total", "int(offsets[0]) == 0", "bool((indices < rows).all())",
)  # fmt: skip

MLA_PREFILL = define(
    "mla_prefill", axes(total_q=None, num_pages=None, len_indptr=None, num_kv_indices=None, heads=2, ckv=16, kpe=8,
                        page_size=4),
    {
        "q_nope": tensor("total_q heads ckv", "bfloat16"), "q_pe": tensor("total_q heads kpe", "bfloat16"),
        "ckv_cache": tensor("num_pages page_size ckv", "bfloat16"),
        "kpe_cache": tensor("num_pages page_size kpe", "bfloat16"), "qo_indptr": tensor("len_indptr", "int32"),
        "kv_indptr": tensor("len_indptr", "int32"), "kv_indices": tensor("num_kv_indices", "int32"),
        "kv_last_page_len": tensor("batch_size", "int32"),
        "sm_scale": tensor(None, description="By default 1/sqrt(16 + 8)."),
    }, {"out": tensor("total_q heads ckv", "bfloat16")},
    """
    def run(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
        out = torch.zeros_like(q_nope)
        for b, last in enumerate(kv_last_page_len.tolist()):
            lo, hi, (first, end) = int(qo_indptr[b]), int(qo_indptr[b + 1]), kv_indptr[b : b + 2].tolist()
            n = (end - first - 1) * 4 + last if end > first else 0
            assert hi - lo <= n
            ids = kv_indices[first:end].long()
            c, p = ckv_cache[ids].reshape(-1, 16)[:n].float(), kpe_cache[ids].reshape(-1, 8)[:n].float()
            for i in range(lo, hi):
                seen = n - (hi - lo) + (i - lo) + 1
                s = (q_nope[i].float() @ c[:seen].T + q_pe[i].float() @ p[:seen].T) * sm_scale
                out[i] = (s.softmax(-1) @ c[:seen]).bfloat16()
        return out
    """,
    "total_q == qo_indptr[-1].item()", "num_kv_indices == kv_indptr[-1].item()",
)  # fmt: skip

RAGGED_PREFILL = define(
    "ragged_prefill", axes(total_q=None, total_kv=None, len_indptr=None, heads=2, d=8),
    {
        "q": tensor("total_q heads d"), "k": tensor("total_kv heads d"), "v": tensor("total_kv heads d"),
        "qo_indptr": tensor("len_indptr", "int64"), "kv_indptr": tensor("len_indptr", "int64"),
    }, {"out": tensor("total_q heads d")},
    """
    def run(q, k, v, qo_indptr, kv_indptr):
        assert qo_indptr[-1] == len(q) and kv_indptr[-1] == len(k)
        out = torch.zeros_like(q)
        for a, b, c, d in zip(qo_indptr, qo_indptr[1:], kv_indptr, kv_indptr[1:]):
            s = torch.einsum("qhd,khd->hqk", q[a:b], k[c:d])
            hidden = torch.ones(int(b - a), int(d - c)).triu(int(d - c - b + a) + 1).bool()
            out[a:b] = torch.einsum("hqk,khd->qhd", s.masked_fill(hidden, -math.inf).softmax(-1), v[c:d])
        return out
    """,
)  # fmt: skip

TABLE = define(
    "block_table_decode", axes(batch_size=None, num_blocks=None, max_blocks=None, block_size=4, d=8),
    {
        "q": tensor("batch_size d"), "cache": tensor("num_blocks block_size d"),
        "block_table": tensor("batch_size max_blocks", "int32", description="Blocks of each sequence, -1 is padding."),
        "seq_lens": tensor("batch_size", "int32"),
    }, {"out": tensor("batch_size d")},
    """
    def run(q, cache, block_table, seq_lens):
        out = torch.zeros_like(q)
        for b, n in enumerate(seq_lens.tolist()):
            ids = block_table[b, : -(-n // 4)].long()
            assert (ids >= 0).all() and (block_table[b, len(ids):] == -1).all()
            k = cache[ids].reshape(-1, 8)[:n]
            assert len(k) == n
            out[b] = (k @ q[b]).softmax(0) @ k if n else 0
        return out
    """,
    "max(seq_lens) <= max_blocks * block_size", "min(seq_lens) >= 0",
)  # fmt: skip

ROUTED = define(
    "routed_experts", axes(num_tokens=None, num_experts=6, top_k=2, h=8, inner=8),
    {
        "x": tensor("num_tokens h", "bfloat16"), "topk_ids": tensor("num_tokens top_k", "int32"),
        "topk_weights": tensor("num_tokens top_k"), "w": tensor("num_experts inner h", "bfloat16"),
        "routed_scaling_factor": tensor(None),
    }, {"y": tensor("num_tokens inner")},
    """
    def run(x, topk_ids, topk_weights, w, routed_scaling_factor):
        assert topk_ids.numel() == 0 or (topk_ids[:, 0] != topk_ids[:, 1]).all()
        y = torch.einsum("tkih,th->tki", w[topk_ids.long()].float(), x.float())
        return (y * topk_weights[..., None]).sum(1) * routed_scaling_factor
    """,
)  # fmt: skip

SAMPLING = define(
    "top_k_top_p", axes(batch=None, vocab_size=50),
    {
        "probs": tensor("batch vocab_size", description="Probabilities of the next token."),
        "top_k": tensor("batch", "int32"), "top_p": tensor("batch"), "uniform_samples": tensor("batch"),
    }, {"samples": tensor("batch", "int64")},
    """
    def run(probs, top_k, top_p, uniform_samples):
        assert (probs >= 0).all() and torch.allclose(probs.sum(-1), torch.ones(len(probs)), atol=1e-4)
        assert ((top_k > 0) & (top_k <= 50)).all() and ((top_p > 0) & (top_p <= 1)).all()
        assert ((uniform_samples > 0) & (uniform_samples < 1)).all()
        return (probs.cumsum(-1) < uniform_samples[:, None]).sum(-1).clamp(max=49)
    """,
)  # fmt: skip

ROPE = define(
    "rope", axes(num_tokens=None, max_position=None, heads=2, d=8),
    {
        "x": tensor("num_tokens heads d", "float16"), "cos_sin_cache": tensor("max_position d"),
        "positions": tensor("num_tokens", "int64"),
    }, {"y": tensor("num_tokens heads d", "float16")},
    """
    def run(x, cos_sin_cache, positions):
        cos, sin = cos_sin_cache[positions].chunk(2, -1)
        squares = cos**2 + sin**2
        assert torch.allclose(squares, squares[:, :1], atol=1e-5)  # times a factor
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], -1).half()
    """,
)  # fmt: skip

DELTA = define(
    "gated_delta", axes(total=None, num_seqs=None, len_cu_seqlens=None, heads=2, d=8),
    {
        "q": tensor("total heads d", "bfloat16"), "k": tensor("total heads d", "bfloat16"),
        "v": tensor("total heads d", "bfloat16"), "state": tensor("num_seqs heads d d", optional=True),
        "A_log": tensor("heads"), "a": tensor("total heads", "bfloat16"), "dt_bias": tensor("heads"),
        "b": tensor("total heads", "bfloat16"), "cu_seqlens": tensor("len_cu_seqlens", "int64"),
        "scale": tensor(None, description="Default is 1/sqrt(d)."),
    }, {"out": tensor("total heads d", "bfloat16"), "new_state": tensor("num_seqs heads d d")},
    """
    def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
        g, beta = torch.exp(-A_log.exp() * F.softplus(a.float() + dt_bias)), torch.sigmoid(b.float())
        out, states = torch.zeros_like(v), []
        for i in range(len(cu_seqlens) - 1):
            s = torch.zeros(2, 8, 8) if state is None else state[i].clone()
            for t in range(int(cu_seqlens[i]), int(cu_seqlens[i + 1])):
                s = g[t][:, None, None] * s
                kt = k[t].float()
                delta = beta[t][:, None] * (v[t].float() - torch.einsum("hk,hkv->hv", kt, s))
                s = s + kt[:, :, None] * delta[:, None]
                out[t] = (scale * torch.einsum("hk,hkv->hv", q[t].float(), s)).bfloat16()
            states.append(s)
        assert not states or torch.stack(states).abs().max() < 1e4
        return out, torch.stack(states) if states else torch.zeros(0, 2, 8, 8)
    """,
    "len_cu_seqlens == num_seqs + 1", "total == cu_seqlens[-1].item()", op_type="gdn",
)  # fmt: skip

QUANTISED = define(
    "fp8_gemm", axes(m=None, n=32, k=64, k_blocks=2, n_blocks=1),
    {
        "a": tensor("m k", "float8_e4m3fn"), "b": tensor("n k", "float8_e4m3fn"), "a_scale": tensor("m k_blocks"),
        "b_scale": tensor("n_blocks k_blocks"),
    }, {"c": tensor("m n", "bfloat16")},
    """
    def run(a, b, a_scale, b_scale):
        assert (a_scale > 0).all() and (b_scale > 0).all() and b.float().isfinite().all()
        x = a.float() * a_scale.repeat_interleave(32, 1)
        return (x @ (b.float() * b_scale.repeat_interleave(32, 0).repeat_interleave(32, 1)).T).bfloat16()
    """,
    "a.shape[1] == 32 * k_blocks",
)  # fmt: skip

PACKED = define(
    "fp4_gemm", axes(m=None, n=8, k=32, k_blocks=1),
    {
        "a": tensor("m k", "float4_e2m1"), "a_scale": tensor("m k_blocks", "float8_e8m0fnu"),
        "b": tensor("n k", "bfloat16"),
    }, {"c": tensor("m n"), "again": tensor("m k", "float4_e2m1")},
    """
    def run(a, a_scale, b):
        assert a.dtype is torch.uint8 and a.shape[1] == 16
        low, high = (a & 15).float() - 7, (a >> 4).float() - 7
        scale = 2.0 ** (a_scale.view(torch.uint8).float() - 127)
        return torch.stack([low, high], -1).reshape(len(a), 32) * scale @ b.float().T, a
    """,
)  # fmt: skip

STEP = define(
    "step", axes(n=None, h=8), {"x": tensor("n h"), "state": tensor("n h", optional=True)},
    {"y": tensor("n h"), "new_state": tensor("n h")},
    """
    def run(x, state=None):
        state = torch.zeros_like(x) if state is None else state
        return x + state, state * 0.5
    """,
)  # fmt: skip

SLOTS = define(
    "state_update", axes(batch_size=None, pool_size=None, h=8),
    {
        "x": tensor("batch_size h"), "state_pool": tensor("pool_size h"),
        "state_indices": tensor("batch_size", "int32", description="Slot of each row; -1 skips it."),
    }, {"new_pool": tensor("pool_size h")},
    """
    def run(x, state_pool, state_indices):
        live = state_indices[state_indices >= 0].long()
        assert live.unique().numel() == live.numel()
        new = state_pool.clone()
        new[live] += x[state_indices >= 0]
        return new
    """,
    "pool_size >= batch_size",
)  # fmt: skip

DENSE = define(
    "dense_gqa", axes(B=None, Q=None, KV=None, H_qo=None, H_kv=None, H_r=2, D=8),
    {
        "q": tensor("B Q H_qo D", "float16", dim_order=(0, 2, 1, 3)), "k": tensor("B KV H_kv D", "float16"),
        "mask": tensor("Q KV", "bool"),
    }, {"out": tensor("B Q H_qo D", "float16")},
    """
    def run(q, k, mask):
        assert mask.any(-1).all() and q.shape[2] == 2 * k.shape[2]
        kk = k.float().repeat_interleave(2, 2)
        s = torch.einsum("bqhd,bkhd->bhqk", q.float(), kk).masked_fill(~mask, -math.inf)
        return torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), kk).half()
    """,
    "H_qo == H_kv * H_r", "KV >= Q",
)  # fmt: skip

SPARSE = define(
    "sparse_attention", axes(num_tokens=None, num_pages=None, page_size=4, topk=6, d=8),
    {
        "q": tensor("num_tokens d"), "kv_cache": tensor("num_pages page_size d"),
        "sparse_indices": tensor("num_tokens topk", "int32", description="Flat slots; -1 is padding."),
    }, {"out": tensor("num_tokens d")},
    """
    def run(q, kv_cache, sparse_indices):
        flat, out = kv_cache.reshape(-1, 8), torch.zeros_like(q)
        for t, row in enumerate(sparse_indices):
            ids = row[row >= 0].long()
            assert (row[len(ids):] == -1).all() and ids.unique().numel() == len(ids)
            out[t] = (flat[ids] @ q[t]).softmax(0) @ flat[ids] if len(ids) else 0
        return out
    """,
)  # fmt: skip

ALL = (RAGGED, PAGED_DECODE, MLA_PREFILL, RAGGED_PREFILL, TABLE, ROUTED, SAMPLING, ROPE, DELTA, QUANTISED, PACKED, STEP,
       SLOTS, DENSE, SPARSE, BAGS)  # fmt: skip


@cache
def by_name() -> dict[str, Definition]:
    return {definition.name: definition for definition in ALL}
