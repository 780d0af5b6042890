"""Values: families, ranges that give inputs their meaning, dtypes, strides, optional inputs and scalars."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.data.dtypes import DTYPES as DTYPES_OF_DEFINITIONS
from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.dtypes import NOT_TENSORS, is_packed, storage_shape, torch_dtype
from pytest_flashinfer.inputs.errors import BadData, InputsError, UnknownDtype
from pytest_flashinfer.inputs.floats.families import FAMILIES, SPECIAL, fill
from pytest_flashinfer.inputs.floats.values import Source, Want, family_names, float_tensor, shows_leaks
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.layout import like, ordered, strided
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.packed_integers import content_bytes
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.grid import grid_of
from tests.inputs.contracts import (
    DELTA,
    DENSE,
    PACKED,
    PAGED_DECODE,
    QUANTISED,
    ROPE,
    SAMPLING,
    STEP,
    axes,
    define,
    tensor,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
SOFTMAX = define(
    "softmax", axes(n=None, v=33), {"logits": tensor("n v"), "temperature": tensor(None)}, {"p": tensor("n v")}, "",
    description="A row of all -inf gives NaN; NaN spreads over its row.",
)  # fmt: skip


def filled(
    family: str, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (32, 48), seed: int = 1
) -> torch.Tensor:
    x = torch.empty(shape, dtype=dtype)
    fill(x, family, torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1))
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_finite_unless_they_say_otherwise(family, dtype):
    x = filled(family, dtype).float()
    special = family in SPECIAL and dtype.itemsize > 1
    assert bool(x.isfinite().all()) != special


def test_families_are_what_they_are_called():
    assert filled("large", torch.float16).abs().max() > 256  # its square overflows
    assert filled("huge").abs().max() > 65504
    assert 0 < filled("tiny").abs().mean() < 0.01
    assert (filled("zero_rows")[0] == 0).all()
    assert filled("negative").max() < 0
    assert filled("positive").min() > 0
    ties = filled("ties")
    assert len(ties.unique()) == 3
    assert set(ties[ties == 0].signbit().tolist()) == {False, True}
    assert 0 < (ties[1:] == ties[:-1]).all(1).sum() < len(ties) - 1
    constant = filled("constant_rows")
    assert (constant.std(1) == 0).all()
    assert 10 < constant.abs().max() <= 64, "a variance from squares is below zero in some"
    assert constant.abs().min() < 0.01
    assert (filled("sparse") == 0).float().mean() > 0.8
    assert torch.equal(filled("small_ints"), filled("small_ints").round())
    assert filled("peaks")[0].argmax() == 47
    masked = filled("neginf") == -math.inf
    assert masked[0].all()
    ends = [row[:3].all() and not row.all() for row in (*masked, *masked.flip(1))]
    assert any(ends[: len(masked)]), "as where a window begins"
    assert any(ends[len(masked) :]), "as where lengths end"
    assert filled("nan").isnan().any(1)[0]
    assert filled("offset").mean(1).min() > 8 * filled("offset").std(1).max()
    row = filled("big_row").abs().amax(1)
    assert row.max() > 1000 * row.median()


def test_patterns_are_what_they_are_called():
    rows = torch.cat([filled("sorted", seed=seed) for seed in range(12)]).diff(dim=1)
    rising, falling = (rows >= 0).all(1), (rows <= 0).all(1)
    assert (rising ^ falling).all()
    assert len(rows) / 4 < rising.sum() < len(rows) * 3 / 4
    half = filled("repeated")
    assert torch.equal(half[:, :24], half[:, 24:])
    zeros = [(filled("half_zero", seed=seed) == 0).all(0).tolist() for seed in range(20)]
    assert all(each == sorted(each) and not each[0] for each in zeros)
    assert 6 < zeros.count([False] * 24 + [True] * 24) < 20
    for family in ("sorted", "repeated", "half_zero", "equal"):
        assert filled(family, shape=(3, 1)).isfinite().all()
        assert filled(family, shape=(1,)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(
    ("one", "other", "count"), [("m k", "n k", 5), ("b q h k", "b s g k", 5), ("t h k", "u g k", 20)]
)
def test_rows_are_equal_at_the_same_places_of_all_tensors(dtype, one, other, count):
    name = str(dtype).removeprefix("torch.")
    free = dict.fromkeys((*one.split(), *other.split()), None)
    pair = define("pair", axes(**free), {"x": tensor(one, name), "y": tensor(other, name)}, {"z": tensor("k")}, "")
    sizes = dict(zip(free, (4, 5, 6, 16, 9, 2), strict=False)) | {"k": 16}
    inputs = make_inputs(pair, sizes, Recipe(3, family="equal"))
    x, y = (inputs[each].float() for each in ("x", "y"))
    same = tuple(slice(0, min(n, m)) for n, m in zip(x.shape, y.shape, strict=True))
    assert torch.equal(x[same], y[same])
    assert len(x.view(-1, x.shape[-1]).unique(dim=0)) > 3


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_weights_have_rows_and_columns_of_zeros_or_those_of_the_activations(dtype):
    product = define("product", axes(m=None, n=24, k=16), {"x": tensor("m k", dtype), "weight": tensor("n k", dtype)},
                     {"y": tensor("m n")}, "")  # fmt: skip
    for family in ("sparse", "half_zero"):
        weight = make_inputs(product, {"m": 3}, Recipe(1, family=family))["weight"].float()
        assert 1 <= (weight == 0).all(1).sum() < 12
        assert 1 <= (weight == 0).all(0).sum() < 4
    same = make_inputs(product, {"m": 3}, Recipe(1, family="equal"))
    assert torch.equal(same["x"].float(), same["weight"][:3].float())


def test_close_values_differ_but_tie_in_half_precision():
    x = filled("close", shape=(1, 16))
    assert len(x.unique()) == 16
    assert len(x.half().unique()) < 8


def test_rows_that_stand_out_are_the_same_in_all_tensors():
    pair = define("add", axes(n=None, h=8), {"x": tensor("n h"), "residual": tensor("n h")}, {"y": tensor("n h")}, "")
    inputs = make_inputs(pair, {"n": 20}, Recipe(0, family="zero_rows"))
    zero = [(inputs[name] == 0).all(1) for name in ("x", "residual")]
    assert zero[0].any()
    assert torch.equal(*zero)
    assert not torch.equal(inputs["x"], inputs["residual"])


def test_values_that_are_not_finite_only_where_the_contract_speaks_of_them():
    offered = [set(family_names(contract_of(d), plan_of(contract_of(d)))) & SPECIAL for d in (SOFTMAX, STEP)]
    assert offered == [{"nan", "neginf"}, set()]


GRADS = {"g": tensor("n h"), "p": tensor("n h"), "factor": tensor(""), "logits": tensor("n h")}


def asking(code, **changes):
    lines = f"def run(g, p, factor, logits):\n    {code}\n"
    return replace(define("asking", axes(n=None, h=8), GRADS, {"y": tensor("n h")}, lines), **changes)


@pytest.mark.parametrize(("code", "held"), [
    ("f = g.float() * factor\n    return ~torch.isfinite(f).all()", {"nan": "g", "inf": "g", "neginf": "g"}),
    ("return torch.nan_to_num(-p / 8)", {"nan": "p", "inf": "p", "neginf": "p"}),
    ("return g[:, :4].abs().isnan()", {"nan": "g"}),
    ("g = g.float()\n    return torch.isinf(input=g).any()", {"inf": "g", "neginf": "g"}),
    ("g *= factor\n    return g.isposinf()", {"inf": "g"}),
    ("return torch.where(torch.isinf(logits), 0, g)", {"neginf": "logits"}),
    ("e = torch.softmax(p, -1)\n    return torch.where(torch.isinf(p), 0, e)", {"neginf": "p"}),
    ("return torch.isfinite((g * p).sum())", {}),
    ("p = torch.log(p)\n    return torch.isinf(p)", {}),
    ("p = p.clone()\n    p[g > 0] = float('inf')\n    return torch.isinf(p)", {}),
    ("p.div_(g)\n    return torch.isnan(p)", {}),
    ("assert torch.isfinite(g).all()\n    return g", {}),
    ("if torch.isnan(g).any():\n        raise ValueError\n    return g", {}),
])  # fmt: skip
def test_what_a_reference_asks_an_input_for_it_holds_in_some_cases(code, held):
    definition = asking(code)
    families = set(family_names(contract_of(definition), plan_of(contract_of(definition)))) & SPECIAL
    assert families == held.keys()
    for family in families:
        made = make_inputs(definition, {"n": 9}, Recipe(0, family=family))
        assert [name for name, value in made.items() if not value.isfinite().all()] == [held[family]]


def test_words_count_beside_what_a_reference_asks():
    spoken = asking("return torch.isnan(g)", description="NaN in logits spreads.")
    made = make_inputs(spoken, {"n": 9}, Recipe(0, family="nan"))
    assert {name for name, value in made.items() if value.isnan().any()} == {"g", "logits"}


CODES = {"a": tensor("m k", "int8"), "b": tensor("k n", "int8"), "sa": tensor("m"), "sb": tensor("1 n"),
         "c": tensor("n")}  # fmt: skip


@pytest.mark.parametrize(("code", "kinds"), [
    ("return (a.int() @ b.int()).float() * sa[:, None] * sb + c", ("weight_scale", "weight_scale", "data")),
    ("acc = torch.matmul(a.int(), b.int())\n    y = acc.float()\n    y *= sa[:, None] * sb\n    return y + c",
     ("weight_scale", "weight_scale", "data")),
    ("s = sa.view(-1, 1)\n    return s * torch._int_mm(a, b) + sb + c", ("weight_scale", "data", "data")),
    ("acc = 0\n    acc += a.float() @ b.float()\n    return sb * acc", ("data", "weight_scale", "data")),
    ("return (a.float() @ (b.float() + c)) * sa[:, None] + sb", ("data", "data", "data")),
    ("return a.float() * sa[:, None]", ("data", "data", "data")),
])  # fmt: skip
def test_what_multiplies_a_product_of_integers_is_a_scale_whatever_its_name(code, kinds):
    reference = f"def run(a, b, sa, sb, c):\n    {code}\n"
    product = define("product", axes(m=None, k=64, n=None), CODES, {"y": tensor("m n")}, reference)
    roles = plan_of(contract_of(product)).roles
    assert tuple(roles[name].kind for name in ("sa", "sb", "c")) == kinds


def test_probabilities_stay_probabilities_in_every_family():
    for family in grid_of(SAMPLING).families:
        p = make_inputs(SAMPLING, {"batch": 6}, Recipe(0, family=family))["probs"]
        assert torch.allclose(p.sum(1), torch.ones(6), atol=1e-5)
        assert (p >= 0).all()
    assert make_inputs(SAMPLING, {"batch": 6}, Recipe(0, family="peaks"))["probs"].max() > 0.99


LOGITS = define(
    "from_logits", axes(batch=None, vocab=64), {"logits": tensor("batch vocab"), "hidden": tensor("batch vocab")},
    {"ids": tensor("batch", "int64")}, "def run(logits, hidden):\n    return torch.multinomial(logits.softmax(-1), 1)",
    op_type="sampling",
)  # fmt: skip


@pytest.mark.parametrize(("definition", "name"), [(SAMPLING, "probs"), (LOGITS, "logits")], ids=["probs", "logits"])
def test_one_id_leads_some_rows_that_are_sampled_and_others_are_flat(definition, name):
    drawn = make_inputs(definition, {"batch": 400}, Recipe(2))[name]
    most = (drawn if name == "probs" else drawn.softmax(1)).amax(1)
    for low, high in ((0.7, 0.8), (0.8, 0.9), (0.9, 0.96)):
        assert ((most > low) & (most < high)).sum() > 8
    assert (most < 0.3).sum() > 100
    steps = drawn.diff(dim=1)
    assert all(10 < found < 50 for found in ((steps >= 0).all(1).sum(), (steps <= 0).all(1).sum()))
    assert make_inputs(definition, {"batch": 1}, Recipe(2))[name].isfinite().all()


def test_rows_of_one_id_are_certain():
    one = define(
        "one", axes(batch=None, v=1), {"probs": tensor("batch v")}, {"i": tensor("batch")}, "", op_type="sampling"
    )
    assert (make_inputs(one, {"batch": 50}, Recipe(1))["probs"] == 1).all()


def test_keys_of_delta_rules_have_unit_norm():
    inputs = make_inputs(DELTA, {"total": 9, "num_seqs": 2, "len_cu_seqlens": 3}, Recipe(0, family="large"))
    assert torch.allclose(inputs["k"].float().norm(dim=-1), torch.ones(9, 2), atol=0.02)


def test_scales_are_positive_and_weights_keep_sums_near_one():
    inputs = make_inputs(QUANTISED, {"m": 7}, Recipe(0))
    assert (inputs["a_scale"] > 0).all()
    assert (inputs["b_scale"] > 0).all()
    assert inputs["b_scale"].max() < 0.3  # 2 / sqrt(64): products of 64 terms sum to about 1
    assert inputs["a"].dtype is torch.float8_e4m3fn


def test_packed_types_take_half_the_last_axis():
    inputs = make_inputs(PACKED, {"m": 5}, Recipe(0))
    assert inputs["a"].shape == (5, 16)
    assert inputs["a"].dtype is torch.uint8
    assert inputs["a_scale"].view(torch.uint8).min() >= 122
    assert storage_shape((4, 6), "int4") == (4, 3)
    with pytest.raises(InputsError, match="packs two"):
        storage_shape((4, 5), "float4_e2m1")


def test_every_dtype_of_tensors_has_a_torch_dtype():
    for name in {*DTYPES_OF_DEFINITIONS} - NOT_TENSORS:
        assert torch_dtype(name) is (torch.uint8 if is_packed(name) else getattr(torch, name))
    with pytest.raises(UnknownDtype, match="string"):
        torch_dtype("string")


def test_a_declared_order_of_axes_is_real():
    q = make_inputs(DENSE, {"B": 2, "Q": 3, "KV": 4, "H_qo": 4, "H_kv": 2}, Recipe(0))["q"]
    assert q.shape == (2, 3, 4, 8)
    assert q.stride() == (96, 8, 24, 1)
    with pytest.raises(ValueError, match="permutation"):
        ordered(q, (0, 0, 1, 2))


def test_strided_rows_have_gaps_that_show():
    x = torch.randn(4, 6, 2)
    part = strided(x)
    assert torch.equal(part, x)
    assert part.stride() == (28, 2, 1)
    assert like(part, part).stride() == part.stride()
    assert like(part, part).data_ptr() != part.data_ptr()
    whole = part.as_strided((4, 28), (28, 1))
    assert whole[:3, 12:].isnan().all()
    inputs = make_inputs(PAGED_DECODE, {"batch": 3, "pages": 5, "num_kv_indices": 4, "len_indptr": 4},
                         Recipe(0, layout="strided"))  # fmt: skip
    assert not inputs["q"].is_contiguous()
    assert inputs["kv_indices"].is_contiguous()
    assert inputs["k_cache"].stride() == inputs["v_cache"].stride()


def test_inputs_of_one_shape_have_gaps_of_their_own():
    """A kernel may take the strides of one for those of another."""
    pair = define("add", axes(n=None, d=16), {"x": tensor("n d"), "y": tensor("n d")}, {"z": tensor("n d")}, "")
    made = make_inputs(pair, {"n": 5}, Recipe(0, layout="strided"))
    assert (made["x"].stride(), made["y"].stride()) == ((24, 1), (32, 1))


def test_the_same_recipe_gives_the_same_bits_and_the_global_generator_stays():
    state = torch.get_rng_state()
    one, two = (make_inputs(SAMPLING, {"batch": 4}, Recipe(7)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], two[name]) for name in one)
    other = make_inputs(SAMPLING, {"batch": 4}, Recipe(8))
    assert not torch.equal(one["probs"], other["probs"])


def test_leaving_out_an_input_does_not_change_the_others():
    sizes = {"total": 9, "num_seqs": 3, "len_cu_seqlens": 4}
    full, less = (make_inputs(DELTA, sizes, Recipe(3, absent=frozenset(absent))) for absent in ((), ("state",)))
    assert full["state"] is not None
    assert less["state"] is None
    assert all(torch.equal(full[n], less[n]) for n in full if isinstance(less[n], torch.Tensor))


def test_optional_inputs_of_a_workload():
    line = {"x": InputSpec("random")}
    assert make_inputs(STEP, {"n": 3}, Recipe(0), workload=Workload("w", {"n": 3}, line))["state"] is None
    both = Workload("w", {"n": 3}, {**line, "state": InputSpec("random")})
    assert make_inputs(STEP, {"n": 3}, Recipe(0), workload=both)["state"].shape == (3, 8)
    with pytest.raises(BadData, match="no entry for input `x`"):
        make_inputs(STEP, {"n": 3}, Recipe(0), workload=Workload("w", {"n": 3}, {}))
    assert grid_of(STEP).optional == ("state",)


def test_what_a_reference_cannot_do_without_is_never_left_out():
    needs = define("needs", axes(n=None), {"x": tensor("n"), "s": tensor("n", optional=True)}, {"y": tensor("n")},
                   "def run(x, s):\n    return x + s")  # fmt: skip
    assert grid_of(needs).optional == ()


def test_scalars_take_their_usual_value_and_recipes_change_it():
    inputs = make_inputs(DELTA, {"total": 1, "num_seqs": 1, "len_cu_seqlens": 2}, Recipe(0))
    assert inputs["scale"] == pytest.approx(8**-0.5)
    assert 8**-0.5 not in grid_of(DELTA).scalars["scale"]
    assert make_inputs(SOFTMAX, {"n": 2}, Recipe(0, scalars={"temperature": 0.5}))["temperature"] == 0.5
    given = Workload("w", {"n": 2}, {"logits": InputSpec("random"), "temperature": InputSpec("scalar", 3)})
    assert make_inputs(SOFTMAX, {"n": 2}, Recipe(0, scalars={"temperature": 0.5}), workload=given)["temperature"] == 3.0


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (tensor(None, description="eps=1e-5 as in the paper"), 1e-5),
        (tensor(None, description="1/sqrt(128 + 64), before absorption"), 192**-0.5),
        (tensor(None, "int32"), 5),
        (tensor(None, "bool"), True),
        (tensor("", "float16"), 1.0),
    ],
)
def test_usual_values_come_from_descriptions_and_names(spec, value):
    name = {"float32": "eps" if "eps" in (spec.description or "") else "sm_scale", "int32": "n", "bool": "causal"}
    chosen = name.get(spec.dtype, "alpha")
    definition = define("d", axes(n=None), {"x": tensor("n"), chosen: spec}, {"y": tensor("n")}, "")
    made = make_inputs(definition, {"n": 5}, Recipe(0))[chosen]
    assert float(made) == pytest.approx(float(value), rel=1e-6)
    assert isinstance(made, torch.Tensor) == (spec.shape == ())


@pytest.mark.parametrize(
    ("description", "width"),
    [
        ("1/sqrt(head_dim_qk + head_dim_kpe) = 1/sqrt(192)", 192),  # the first names what there is not
        ("1/sqrt(head_dim_qk)", 48),
        ("1/sqrt(qk + rope)", 48),
        ("1/sqrt(nope + rope)", 24),
    ],
)
def test_a_softmax_scale_is_of_sizes_that_the_definition_has(description, width):
    scale = tensor(None, description=description)
    sizes = axes(n=None, head_dim=48, nope=16, rope=8)
    definition = define("d", sizes, {"x": tensor("n head_dim"), "sm_scale": scale}, {"y": tensor("n")}, "")
    assert make_inputs(definition, {"n": 5}, Recipe(0))["sm_scale"] == pytest.approx(width**-0.5)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("slot_mapping", "int32"), ("slots", "int32"), ("block_tables", "int32"), ("pagetable", "int32"),
        ("cu_seqlens", "int32"), ("topk_idx", "int32"), ("kv_indices", "int32"), ("cu_blocks", "int32"),
        ("slotted", "bfloat16"), ("stable_softmax", "bfloat16"), ("focu_s", "bfloat16"), ("accu_x", "bfloat16"),
        ("indexer_weights", "bfloat16"),
    ],
)  # fmt: skip
def test_an_unknown_dtype_is_that_of_indices_where_a_whole_word_of_the_name_says_so(name, dtype):
    inputs = {"x": tensor("n h", "bfloat16"), name: tensor("n h", "unknown")}
    assert contract_of(define("d", axes(n=None, h=8), inputs, {"y": tensor("n")}, "")).dtype(name) == dtype


def test_rotary_tables_hold_cosines_and_sines():
    table = make_inputs(ROPE, {"num_tokens": 4, "max_position": 9}, Recipe(0, family="huge"))["cos_sin_cache"]
    factor = float(table[0, 0])
    assert table[0].tolist() == [factor] * 4 + [0.0] * 4
    assert table[3, 0] == pytest.approx(factor * math.cos(3), abs=1e-6)


def test_overrides_are_taken_as_they_are():
    mine = torch.full((3, 8), 2.0)
    inputs = make_inputs(STEP, {"n": 3}, Recipe(0, layout="strided"), given={"x": mine})
    assert inputs["x"] is mine


def ranged(kind, family, count=512):
    return float_tensor(Want("w", kind, (count,), torch.float32), family, Source(3, torch.device("cpu")))


def test_norm_weights_are_near_one_but_not_in_every_family():
    assert ranged("unit_weight", "normal").sub(1).abs().max() < 0.6
    for family in ("large", "tiny", "ties"):
        weights = ranged("unit_weight", family)
        assert weights.min() < -4
        assert weights.max() > 20, "exponentials of what they scale overflow"
        assert (weights == 0).any()
        assert (weights - 1).abs().median() < 0.2


def test_the_usual_min_p_is_among_them():
    values = ranged("min_p", "normal")
    assert 0.05 < (values == 0).float().mean() < 0.3
    assert values.min() == 0


def test_top_p_may_leave_all():
    values = ranged("top_p", "normal")
    assert 0.02 < (values == 1).float().mean() < 0.2
    assert values.max() == 1


def test_queries_are_above_zero_where_keys_are_below_so_that_all_scores_are_low():
    sizes = {"batch": 6, "pages": 9, "len_indptr": 7, "num_kv_indices": 9}
    inputs = make_inputs(PAGED_DECODE, sizes, Recipe(0, family="opposed"))
    assert inputs["q"].min() > 0
    assert max(inputs["k_cache"].max(), inputs["v_cache"].max()) < 0
    keys = inputs["k_cache"].float().flatten(0, 2)
    scores = inputs["q"].float().flatten(0, 1) @ keys.T / keys.shape[1] ** 0.5
    assert (scores.amax(1) < -104).any(), "exp() of such scores is 0 in float32"
    assert scores.min() > -1e4
    assert not torch.equal(scores, scores[:1].expand_as(scores))


def test_scores_far_below_are_below_what_stands_for_masked_ones():
    sizes = {"batch": 6, "pages": 9, "len_indptr": 7, "num_kv_indices": 9}
    inputs = make_inputs(PAGED_DECODE, sizes, Recipe(0, family="far_below"))
    keys = inputs["k_cache"].float().flatten(0, 2)
    scores = inputs["q"].float().flatten(0, 1) @ keys.T / keys.shape[1] ** 0.5
    assert (scores.amax(1) < -1e4).any()
    assert (scores < -65504).any()
    assert inputs["q"].isfinite().all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn"])
def test_scores_that_are_inputs_lie_far_below_zero_as_well(dtype):
    """States to be merged hold values beside them, which stay as they are."""
    states = define("merge", axes(n=None, m=None, d=8), {"v": tensor("n m d", dtype), "s": tensor("n m", dtype)}, {
        "y": tensor("n d", dtype)}, """
        def run(v, s):
            p = torch.exp2(s.float() - s.float().amax(1, keepdim=True))
            return ((p / p.sum(1, keepdim=True))[..., None] * v.float()).sum(1).to(v.dtype)
        """)  # fmt: skip
    assert "sunken" in family_names(contract_of(states), plan_of(contract_of(states)))
    inputs = make_inputs(states, {"n": 9, "m": 9}, Recipe(0, family="sunken"))
    assert inputs["s"].float().max() < (-150 if dtype != "float8_e4m3fn" else -104), "exp() of these is 0 in float32"
    assert inputs["s"].float().isfinite().all()
    assert inputs["v"].float().abs().max() < 8
    silent = replace(states, reference="def run(v, s):\n    return (v * s[..., None]).sum(1)\n")
    assert "sunken" not in family_names(contract_of(silent), plan_of(contract_of(silent)))


ROUTER = """
def run({0}):
    best = torch.topk({0}, 2, dim=0)
    return torch.softmax(best.values, dim=0), best.indices.int()
"""


def router(name, dtype, reference=ROUTER):
    outputs = {"w": tensor("k n"), "ids": tensor("k n", "int32")}
    return define("route", axes(e=37, n=None, k=2), {name: tensor("e n", dtype)}, outputs, reference.format(name))


@pytest.mark.parametrize("name", ["router_logits", "scores", "gating_output", "x"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_all_scores_lie_below_what_may_stand_for_minus_infinity_and_above_what_has_to(name, dtype):
    definition = router(name, dtype)
    assert "deep" in family_names(contract_of(definition), plan_of(contract_of(definition)))
    assert "deep" in [recipe.family for _, recipe in edge_cases(definition, limit=12)]
    depths = []
    for seed in range(12):
        x = make_inputs(definition, {"n": 50}, Recipe(seed, family="deep"))[name].double()
        assert -2e5 < x.min() < x.max() < -1e4
        assert len(x.unique()) > 10
        depths.append(float(-x.mean()))
    assert max(depths) > 1.4 * min(depths)


@pytest.mark.parametrize("code", [
    "torch.topk(x.sigmoid(), 2, dim=0)",  # all of them are 0
    "torch.topk(x.masked_fill(x == 0, -1e4), 2, dim=0)",  # what is masked would be above them
    "(x.sum(0), x.sum(0))",
])  # fmt: skip
def test_nothing_lies_deep_where_that_tells_nothing_or_is_no_fair_test(code):
    definition = router("x", "float32", f"def run(x):\n    return {code}\n")
    assert "deep" not in family_names(contract_of(definition), plan_of(contract_of(definition)))
    masked = router("x", "float32", f"def run(x):\n    return {code.replace('-1e4', '-1e9')}\n")
    assert ("-1e4" in code) == ("deep" in family_names(contract_of(masked), plan_of(contract_of(masked))))


_RENORM = "    s, i = x.sort(dim=-1, descending=True)\n    return torch.zeros_like(x).scatter_(-1, i, s / s.sum(-1))"


def renorm(name="probs", code=_RENORM, other=(), **kwargs):
    outputs = {"y": tensor("n v"), **dict(other)}
    text = f"def run({name}, p):\n    x = {name}\n{code}\n"
    inputs = {name: tensor("n v"), "p": tensor("n", description="top_p of each row")}
    return define("renorm", axes(n=None, v=None, k=5), inputs, outputs, text, **kwargs)


def equal(definition, families):
    """How many rows of how many have equal values, besides those that are nearly zero, in some families."""
    name = next(iter(definition.inputs))
    every = [make_inputs(definition, {"n": 30, "v": 17}, Recipe(3, family=family))[name] for family in families]
    rows = [row[row.abs() > 1e-30] for x in every for row in x]
    return sum(len(row.unique()) < len(row) for row in rows), len(rows)


@pytest.mark.parametrize("definition", [
    renorm(), renorm("logits"), renorm("x"), renorm(other={"ids": tensor("n k", "int32")}),
    renorm(code="    return x * F.one_hot(x.argmax(-1), x.shape[-1])"),
    renorm(code="    best = x.topk(5)\n    return torch.zeros_like(x).scatter_(-1, best.indices, best.values)"),
    renorm(code="    i = torch.topk(x, 5)[1]\n    return torch.zeros_like(x).scatter_(-1, i, 1.0)"),
    renorm(description="Keep the first tokens in a numerically stable way."),
])  # fmt: skip
def test_where_a_float_output_depends_on_which_of_equal_values_wins_none_are_equal(definition):
    families = family_names(contract_of(definition), plan_of(contract_of(definition)))
    assert equal(definition, families)[0] == 0


@pytest.mark.parametrize("definition", [
    renorm(code=_RENORM.replace("descending=True", "descending=True, stable=True")),
    renorm(description="Of equal ones the lowest index wins."),
    renorm(description="Ties go to the token that comes first."),
    renorm(code="    return x * (x >= x.topk(5, dim=-1).values[:, -1:])"),
    renorm(code="    s, _ = x.sort(dim=-1)\n    return s"),
    renorm(code="    return x / x.sum(-1, keepdim=True)"),
])  # fmt: skip
def test_values_are_equal_where_it_is_said_who_wins_or_nothing_depends_on_it(definition):
    few, rows = equal(definition, ["ties", "zero_rows", "small_ints", "constant_rows"])
    assert few > 0.7 * rows


@pytest.mark.parametrize("family", ["large", "huge", "offset", "negative"])
def test_probabilities_of_far_logits_are_not_equal_for_that(family):
    assert equal(renorm(), [family])[0] == 0


def test_what_an_empty_state_holds_shows_where_it_may_be_anything():
    text = "Merge states; one with s == -inf is empty, and its v holds arbitrary data."
    inputs = {"v": tensor("n m d"), "s": tensor("n m"), "w": tensor("n d")}
    states = define("merge", axes(n=None, m=None, d=8), inputs, {"y": tensor("n d")}, "", description=text)
    made = make_inputs(states, {"n": 9, "m": 9}, Recipe(0, family="neginf"))
    none = made["s"] == -torch.inf
    assert 0 < int(none.sum()) < none.numel()
    assert torch.equal(made["v"].isnan(), none[..., None].expand(9, 9, 8))
    assert made["w"].isfinite().all()
    silent = replace(states, description="Merge states; one with s == -inf is empty.")
    assert make_inputs(silent, {"n": 9, "m": 9}, Recipe(0, family="neginf"))["v"].isfinite().all()


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("Other slots are copied, whatever they hold.", {"nan", "inf"}),
        ("Padding is dropped, whatever its row may hold.", {"nan", "inf"}),
        ("The other dims are copied bit for bit.", {"nan", "inf"}),
        ("Keys must not influence queries before them.", {"nan", "inf"}),
        ("Masked keys have no influence, and may hold arbitrary data.", {"nan", "inf"}),
        ("Other slots are copied.", set()),
        ("Groups never reach into the next row.", set()),
        ("Other slots are copied, whatever they hold. All inputs are finite.", set()),
        ("Keys must not influence queries before them; the values are always finite.", set()),
    ],
)
def test_values_that_reach_no_others_may_be_nan_or_infinite_anywhere(text, offered):
    inputs = {"x": tensor("n h"), "cache": tensor("m h")}
    copied = define("copy", axes(n=None, m=None, h=8), inputs, {"y": tensor("m h")}, "", description=text)
    assert set(family_names(contract_of(copied), plan_of(contract_of(copied)))) & SPECIAL == offered
    for family in offered:
        made = make_inputs(copied, {"n": 9, "m": 9}, Recipe(0, family=family))
        assert not any(made[name].isfinite().all() or made[name].isfinite().sum() < 60 for name in inputs)


@pytest.mark.parametrize(
    ("code", "offered"),
    [("y = x.clone()\n    y[:, :4] *= 2\n    return y", {"nan", "inf"}), ("return torch.cat([x, x @ w])", set()),
     ("a, b = x.chunk(2, -1)\n    return torch.cat([a * w[0, 0] - b * w[0, 1], b])", set())],
    ids=["by itself", "beside a product", "beside a rotation"],
)  # fmt: skip
def test_what_is_only_copied_may_be_nan_where_nothing_is_summed(code, offered):
    inputs = {"x": tensor("n h"), "w": tensor("h h")}
    reference = f"def run(x, w):\n    {code}\n"
    outputs, text = {"y": tensor("n h")}, "The rest is copied."
    copied = define("rest", axes(n=None, h=8), inputs, outputs, reference, description=text)
    assert set(family_names(contract_of(copied), plan_of(contract_of(copied)))) & SPECIAL == offered


@pytest.mark.parametrize(
    ("text", "recipe", "leaks"),
    [
        ("Copied bit for bit.", Recipe(0, family="nan"), True),
        ("Copied bit for bit.", Recipe(0, family="large"), False),
        ("NaN in a row of logits makes it NaN, and must not reach others.", Recipe(0, family="nan"), False),
        ("NaN in a row of logits makes it NaN.", Recipe(0, family="nan"), False),
        ("Empty states hold arbitrary data.", Recipe(0, family="neginf"), True),
        ("Unread slots hold arbitrary data.", Recipe(0, structure="stale_nan"), True),
    ],
)
def test_some_values_only_show_where_they_must_not_get_to(text, recipe, leaks):
    rows = define("rows", axes(n=None, h=8), {"logits": tensor("n h")}, {"y": tensor("n h")}, "", description=text)
    assert shows_leaks(contract_of(rows), plan_of(contract_of(rows)), recipe) is leaks


@pytest.mark.parametrize(("mask", "low"), [
    ("-torch.inf", False), ("-1e30", False), ("torch.finfo(torch.float32).min", False), ("-1e4", True),
    ("-10000", True), ("-65504.0", True), ("torch.finfo(q.dtype).min", True),
])  # fmt: skip
def test_scores_stay_above_what_a_reference_masks_with(mask, low):
    inputs = {"q": tensor("n h"), "k": tensor("m h"), "allowed": tensor("n m", "bool")}
    masked = define("masked", axes(n=None, m=None, h=8), inputs, {"y": tensor("n h")}, f"""
        def run(q, k, allowed):
            return torch.softmax((q @ k.T).masked_fill(~allowed, {mask}), -1) @ k
        """)  # fmt: skip
    offered = family_names(contract_of(masked), plan_of(contract_of(masked)))
    assert ("far_below" in offered, "opposed" in offered) == (not low, True)


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn", "float64"])
def test_scores_rise_along_the_keys_by_more_than_exponentials_span(dtype):
    shape = {"q": tensor("b n heads d", dtype), "k": tensor("b m heads d", dtype)}
    definition = define("rise", axes(b=None, n=None, m=None, heads=2, d=64), shape, {"y": tensor("b n heads d")}, """
        def run(q, k):
            return torch.softmax(torch.einsum("bnhd,bmhd->bnhm", q, k), -1)
        """)  # fmt: skip
    cases = [case for case in edge_cases(definition) if case[1].family == "rising"]
    assert max(sizes["m"] for sizes, _ in cases) >= 300
    for sizes, recipe in cases:
        q, k = (each.float() for each in make_inputs(definition, sizes, recipe).values())
        scores = torch.einsum("bnhd,bmhd->bnhm", q, k) / 8
        assert (scores[..., -1] - scores[..., : sizes["m"] // 4 + 1].amax(-1)).min() > 90 or sizes["m"] == 1


def test_rows_of_a_softmax_rise():
    softmax = define("softmax", axes(n=None, h=64), {"x": tensor("n h")}, {"y": tensor("n h")},
                     "def run(x):\n    return torch.softmax(x, -1)\n")  # fmt: skip
    assert "rising" in family_names(contract_of(softmax), plan_of(contract_of(softmax)))
    assert "rising" not in family_names(contract_of(STEP), plan_of(contract_of(STEP)))
    x = make_inputs(softmax, {"n": 3, "h": 64}, Recipe(0, family="rising"))["x"]
    assert (x[:, -1] - x[:, :16].amax(1)).min() > 88


def test_whole_entries_of_the_first_axis_are_zero_in_every_other_draw_of_zero_rows():
    tokens = define(
        "tokens", axes(n=None, h=3, w=4), {"k": tensor("n h w"), "v": tensor("n h w")}, {"y": tensor("n")}, ""
    )
    whole = 0
    for seed in range(40):
        inputs = make_inputs(tokens, {"n": 8}, Recipe(seed, family="zero_rows"))
        k, v = ((inputs[name] == 0).all(-1) for name in ("k", "v"))
        assert torch.equal(k, v)
        whole += bool((k.all(-1) == k.any(-1)).all()) and not bool(k.all())
        assert bool(k[0, 0])
    assert 8 < whole < 28


@pytest.mark.parametrize("family", ["constant_rows", "offset"])
def test_whole_images_are_alike_in_some_draws(family):
    """What is normalised may be more than the last axis: all pixels of an image are one constant, or far from zero."""
    image = define("image", axes(n=None, h=None, w=None, c=8), {"x": tensor("n h w c")}, {"y": tensor("n h w c")}, "")
    drawn = [make_inputs(image, {"n": 3, "h": 4, "w": 5}, Recipe(seed, family=family))["x"] for seed in range(40)]
    spread = [(each.flatten(1).std(1) / each.flatten(1).mean(1).abs()).amax() for each in drawn]
    assert 5 < sum(bool(each < 0.5) for each in spread) < 35


def test_everything_is_zero_in_some_draws_of_zero_rows():
    sizes = {"batch": 6, "pages": 9, "len_indptr": 7, "num_kv_indices": 9}
    drawn = [make_inputs(PAGED_DECODE, sizes, Recipe(seed, family="zero_rows")) for seed in range(30)]
    zero = [[bool(inputs[name].eq(0).all()) for name in ("q", "k_cache")] for inputs in drawn]
    assert all(one == other for one, other in zero)
    assert 0 < sum(one for one, _ in zero) < 15


def test_without_queries_nothing_opposes_them():
    offered = ["opposed" in family_names(contract_of(d), plan_of(contract_of(d))) for d in (PAGED_DECODE, STEP)]
    assert offered == [True, False]


def test_a_table_that_is_only_looked_up_has_every_family():
    looked_up = define(
        "looked_up", axes(n=None, rows=40, h=8), {"weight": tensor("rows h"), "ids": tensor("n", "int64")},
        {"y": tensor("n h")}, "",
    )  # fmt: skip
    product = define(
        "product", axes(n=None, k=40, h=8), {"weight": tensor("k h"), "x": tensor("n k")}, {"y": tensor("n h")}, ""
    )
    kinds = [plan_of(contract_of(each)).roles["weight"].kind for each in (looked_up, product)]
    assert kinds == ["data", "weight"]


@pytest.mark.parametrize(("kind", "low", "high"), [
    ("min_p", 0.9, 1), ("top_p", 0.01, 1), ("unit_weight", -1024, 1024), ("bias", -8, 8), ("scale", 2**-5, 2**5),
    ("weight_scale", 2**-5, 2**5), ("temperature", 0.2, 2), ("a_log", -2, 2), ("negative", -8, -0.1),
    ("log_decay", -1.5, -0.01), ("decay", 0.05, 1),
])  # fmt: skip
def test_some_values_are_beyond_the_usual_ones_and_most_are_usual(kind, low, high):
    """A kernel that clamps at the end of the usual range, or has a table of it, is wrong on these."""
    wide = torch.cat([ranged(kind, family, 4096) for family in ("tiny", "sparse")])
    assert wide.min() <= low or kind == "min_p"
    assert wide.max() >= high
    usual = ranged(kind, "normal", 4096)
    inside = (wide >= usual.min()) & (wide <= usual.max())
    assert 0.75 < inside.float().mean() <= 1


@pytest.mark.parametrize("kind", ["scale", "weight_scale"])
def test_scales_are_not_large_where_what_they_scale_is(kind):
    assert ranged(kind, "large", 4096).max() <= 2
    assert ranged(kind, "large", 4096).min() < 0.25


@pytest.mark.parametrize("kind", ["unit_weight", "bias", "scale", "a_log", "decay"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_unusual_values_leave_room_in_16_bits(kind, dtype):
    """For what they are multiplied with, and for a sum."""
    x = float_tensor(Want("w", kind, (1 << 16,), dtype), "tiny", Source(0, torch.device("cpu")))
    assert x.isfinite().all()
    assert x.abs().max() < (4096 if dtype is torch.float16 else 1 << 15)


@pytest.mark.parametrize(("family", "large"), [("zero_rows", True), ("tiny", True), ("normal", False), ("huge", False)])
def test_some_rows_of_weights_are_large_where_activations_are_not(family, large):
    want = Want("w", "weight", (64, 128), torch.float16, fan_in=128)
    rows = float_tensor(want, family, Source(0, torch.device("cpu"))).float().abs().amax(1)
    assert (rows.max() > 8) == large
    assert rows.median() < 0.5


def recurrent(**descriptions):
    inputs = {name: tensor("t d", description=text) for name, text in descriptions.items()}
    return define("gdn", axes(t=None, d=16), inputs, {"y": tensor("t d")}, "", description="Gated delta rule.")


def test_gates_that_may_forget_everything_do_in_some_cases():
    usual, strong = recurrent(g="Log of the gate."), recurrent(g="Log of the gate; may be very negative.")
    least = [
        min(float(make_inputs(each, {"t": 40}, Recipe(seed, family="outliers"))["g"].min()) for seed in range(5))
        for each in (usual, strong)
    ]
    assert -10 < least[0] < -1
    assert least[1] < -100


def test_keys_that_the_reference_has_to_normalise_have_any_norm():
    given = recurrent(k="Keys before normalisation.", q="Queries, normalised.")
    inputs = make_inputs(given, {"t": 40}, Recipe(0, family="normal"))
    assert torch.allclose(inputs["q"].norm(dim=1), torch.ones(40))
    assert float(inputs["k"].norm(dim=1).min()) > 2


@pytest.mark.parametrize(("text", "zeros"), [
    ("Scales, zero or positive.", True), ("Scales; may be 0.", True), ("Non-negative scales.", True),
    ("Positive scales.", False),
])  # fmt: skip
def test_scales_of_integers_are_zero_in_some_cases_where_a_text_says_so(text, zeros):
    inputs = {"cache": tensor("n d", "int8"), "scales": tensor("n", description=text)}
    given = define("dequant", axes(n=None, d=8), inputs, {"y": tensor("n d")}, "")
    assert grid_of(given).families == ("normal", "outliers")
    cases = [make_inputs(given, axes, recipe)["scales"] for axes, recipe in edge_cases(given, limit=100)]
    assert any(bool((each == 0).any()) for each in cases) is zeros


@pytest.mark.parametrize("words", ["torch.isfinite(logits).any(dim=-1).all()", "(logits.amax(-1) > -9e9).all()"])
def test_rows_keep_a_finite_score_where_a_constraint_wants_one(words):
    inputs = {"logits": tensor("n v", description="banned tokens are -inf")}
    definition = define("scores", axes(n=None, v=None), inputs, {"y": tensor("n v")}, "", words)
    for seed in range(4):
        logits = make_inputs(definition, {"n": 40, "v": 9}, Recipe(seed, family="neginf"))["logits"]
        assert bool(logits.isfinite().any(dim=-1).all())
        assert int((logits == -math.inf).sum()) > 60


@pytest.mark.parametrize(("dtype", "bounds"), [("int8", (None, None)), ("uint8", (None, None)), ("int8", (-127, 127))])
def test_bytes_have_rows_at_their_ends_in_some_tensors(dtype, bounds):
    """A sum of products that saturates is as right as any for bytes drawn one by one."""
    made = [
        content_bytes("bytes", (40, 16), getattr(torch, dtype), torch.Generator().manual_seed(seed), *bounds)
        for seed in range(24)
    ]
    low, high = (torch.iinfo(made[0].dtype).min, 127) if dtype == "int8" else (0, 255)
    low, high = bounds[0] or low, bounds[1] or high
    equal = [bool((each == each[:, :1]).all(dim=1).any()) for each in made]
    assert 3 <= sum(equal) <= 14
    rows = torch.cat(made)
    assert (rows == low).all(dim=1).any()
    assert (rows == high).all(dim=1).any()
    assert low <= int(rows.min()) <= int(rows.max()) <= high
    assert all(len(each.unique()) > 20 for each, same in zip(made, equal, strict=True) if not same)


def test_some_tensors_are_large_and_others_tiny_where_several_are_multiplied():
    """A product of two may be beyond float16 then, and one of three is not."""
    inputs = {"x": tensor("n h", "float16"), "a": tensor("r h", "float16"), "b": tensor("h r", "float16")}
    chained = define("chained", axes(n=None, r=4, h=8), inputs, {"y": tensor("n h", "float16")}, "")
    seen = set()
    for seed in range(60):
        made = make_inputs(chained, {"n": 5}, Recipe(seed, family="uneven"))
        sizes = {name: float(x.float().abs().mean()) for name, x in made.items()}
        assert all(not 0.01 < size < 100 for size in sizes.values())
        seen.add(tuple(size > 1 for size in sizes.values()))
    assert len(seen) == 2**3
    known = [contract_of(each) for each in (chained, define("one", axes(n=None, h=8), {"x": inputs["x"]}, {}, ""))]
    assert ["uneven" in family_names(each, plan_of(each)) for each in known] == [True, False]


@pytest.mark.parametrize(
    ("scores", "bias", "holds"),
    [
        ("unnormalised, finite", "additive mask: finite or -inf", {"bias"}),
        ("finite", "added to the scores", set()),
        ("", "added to the scores, no -inf", {"scores"}),
        ("may be -inf", "a row is taken out by -inf", {"scores", "bias"}),
        ("no NaN, +inf or -inf", "added to the scores", set()),
        ("never -inf; all else occurs", "-inf takes a row out", {"bias"}),
    ],
)
def test_infinities_are_where_descriptions_put_them_and_not_where_they_say_finite(scores, bias, holds):
    inputs = {"scores": tensor("n h", description=scores), "bias": tensor("n", description=bias)}
    text = "A softmax of scores and bias. Where all are -inf the result is 0."
    masked = define("masked", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "", description=text)
    contract = contract_of(masked)
    assert ("neginf" in family_names(contract, plan_of(contract))) is bool(holds)
    made = make_inputs(masked, {"n": 40}, Recipe(2, family="neginf"))
    assert not holds or {name for name, x in made.items() if bool(x.isinf().any())} == holds


@pytest.mark.parametrize(
    ("scores", "bias", "said", "holds"),
    [
        ("no inf", "may be inf", "inf", {"bias"}),
        ("Neither NaN nor inf.", "inf takes the row", "inf", {"bias"}),
        ("holds inf", "without inf", "inf", {"scores"}),
        ("no inf", "added", "inf", set()),
        ("masked by -infinity", "added", "-infinity", set()),
        ("", "minus infinity", "negative infinity", set()),
    ],
)
def test_large_infinities_are_not_where_descriptions_deny_them_or_speak_of_the_others(scores, bias, said, holds):
    inputs = {"scores": tensor("n h", description=scores), "bias": tensor("n", description=bias)}
    text = f"Of {said} the result is 0."
    masked = define("masked", axes(n=None, h=8), inputs, {"y": tensor("n h")}, "", description=text)
    contract = contract_of(masked)
    assert ("inf" in family_names(contract, plan_of(contract))) is bool(holds)
    made = make_inputs(masked, {"n": 40}, Recipe(2, family="inf"))
    assert not holds or {name for name, x in made.items() if bool(x.isposinf().any())} == holds


def test_of_one_value_a_row_whole_blocks_are_minus_infinity_the_first_among_them():
    """A running maximum is still -inf after a block of such, and is subtracted from itself."""
    blocks = []
    for seed in range(30):
        x = torch.empty(200)
        fill(x, "neginf", torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 100))
        blocks.append(next((i for i, n in enumerate(x.tolist()) if n != -math.inf), 200))
    assert sum(n >= 32 for n in blocks) > 5
    assert sum(n < 16 for n in blocks) > 5
