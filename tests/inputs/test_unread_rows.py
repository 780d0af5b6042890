"""Rows of tables that no index names hold NaN where the contract says that they hold anything."""

from dataclasses import replace

import pytest
import torch

from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.integers.structure import structures
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe

from .contracts import axes, call, define, tensor

ARBITRARY = "Tokens that are not listed hold arbitrary data."


def sparse(description):
    inputs = {
        "q": tensor("n d"),
        "cache": tensor("num_pages page_size d"),
        "sparse_indices": tensor("n topk", "int32"),
    }
    sizes = axes(n=None, num_pages=None, topk=None, page_size=4, d=8)
    return define("sparse", sizes, inputs, {"y": tensor("n d")}, """
        def run(q, cache, sparse_indices):
            rows = cache.reshape(-1, 8)
            return torch.stack([x + rows[ids[ids != -1].long()].sum(0) for x, ids in zip(q, sparse_indices)])
        """, description=description)  # fmt: skip


def bags(description):
    inputs = {
        "weight": tensor("rows d"), "indices": tensor("num_indices", "int32"), "offsets": tensor("ends", "int32"),
        "padding_idx": tensor(None, "int32"),
    }  # fmt: skip
    sizes = axes(rows=None, num_indices=None, bags=None, ends=None, d=8)
    return define("bags", sizes, inputs, {"y": tensor("bags d")}, """
        def run(weight, indices, offsets, padding_idx):
            y = torch.zeros(len(offsets) - 1, 8)
            for b in range(len(y)):
                ids = indices[offsets[b]:offsets[b + 1]].long()
                y[b] = weight[ids[ids != padding_idx]].sum(0)
            return y
        """, "ends == bags + 1", "num_indices == offsets[-1].item()",
        "num_indices == 0 or (int(indices.min()) >= 0 and int(indices.max()) < rows)",
        description=description)  # fmt: skip


SIZES = {
    sparse: {"n": 5, "num_pages": 9, "topk": 5},
    bags: {"rows": 40, "num_indices": 23, "bags": 5, "ends": 6},
}
TABLES = {sparse: "cache", bags: "weight"}


@pytest.mark.parametrize("made", [sparse, bags])
def test_only_where_the_contract_says_so(made):
    for text, offered in ((ARBITRARY, True), ("The padding row holds garbage.", True), ("Rows are arbitrary.", False)):
        contract = contract_of(made(text))
        assert ("stale_nan" in structures(contract, plan_of(contract))) is offered


@pytest.mark.parametrize("made", [sparse, bags])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_is_finite_and_the_rest_is_nan(made, seed):
    definition = made(ARBITRARY)
    for recipe in (Recipe(seed, structure="stale_nan"), Recipe(seed)):
        inputs = make_inputs(definition, SIZES[made], recipe)
        rows = inputs[TABLES[made]].reshape(-1, 8)
        ids = inputs["sparse_indices" if made is sparse else "indices"].flatten().tolist()
        named = set(ids) - {-1, inputs.get("padding_idx")}
        lost = {n for n in range(len(rows)) if bool(rows[n].isnan().all())}
        assert lost == (set(range(len(rows))) - named if recipe.structure == "stale_nan" else set())
        (found,) = call(definition, inputs)
        assert found.isfinite().all()


def test_rows_that_no_id_names_are_finite_where_words_say_so():
    made = make_inputs(sparse(ARBITRARY[:-1] + ", but finite."), SIZES[sparse], Recipe(1, structure="stale_nan"))
    assert made["cache"].isfinite().all()


def test_a_table_that_is_given_stays_as_it_is():
    given = torch.randn(9, 4, 8)
    recipe = Recipe(1, structure="stale_nan")
    made = make_inputs(sparse(ARBITRARY), SIZES[sparse], recipe, given={"cache": given.clone()})
    assert torch.equal(made["cache"], given)


def combine(rows, weights="Weight of each row."):
    inputs = {
        "rows": tensor("n d", description=rows), "token_ids": tensor("n", "int32", description="-1 is padding."),
        "weights": tensor("n", description=weights), "shared": tensor("tokens d"),
    }  # fmt: skip
    return define("combine", axes(n=None, tokens=None, d=8), inputs, {"y": tensor("tokens d")}, """
        def run(rows, token_ids, weights, shared):
            y = shared.clone()
            for row, token, weight in zip(rows, token_ids, weights):
                if token >= 0:
                    y[token] += row * weight
            return y
        """, "n == 0 or (int(token_ids.min()) >= -1 and int(token_ids.max()) < tokens)")  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "offered"),
    [
        ("Padding rows hold arbitrary data, NaN included.", True),
        ("One for each token; rows of -1 are garbage.", True),
        ("Padding rows hold arbitrary finite numbers.", False),
        ("Padding rows are ignored.", False),
        ("Rows in arbitrary order.", False),
    ],
)
def test_rows_beside_padding_hold_what_their_own_description_says(rows, offered):
    definition = combine(rows, "Padding rows have arbitrary finite weights.")
    contract = contract_of(definition)
    assert ("stale_nan" in structures(contract, plan_of(contract))) is offered
    seen = False
    for seed in range(6):
        made = make_inputs(definition, {"n": 9, "tokens": 4}, Recipe(seed, structure="stale_nan"))
        lost = made["rows"].isnan().all(1)
        assert torch.equal(lost, (made["token_ids"] < 0) & offered)
        seen |= bool(lost.any())
        assert made["weights"].isfinite().all()
        (found,) = call(definition, made)
        assert found.isfinite().all()
    assert seen is offered


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("Rows of token -1 were dropped: nobody computed them, what an allocator left is there, NaN too.", True),
        ("Dropped rows are uninitialised memory.", True),
        ("Dropped rows hold no NaN.", False),
        ("Dropped rows hold NaN or any finite number. A sum must stay finite.", False),
        ("Dropped rows are skipped.", False),
    ],
)
def test_so_do_all_beside_it_where_the_definition_says_it_of_them(text, offered):
    definition = replace(combine("Rows.", "Weights."), description=text)
    made = make_inputs(definition, {"n": 9, "tokens": 4}, Recipe(3, structure="stale_nan"))
    lost = (made["token_ids"] < 0) & offered
    assert torch.equal(made["rows"].isnan().all(1), lost)
    assert torch.equal(made["weights"].isnan(), lost)
    assert bool(lost.any()) is offered
    assert made["shared"].isfinite().all()


@pytest.mark.parametrize(
    ("text", "holes"), [("-1 is padding, allowed anywhere in a row.", True), ("-1 is padding at the end.", False)]
)
def test_padding_stands_before_ids_where_the_contract_allows_it(text, holes):
    definition = sparse(text)
    seen = False
    for seed in range(6):
        ids = make_inputs(definition, SIZES[sparse], Recipe(seed))["sparse_indices"]
        for row in ids.tolist():
            used = [n for n in row if n >= 0]
            assert len(set(used)) == len(used)
            seen |= row != [*used, *[-1] * (len(row) - len(used))]
    assert seen is holes
