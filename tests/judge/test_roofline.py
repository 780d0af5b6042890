"""What a call has to do at least: bytes by declared tensors and touched indices, operations by rule or by text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.model import Axis, Definition, TensorSpec
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.judge.performance import cards
from pytest_flashinfer.judge.performance.cards import Limits
from pytest_flashinfer.judge.performance.flops import _scored
from pytest_flashinfer.judge.performance.roofline import WorkError, rates, roofline, stated_count, work_of
from pytest_flashinfer.worker.case import Case, shapes_of

DEFINITIONS = Path(__file__).parents[2] / "definitions"
CARD = Limits(1e12, {"bfloat16": 1e15, "float16": 1e15}, "data sheet")
BF16 = 2


def shipped(path, axes, **values):
    definition = load_definition(DEFINITIONS / f"{path}.json").value
    axes = {**definition.const_axes, **axes}
    for name, spec in definition.inputs.items():
        if name not in values and spec.shape is not None:
            shape = [axes[axis] for axis in spec.shape]
            values[name] = torch.zeros(shape, dtype=getattr(torch, spec.dtype))
    ordered = {name: values.get(name, 1.0) for name in definition.inputs}
    return Case(definition, axes, Recipe(0), ordered, shapes_of(definition, axes))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_gemm():
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 3}))
    assert (work.flops.count, work.flops.dtype, work.counted) == (2 * 3 * 128 * 2048, "float16", "rule")
    assert (work.traffic.read, work.traffic.written) == (2 * (3 + 128) * 2048, 2 * 3 * 128)
    assert work.traffic.certain == work.traffic.read
    assert work.flops.certain


def test_packed_weights_count_as_they_are_stored():
    work = work_of(shipped("gemm/gemm_int4_weight_only_n4096_k4096", {"M": 1}))
    assert work.flops.count == 2 * 4096 * 4096
    assert work.traffic.read == 2 * 4096 + 4096 * 2048 + 4 * 128 * 4096


def test_norm_is_no_work_for_a_matrix_unit():
    work = work_of(shipped("rmsnorm/rmsnorm_h128", {"batch_size": 4}))
    assert (work.flops.count, work.flops.dtype) == (4 * 4 * 128, None)
    assert roofline(work, CARD, cold=True).bound == "memory"


def paged(indptr, pages, last, **changes):
    axes = {"batch_size": len(indptr) - 1, "len_indptr": len(indptr), "num_kv_indices": len(pages), "num_pages": 50}
    values = {"kv_indptr": ints(*indptr), "kv_indices": ints(*pages), "kv_last_page_len": ints(*last)}
    return shipped("gqa_paged/gqa_paged_decode_h32_kv8_d128_ps16", axes, **values | changes)


def test_paged_decode_counts_the_tokens_that_the_table_names():
    work = work_of(paged([0, 2, 3], [7, 9, 40], [5, 16]))
    tokens = (16 + 5) + 16
    other = 2 * 32 * 128 * BF16 + 4 * (3 + 3 + 2)
    assert work.traffic.read == 2 * tokens * 8 * 128 * BF16 + other
    assert work.flops.count == 2 * tokens * 32 * (128 + 128)
    assert work.traffic.certain == work.traffic.read


def test_pages_that_sequences_share_are_read_once():
    apart, shared = work_of(paged([0, 2, 3], [7, 9, 40], [5, 16])), work_of(paged([0, 2, 3], [7, 9, 7], [5, 16]))
    assert apart.traffic.read - shared.traffic.read == 2 * 16 * 8 * 128 * BF16
    assert apart.flops == shared.flops


def test_a_sequence_without_keys_reads_none():
    assert work_of(paged([0, 0, 1], [3], [0, 4])).flops.count == 2 * 4 * 32 * 256


def test_ragged_causal_prefill():
    axes = {"len_indptr": 4, "total_q": 7, "total_kv": 12}
    values = {"qo_indptr": ints(0, 3, 3, 7), "kv_indptr": ints(0, 5, 10, 12)}
    work = work_of(shipped("gqa_ragged/gqa_ragged_prefill_causal_h32_kv8_d128", axes, **values))
    pairs = (3 + 4 + 5) + 0 + (0 + 0 + 1 + 2)
    assert work.flops.count == 2 * pairs * 32 * 256
    keys = 5 + 2  # nobody asks for those of the second sequence
    assert work.traffic.read == 7 * 32 * 128 * BF16 + 2 * keys * 8 * 128 * BF16 + 2 * 4 * 4


def test_latent_attention_sums_the_widths_of_its_queries():
    axes = {"batch_size": 1, "len_indptr": 2, "num_kv_indices": 3, "num_pages": 9}
    values = {"kv_indptr": ints(0, 3), "kv_indices": ints(1, 5, 8)}
    work = work_of(shipped("mla_paged/mla_paged_decode_h16_ckv512_kpe64_ps1", axes, **values))
    assert work.flops.count == 2 * 3 * 16 * (512 + 64 + 512)


def test_dense_attention():
    axes = {"B": 2, "Q": 3, "KV": 5, "H_qo": 8, "H_kv": 2}
    assert work_of(shipped("gqa/gqa_hr4_dqk128_dvo128", axes)).flops.count == 2 * 2 * 3 * 5 * 8 * 256


def test_gathers_count_the_rows_that_are_named():
    ids = torch.tensor([5, 5, 9])
    work = work_of(shipped("embedding/embedding_v32000_d2048", {"batch_size": 3}, input_ids=ids))
    assert work.traffic.read == 2 * 2048 * BF16 + 3 * 8
    table = torch.zeros(2048, 128)
    axes = {"num_tokens": 2, "max_seq_len": 2048}
    case = shipped("rope/rope_with_cos_sin_cache_neox_h32_kv8_d128", axes, cos_sin_cache=table)
    assert work_of(case).traffic.read == 2 * 40 * 128 * BF16 + 128 * 4 + 2 * 8


def test_rows_that_are_replaced_are_written_and_not_read():
    axes = {"num_tokens": 2, "num_slots": 64}
    work = work_of(shipped("kv_cache/kv_cache_append_kv8_d128", axes, slot_mapping=ints(3, 60)))
    rows = 2 * 2 * 8 * 128 * BF16
    assert (work.traffic.read, work.traffic.written) == (rows + 8, rows)


def test_rows_that_are_updated_are_read_as_well():
    axes = {"batch_size": 1, "state_cache_size": 8}
    work = work_of(shipped("mamba_ssu/mamba_ssu_decode_h64_d64_s128_ng4", axes, state_batch_indices=ints(2)))
    state = 64 * 64 * 128 * BF16
    assert work.traffic.read > state
    assert work.traffic.written == state + 64 * 64 * BF16


def test_groups_without_rows_need_no_weights():
    axes = {"total_m": 4, "num_groups": 3, "len_indptr": 4}
    full = work_of(shipped("grouped_gemm/grouped_gemm_n1536_k2048", axes, m_indptr=ints(0, 1, 2, 4)))
    gaps = work_of(shipped("grouped_gemm/grouped_gemm_n1536_k2048", axes, m_indptr=ints(0, 4, 4, 4)))
    assert full.traffic.read - gaps.traffic.read == 2 * 1536 * 2048 * BF16
    assert full.flops.count == gaps.flops.count == 2 * 4 * 1536 * 2048


def test_an_expanded_input_is_stored_once():
    case = shipped("rmsnorm/rmsnorm_h128", {"batch_size": 4}, hidden_states=torch.zeros(1, 128).expand(4, 128))
    assert work_of(case).traffic.read == 128 * 4 + 128 * BF16


def test_what_a_kernel_may_leave_unread_is_no_floor():
    work = work_of(shipped("sampling/top_k_sampling_from_probs_v128256", {"batch_size": 1}))
    assert work.traffic.certain == 0
    assert roofline(work, CARD, cold=True).least == 0


def changed(case, **changes):
    return replace(case, definition=replace(case.definition, **changes))


@pytest.mark.parametrize(
    ("changes", "unread"),
    [
        ({"op_type": "fused_qk_norm"}, "all"),
        ({"name": "rmsnorm_masked"}, "all"),
        ({"reference": "def run(hidden_states, weight):\n    return hidden_states + 1\n"}, "weight"),
    ],
)
def test_only_what_cannot_be_left_unread_is_certain(changes, unread):
    case = shipped("rmsnorm/rmsnorm_h128", {"batch_size": 4})
    assert work_of(case).traffic.certain == 2 * 4 * 128 + 2 * 128
    assert work_of(changed(case, **changes)).traffic.certain == (0 if unread == "all" else 2 * 4 * 128)


AXES = {name: Axis("const", size) for name, size in {"T": 16, "H": 2, "S": 16, "K": 4, "V": 8, "R": 2}.items()}
REFERENCE = "def run(*inputs):\n    return softmax(inputs)\n"


def floor_of(op_type, inputs, output=("T", "H", "V"), reference=REFERENCE, **words):
    specs = {name: TensorSpec(tuple(shape), "float32") for name, shape in inputs.items()}
    outputs = {"out": TensorSpec(output, "float32")}
    definition = Definition(words.pop("name", "one"), op_type, AXES, specs, outputs, reference, **words)
    values = {name: torch.zeros([definition.const_axes[axis] for axis in shape]) for name, shape in inputs.items()}
    shape = tuple(definition.const_axes[axis] for axis in output)
    return work_of(Case(definition, definition.const_axes, Recipe(0), values, {"out": shape}))


LINEAR = {"q": "THK", "k": "THK", "v": "THV", "state": "HKV"}


@pytest.mark.parametrize(
    ("op_type", "words"),
    [
        *((op, {}) for op in ("linear_attention", "linear_attn_decode", "linear_scan", "gla", "gla_chunk", "gha")),
        *((op, {}) for op in ("gemmini", "bmmx", "attentionless", "mlarge", "moely", "normalize", "abnormal")),
        ("attention_linear", {}),
        ("attention", {"name": "linear_attention_h2"}),
        ("attention", {"description": "Lightning attention."}),
    ],
)
def test_what_only_looks_like_a_kind_has_no_floor(op_type, words):
    work = floor_of(op_type, LINEAR, **words)
    assert work.flops is None
    assert work.traffic.certain == 0


@pytest.mark.parametrize(
    ("op_type", "inputs", "reference", "certain"),
    [
        ("gemm", {"a": "TK", "b": "KV"}, REFERENCE, True),
        ("gemm_fp8", {"a": "TK", "b": "KV"}, REFERENCE, True),
        ("linear", {"a": "TK", "b": "KV"}, REFERENCE, True),
        ("bmm", {"a": "HTK", "b": "HKV"}, REFERENCE, True),
        ("gemm_triangular", {"a": "TK", "b": "KV"}, REFERENCE, False),
        ("gemm", {"a": "TK", "b": "KV"}, "def run(a, b):\n    return (a @ b).tril()\n", False),
        ("gemm", {"a": "TK", "down": "KR", "up": "RV"}, REFERENCE, False),  # of low rank
        ("mha", {"q": "THK", "k": "SHK", "v": "SHV"}, REFERENCE, True),
        ("attention", {"q": "THK", "k": "SHK", "v": "SHV"}, REFERENCE, True),
        ("mha_chunkwise", {"q": "THK", "k": "SHK", "v": "SHV"}, REFERENCE, False),
        ("mha", {"q": "THK", "k": "SHK", "v": "SHV"}, "def run(q, k, v):\n    return (q @ k.mT) @ v\n", False),
    ],
)
def test_operations_are_certain_only_where_no_order_of_them_saves_any(op_type, inputs, reference, certain):
    output = {"TK": ("T", "V"), "HTK": ("H", "T", "V")}.get(next(iter(inputs.values())), ("T", "H", "V"))
    assert floor_of(op_type, inputs, output, reference).flops.certain == certain


def test_a_part_that_the_reference_cuts_away_need_not_be_read():
    text = "def run(a, b):\n    return {} @ b\n"
    for a, read in (("a", 4 * (16 * 4 + 4 * 8)), ("torch.tril(a)", 0)):
        assert floor_of("gemm", {"a": "TK", "b": "KV"}, ("T", "V"), text.format(a)).traffic.certain == read
    text = "def run(q, k, v):\n    return softmax((q @ k).tril()) @ v\n"
    assert floor_of("mha", {"q": "THK", "k": "SHK", "v": "SHV"}, reference=text).traffic.certain > 0


@pytest.mark.parametrize(
    ("op_type", "name", "inputs", "each"),
    [
        ("rmsnorm", "padded_rmsnorm", {"x": "TV"}, 4),
        ("rmsnorm", "fused_add_rmsnorm", {"x": "TV", "residual": "TV"}, 5),
        ("rmsnorm", "rmsnorm_residual", {"x": "TV", "residual": "TV", "w": "V"}, 5),
        ("rmsnorm_grouped", "rmsnorm", {"x": "TV"}, 4),
        ("layered_rms_norm", "rmsnorm", {"x": "TV"}, 4),
        ("layer_norm", "one", {"x": "TV", "w": "V"}, 7),
        ("fused_add_layernorm", "one", {"x": "TV", "residual": "TV"}, 8),
        ("groupnorm", "one", {"x": "TV"}, 7),
    ],
)
def test_operations_of_a_norm_follow_its_inputs(op_type, name, inputs, each):
    assert floor_of(op_type, inputs, ("T", "V"), name=name).flops.count == each * 16 * 8


def moe(name, sizes, reference="def run(x, gemm1_weights):\n    ...\n", ids=None):
    axes = {"T": Axis("var"), "num_experts": Axis("const", 32), "H": Axis("const", 8)}
    axes |= {name: Axis("const", size) for name, size in sizes.items()}
    values = {"x": torch.zeros(2, 8), "gemm1_weights": torch.zeros(32, 8, 8)}
    inputs = {"x": TensorSpec(("T", "H"), "float32"), "gemm1_weights": TensorSpec(("num_experts", "H", "H"), "float32")}
    if ids is not None:
        inputs["topk_ids"], values["topk_ids"] = TensorSpec(("T", "k"), "int32"), torch.tensor(ids, dtype=torch.int32)
        axes["k"] = Axis("const", len(ids[0]))
    definition = Definition(name, "moe", axes, inputs, {"y": TensorSpec(("T", "H"), "float32")}, reference)
    known = {**definition.const_axes, "T": 2}
    read = work_of(Case(definition, known, Recipe(0), values, shapes_of(definition, known))).traffic.read
    return (read - 64 - (4 * 2 * len(ids[0]) if ids is not None else 0)) // (4 * 8 * 8)


def test_weights_of_experts_that_nobody_is_sent_to_are_not_read():
    assert moe("moe_topk3", {}) == 32  # a name binds nobody
    assert moe("moe", {"top_k": 3}) == moe("moe_topk9", {"num_experts_per_tok": 3}) == 6
    assert moe("moe", {}, "K = 9\nTOP_K, GROUPS = 3, 4\n\ndef run(x, gemm1_weights):\n    ...\n") == 6
    assert moe("moe", {}, ids=[[4, 5, 6], [6, 5, 9]]) == 4


def test_a_workspace_is_not_read():
    case = shipped("rmsnorm/rmsnorm_h128", {"batch_size": 4})
    inputs = {**case.definition.inputs, "workspace_buffer": TensorSpec(("batch_size",), "uint8")}
    more = replace(changed(case, inputs=inputs), values={**case.values, "workspace_buffer": torch.zeros(1 << 20)})
    assert work_of(more).traffic == work_of(case).traffic


def test_a_number_may_say_how_much_of_a_tensor_is_in_use():
    case = shipped("rmsnorm/rmsnorm_h128", {"batch_size": 4})
    inputs = {**case.definition.inputs, "rows": TensorSpec(None, "int32")}
    assert work_of(replace(changed(case, inputs=inputs), values={**case.values, "rows": 2})).traffic.certain == 0


def test_operations_under_a_mask_that_no_name_tells_of_are_an_estimate():
    axes = {"B": 2, "Q": 3, "KV": 5, "H_qo": 8, "H_kv": 2}
    case = shipped("gqa/gqa_hr4_dqk128_dvo128", axes)
    assert work_of(case).flops.certain
    assert not work_of(changed(case, reference="def run(q, k, v):\n    return (q @ k).tril() @ v\n")).flops.certain


@given(st.integers(0, 40), st.integers(0, 40))
def test_pairs_under_a_causal_mask(queries, keys):
    assert _scored(queries, keys, causal=True) == sum(max(0, keys - queries + i + 1) for i in range(queries))


def own(**extra):
    inputs = {"x": TensorSpec(("n", "h"), "bfloat16"), "lens": TensorSpec(("n",), "int32")}
    axes = {"n": Axis("var"), "h": Axis("const", 8)}
    definition = Definition("odd", "odd", axes, inputs, {"y": TensorSpec(("n",), "float32")}, None, extra=extra)
    values = {"x": torch.zeros(4, 8, dtype=torch.bfloat16), "lens": ints(1, 2, 3, 4)}
    return Case(definition, {"n": 4, "h": 8}, Recipe(0), values, {"y": (4,)})


def test_a_definition_counts_for_itself():
    assert work_of(own()).flops is None
    work = work_of(own(flops="2 * n * h * lens.sum().item()", bytes="n * h"))
    assert (work.flops.count, work.flops.dtype, work.counted) == (2 * 4 * 8 * 10, "bfloat16", "definition")
    assert work.traffic.total == 32
    assert work_of(own(flops=7)).flops.count == 7
    assert work_of(own(flops="n"), own=12.0).flops.count == 12


@pytest.mark.parametrize("text", ["2 * m", "n / 0", "-1", "__import__('os')", "1e300 ** 2", "n +"])
def test_a_count_that_is_none(text):
    with pytest.raises(WorkError, match="odd: flops"):
        stated_count(own(flops=text), "flops")


@pytest.mark.parametrize("count", [float("nan"), float("inf"), -1.0, 1e30])
def test_a_fixture_that_gives_no_count(count):
    with pytest.raises(WorkError, match=r"odd: the fixture flops gives .*, which is no count"):
        work_of(own(), own=count)


def test_the_slower_of_the_two_decides():
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 3}))
    assert roofline(work, CARD, cold=True).seconds == pytest.approx(work.traffic.total / 1e12)
    slow = roofline(work, Limits(1e12, {"float16": 1e9}, "data sheet"), cold=True)
    assert (slow.bound, slow.seconds) == ("compute", work.flops.count / 1e9)


def test_more_than_all_is_flagged_and_far_more_is_not_believed():
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 3}))
    roof = roofline(work, CARD, cold=True)
    assert "roofline_note" not in roof.facts(2 * roof.seconds)
    assert roof.facts(2 * roof.seconds)["roofline_share"] == pytest.approx(0.5)
    assert "cache, or a wrong count" in roof.facts(0.9 * roof.seconds)["roofline_note"]
    assert roof.below(0.9 * roof.seconds) is None
    assert "below the 0.54 us that the card needs to read 0.537 MB" in roof.below(0.5 * roof.seconds)


def test_the_floor_leaves_out_what_a_cache_may_hold():
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 3}))
    assert roofline(work, CARD, cold=True).least == pytest.approx(work.traffic.read / 1e12)
    assert roofline(work, CARD, cold=False).least == pytest.approx(work.flops.count / 1e15)
    measured = replace(CARD, source="measured")
    assert roofline(work, measured, cold=True).least == pytest.approx(work.traffic.read / 1e12 / 1.3)


def test_a_card_that_is_measured_may_have_faster_units():
    """Eight times as fast as 16-bit floats, on some; nobody is called a liar for it."""
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 8192}))
    for source, least in (("data sheet", work.flops.count / 1e15), ("measured", 0.0)):
        assert roofline(work, replace(CARD, source=source), cold=False).least == pytest.approx(least)


@pytest.mark.parametrize(
    ("name", "fastest"),
    [("NVIDIA A100-SXM4-80GB", 1248), ("Tesla T4", 260), ("NVIDIA H200", 1978.9), ("NVIDIA B200", 9000)],
)
def test_products_of_integers_are_as_fast_as_the_sheets_say(name, fastest):
    assert cards.known(name).fastest == fastest * 1e12


def test_rates_need_no_card():
    work = work_of(shipped("gemm/gemm_n128_k2048", {"M": 3}))
    assert rates(work, 1e-6) == {"gb_per_s": work.traffic.total / 1e3, "tflop_per_s": work.flops.count / 1e6}
    assert rates(work, 0.0) == {}


@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16"),
    [
        ("NVIDIA H100 80GB HBM3", 3.352, 989.4),
        ("NVIDIA H100 PCIe", 2.039, 756),
        ("NVIDIA H100 NVL", 3.938, 835),
        ("NVIDIA H200", 4.8, 989.4),
        ("NVIDIA H20", 4.0, 148),
        ("NVIDIA B200", 8.0, 2250),
        ("NVIDIA GB200", 8.0, 2500),
        ("NVIDIA A100-SXM4-80GB", 2.039, 312),
        ("NVIDIA A100-SXM4-40GB", 1.555, 312),
        ("NVIDIA A100 80GB PCIe", 1.935, 312),
        ("NVIDIA A10", 0.6, 125),
        ("NVIDIA L4", 0.3, 121),
        ("NVIDIA L40S", 0.864, 362),
        ("Tesla V100-SXM2-16GB", 0.9, 125),
        ("Tesla T4", 0.32, 65),
    ],
)
def test_known_cards(name, bandwidth, bf16):
    limits = cards.known(name)
    assert limits.bandwidth == bandwidth * 1e12
    assert limits.matrix["bfloat16"] == bf16 * 1e12
    assert limits.facts()["source"] == "data sheet"


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090", ""])
def test_unknown_cards_are_measured_instead(name):
    assert cards.known(name) is None
