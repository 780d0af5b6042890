"""What constraints state plainly decides what inputs are for, and which sizes go together."""

from __future__ import annotations

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.sizes.axes import solve_axes
from pytest_flashinfer.inputs.sizes.coupled_sizes import settle
from tests.inputs.contracts import axes, define, tensor

PICK = "def run(x, ids):\n    return x[ids.long()]\n"


def picking(shape, description, *constraints, **sizes):
    inputs = {"x": tensor("rows"), "ids": tensor(shape, "int32", description=description)}
    return define("picking", axes(rows=None, **sizes), inputs, {"y": tensor(shape)}, PICK, *constraints)


def role(definition, name="ids"):
    return plan_of(contract_of(definition)).roles[name]


def sizes(definition, wish):
    contract = contract_of(definition)
    return settle(contract, plan_of(contract), wish)


def test_ids_of_groups_are_no_permutation_whatever_their_words():
    words = "A permutation of the sequential assignment."
    rules = ["n == groups * 32", "ids.max() < groups", "bool((torch.bincount(ids, minlength=groups) == 32).all())"]
    definition = picking("n", words, *rules, n=None, groups=None)
    assert role(definition).kind != "order"
    assert role(picking("n", words, "ids.max() < n", n=None)).kind == "order"
    made = [make_inputs(definition, {"n": 64, "groups": 2, "rows": 9}, Recipe(seed))["ids"] for seed in range(12)]
    assert all(int((ids == 0).sum()) == 32 for ids in made)
    in_order = [bool((ids.diff() >= 0).all()) for ids in made]
    assert any(in_order)
    assert not all(in_order)


def test_ids_of_entries_of_their_own_row_are_distinct_within_it():
    inputs = {"x": tensor("b n"), "ids": tensor("b n", "int32", description="Next node or -1. No node is named twice.")}
    code = "def run(x, ids):\n    return x * (ids >= 0)\n"
    definition = define("links", axes(b=None, n=None), inputs, {"y": tensor("b n")}, code, "ids.max() < n")
    assert role(definition).kind == "expert_ids"
    assert sizes(definition, {"b": 4, "n": 6})["n"] == 6


def test_entries_in_use_that_a_set_counts_are_distinct():
    counted = "len(set(ids[ids >= 0].tolist())) == (ids >= 0).sum().item()"
    found = role(picking("b k", None, counted, "ids.max() < rows", "ids.min() >= -1", b=None, k=None))
    assert (found.kind, found.distinct) == ("slots", True)


RANKED = ("ids[ids >= 0].sort().values.tolist() == list(range(int(mask.sum())))",
          "(ids[ids >= 0].sort().values == torch.arange(int(mask.sum()))).all()")  # fmt: skip


@pytest.mark.parametrize("ranked", RANKED)
def test_ids_of_which_a_constraint_tells_all_numbers_have_no_other_limit(ranked):
    inputs = {"x": tensor("tokens m"), "ids": tensor("n", "int32"), "mask": tensor("n", "bool")}
    code = """def run(x, ids, mask):
        rows = ids[mask].long()
        out = torch.zeros(2 * x.shape[0], x.shape[1])
        out[rows] = x[rows // 2]
        return out
    """
    definition = define("ranked", axes(tokens=None, m=None, n=None), inputs, {"y": tensor("n m")}, code, ranked,
                        "torch.equal(ids >= 0, mask)")  # fmt: skip
    assert role(definition).limit is None
    made = make_inputs(definition, {"tokens": 3, "m": 2, "n": 12}, Recipe(1))
    assert sorted(made["ids"][made["mask"]].tolist()) == list(range(int(made["mask"].sum())))


ENDS = "Inclusive cumulative number of tokens, no leading zero."
SEGMENTS = "def run(x, cu):\n    return x.cumsum(0)[cu.long() - 1]\n"


def ending(constraints, **constants):
    inputs = {"x": tensor("total m"), "cu": tensor("batch", "int32", description=ENDS)}
    every = axes(total=None, batch=None, m=4, **constants)
    return define("ending", every, inputs, {"y": tensor("batch m")}, SEGMENTS, *constraints)


@pytest.mark.parametrize("seed", range(4))
def test_a_total_is_no_larger_than_segments_of_a_fixed_length_at_most(seed):
    rules = ["cu[-1].item() == total", "cu[0].item() >= 0 and cu[0].item() <= most",
             "bool(((cu[1:] - cu[:-1]) >= 0).all())", "bool(((cu[1:] - cu[:-1]) <= most).all())"]  # fmt: skip
    definition = ending(rules, most=4)
    wish = sizes(definition, {"total": 23 + seed, "batch": 5})
    assert wish["total"] <= 20
    cu = make_inputs(definition, wish, Recipe(seed))["cu"]
    assert int(torch.cat([cu.new_zeros(1), cu]).diff().max()) <= 4


def test_a_fixed_total_has_a_segment():
    inputs = {"x": tensor("total m"), "ends": tensor("ranks", "int32", description="End of each rank, ascending.")}
    rules = ["ends[-1].item() == total", "bool((ends[1:] >= ends[:-1]).all())"]
    code = SEGMENTS.replace("cu", "ends")
    definition = define("ending", axes(total=32, ranks=None, m=4), inputs, {"y": tensor("ranks m")}, code, *rules)
    assert sizes(definition, {"ranks": 0})["ranks"] == 1


@pytest.mark.parametrize("nnz", [0, 9, 30, 31, 173, 4000])
def test_as_many_are_set_as_a_mask_has_room_for(nnz):
    inputs = {"x": tensor("nnz m"), "mask": tensor("b n", "int32", description="1 for a token, 0 for padding.")}
    rules = ["((mask == 0) | (mask == 1)).all()", "mask.sum().item() == nnz"]
    code = "def run(x, mask):\n    return x.sum(0) * mask.sum()\n"
    definition = define("packed", axes(nnz=None, b=None, n=None, m=4), inputs, {"y": tensor("m")}, code, *rules)
    found = sizes(definition, {"nnz": nnz, "b": 5, "n": 6})
    assert found["nnz"] == nnz if nnz <= 30 else 15 <= found["nnz"] <= 30
    mask = make_inputs(definition, found, Recipe(nnz))["mask"]
    assert int(mask.sum()) == found["nnz"]


def test_queries_do_not_outnumber_keys_where_lengths_say_so():
    inputs = {
        "q": tensor("total_q m"), "k_cache": tensor("pages one m"), "qo_indptr": tensor("len_indptr", "int32"),
        "kv_indptr": tensor("len_indptr", "int32"), "kv_indices": tensor("num_kv", "int32"),
        "kv_lens": tensor("batch", "int32"),
    }  # fmt: skip
    rules = ["len_indptr == batch + 1", "total_q == qo_indptr[-1].item()", "num_kv == kv_indptr[-1].item()",
             "torch.equal(kv_lens, kv_indptr[1:] - kv_indptr[:-1])", "(qo_indptr.diff() <= kv_lens).all()",
             "num_kv == 0 or kv_indices.max() < pages"]  # fmt: skip
    every = axes(total_q=None, batch=None, len_indptr=None, pages=None, num_kv=None, one=1, m=4)
    code = """def run(q, k_cache, qo_indptr, kv_indptr, kv_indices, kv_lens):
        return q @ k_cache[kv_indices, 0].T
    """
    definition = define("prefill", every, inputs, {"y": tensor("total_q m")}, code, *rules)
    contract = contract_of(definition)
    assert not {"no_kv", "q_longer"} & set(structures(contract, plan_of(contract)))
    wish = solve_axes(definition, {"total_q": 11, "batch": 5, "pages": 17, "num_kv": 13})
    for seed, structure in enumerate(("mixed", "q_longer", "no_kv", "q_equals_kv")):
        made = make_inputs(definition, wish, Recipe(seed, structure=structure))
        assert bool((made["qo_indptr"].diff() <= made["kv_lens"]).all())


NORMAL = "torch.allclose(log_probs.exp().sum(-1), torch.ones(n), atol=1e-3)"
BEAMS = "def run(log_probs, cum_log_probs):\n    return (log_probs + cum_log_probs.view(-1, 1)).topk(2).values\n"


@pytest.mark.parametrize("rules", [[], [NORMAL, "(log_probs <= 0).all()", "bool((cum_log_probs <= 0).all())"]])
def test_logarithms_of_probabilities_are_normalised_and_their_sums_are_scores(rules):
    inputs = {
        "log_probs": tensor("n v", description="Log-softmax of the logits."),
        "cum_log_probs": tensor("b w", description="Accumulated scores. -inf for beams not in use."),
    }
    every = axes(n=None, b=None, w=4, v=16)
    definition = define("beams", every, inputs, {"y": tensor("n w")}, BEAMS, "n == b * w", *rules)
    assert role(definition, "log_probs").kind == "log_probs"
    assert role(definition, "cum_log_probs").kind == "data"
    for seed, family in enumerate(("normal", "ties", "sparse", "large", "neginf", "masked")):
        made = make_inputs(definition, {"n": 12, "b": 3}, Recipe(seed, family=family))
        x = made["log_probs"]
        assert bool((x <= 0).all())
        assert bool(x.isfinite().all())
        assert torch.allclose(x.exp().sum(-1), torch.ones(12), atol=1e-3)
        assert not rules or bool((made["cum_log_probs"] <= 0).all())


def test_beams_that_are_not_in_use_stay_beside_what_else_is_said_of_them():
    inputs = {
        "log_probs": tensor("n v", description="Log-softmax of the logits."),
        "cum_log_probs": tensor("b w", description="Accumulated scores. -inf for beams not in use."),
        "finished": tensor("b w", "bool"),
    }
    code = """def run(log_probs, cum_log_probs, finished):
        return (log_probs + cum_log_probs.where(~finished, 0.0).view(-1, 1)).topk(2).values
    """
    rules = ["n == b * w", "bool((cum_log_probs <= 0).all())",
             "not (finished & torch.isinf(cum_log_probs)).any().item()",
             "bool((cum_log_probs.max(dim=1).values > -float('inf')).all())"]  # fmt: skip
    definition = define("beams", axes(n=None, b=None, w=4, v=16), inputs, {"y": tensor("n w")}, code, *rules)
    made = [make_inputs(definition, {"n": 12, "b": 3}, Recipe(seed, family="neginf")) for seed in range(6)]
    assert any(bool(each["cum_log_probs"].isinf().any()) and bool(each["finished"].any()) for each in made)


@pytest.mark.parametrize("first", [True, False])
def test_children_and_siblings_make_a_tree(first):
    inputs = {
        "x": tensor("b n"),
        "down": tensor("b n", "int32", description="First child of the node or -1. It has a larger number."),
        "along": tensor("b n", "int32", description="Next sibling of the node or -1. No node is pointed to twice."),
    }
    inputs = inputs if first else dict(reversed(inputs.items()))
    rules = ["((down == -1) | (down > torch.arange(n))).all() and int(down.max()) < n",
             "((along == -1) | (along > torch.arange(n))).all() and int(along.max()) < n"]  # fmt: skip
    code = f"def run({', '.join(inputs)}):\n    return x * (down >= 0) + (along >= 0)\n"
    definition = define("tree", axes(b=None, n=None), inputs, {"y": tensor("b n")}, code, *rules)
    branched = 0
    for seed in range(6):
        made = make_inputs(definition, {"b": 3, "n": 7}, Recipe(seed))
        for down, along in zip(made["down"].tolist(), made["along"].tolist(), strict=True):
            assert sorted(node for node in down + along if node >= 0) == list(range(1, 7))
            branched += any(node >= 0 for node in along)
    assert 0 < branched < 18
