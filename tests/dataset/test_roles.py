"""What inputs of each shipped definition are taken for: a table to be read against the definitions.

A wrong role is no error anywhere else: a kernel is then judged on contents that leave out what matters.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.plan import plan_of
from tests.dataset.library import DEFINITIONS, definition_id

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flashinfer.inputs.roles.subject import Role

QUERIES_OF_PAGES = "q: data, k_cache: data, v_cache: data"
DECODED = "kv_indptr: indptr to num_kv_indices, kv_indices: page_ids < num_pages"
PREFILLED = f"qo_indptr: indptr to total_q, {DECODED}"
LAST = "kv_last_page_len: last_page_len < page_size"
LATENT = "q_nope: data, q_pe: data, ckv_cache: data, kpe_cache: data"
RAGGED = "q: data, k: data, v: data, qo_indptr: indptr to total_q, kv_indptr: indptr to total_kv, sm_scale: number"
# `a < b` is an index below b, `a to b` are boundaries up to b, and `a over b` is summed over b with an activation.
TABLE = {
    "*_and_mul_h14336": "input: data",
    "merge_state_*": "v_a: data, s_a: data, v_b: data, s_b: data",
    "embedding_*": "input_ids: token_ids < vocab_size, weight: data",
    "gdn_decode_*": "q: unit, k: unit, v: data, state: data, A_log: a_log, a: data, dt_bias: bias, b: data,"
    " scale: number",
    "gemm_fp8_*": "A: data, B: weight over K, A_scale: scale, B_scale: weight_scale over K",
    "gemm_int4_*": "A: data, B_packed: bytes, B_scale: weight_scale over K",
    "gemm_n*": "A: data, B: weight over K",
    "gqa_hr4_*": "q: data, k: data, v: data",
    "gqa_paged_decode_*_ps1": f"{QUERIES_OF_PAGES}, {DECODED}, sm_scale: number",
    "gqa_paged_decode_*_ps[16][64]": f"{QUERIES_OF_PAGES}, {DECODED}, {LAST}, sm_scale: number",
    "gqa_paged_prefill_*_ps1": f"{QUERIES_OF_PAGES}, {PREFILLED}, sm_scale: number",
    "gqa_paged_prefill_*_ps[16][64]": f"{QUERIES_OF_PAGES}, {PREFILLED}, {LAST}, sm_scale: number",
    "gqa_ragged_*": RAGGED,
    "grouped_gemm_*": "a: data, b: data, m_indptr: indptr to total_m",  # as many weights as groups, which vary
    "kv_cache_append_*": "k: data, v: data, k_cache: data, v_cache: data, slot_mapping: slots < num_slots",
    "layernorm_*": "hidden_states: data, weight: unit_weight, bias: bias",
    "mamba_ssu_*": "state: data, x: data, dt: time_step, A: negative, B: data, C: data, D: data, dt_bias: bias,"
    " state_batch_indices: slots < state_cache_size",
    "mla_paged_decode_*": f"{LATENT}, {DECODED}, sm_scale: number",
    "mla_paged_prefill_*": f"{LATENT}, {PREFILLED}, sm_scale: number",
    "mla_ragged_*": RAGGED,
    "moe_fp8_*": "routing_logits: data, routing_bias: bias, hidden_states: data, hidden_states_scale: scale,"
    " gemm1_weights: weight over hidden_size, gemm1_weights_scale: weight_scale over hidden_size,"
    " gemm2_weights: weight over intermediate_size, gemm2_weights_scale: weight_scale over intermediate_size,"
    " local_expert_offset: number, routed_scaling_factor: number",
    "topk_softmax_*": "router_logits: data",
    "fp8_quantize_*": "input: data",
    "fused_add_rmsnorm_*": "hidden_states: data, residual: data, weight: unit_weight",
    "rmsnorm_*": "hidden_states: data, weight: unit_weight",
    "rope_*": "q: data, k: data, cos_sin_cache: cos_sin, positions: positions < max_seq_len",
    "min_p_*": "probs: probs, min_p: min_p",
    "top_k_sampling_*": "probs: probs, top_k: top_k < vocab_size",
    "top_p_*": "probs: probs, top_p: top_p",
    "softmax_*": "logits: data",
}


def shown(role: Role | None) -> str:
    if role is None:
        return "number"
    over = "over" if role.kind in {"weight", "weight_scale"} else "to"
    limit = f" < {ast.unparse(role.limit)}" if role.limit is not None else ""
    return role.kind + limit + (f" {over} {ast.unparse(role.axis)}" if role.axis is not None else "")


@pytest.mark.parametrize("path", DEFINITIONS, ids=definition_id)
def test_inputs_are_taken_for_what_they_are(path: Path) -> None:
    (row,) = (text for pattern, text in TABLE.items() if fnmatchcase(path.stem, pattern))
    definition = load_definition(path).value
    assert definition is not None
    roles = plan_of(contract_of(definition)).roles
    assert ", ".join(f"{name}: {shown(roles.get(name))}" for name in definition.inputs) == row


def test_no_row_is_left_over() -> None:
    assert [p for p in TABLE if not any(fnmatchcase(path.stem, p) for path in DEFINITIONS)] == []
