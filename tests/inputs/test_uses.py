"""An integer tensor holds indices for a reason only: packed numbers have all bits, and what is stated counts more."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from pytest_flashinfer.data.model import InputSpec, Workload
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.generate import make_inputs
from pytest_flashinfer.inputs.plan import plan_of
from pytest_flashinfer.inputs.recipe import Recipe
from pytest_flashinfer.inputs.roles.uses import use
from pytest_flashinfer.inputs.sizes.strategies import edge_cases
from tests.inputs.contracts import axes, define, tensor

UNSEEN = "def run(**inputs):\n    return None\n"


def body(*lines, helpers="", inputs="x, table, v"):
    return f"{helpers}\ndef run({inputs}):\n    " + "\n    ".join((*lines, "return x"))


def contract(reference, description=None, *constraints, name="v", shape="n", dtype="int32"):
    inputs = {"x": tensor("m h"), "table": tensor("rows h"), name: tensor(shape, dtype, description=description)}
    return define("used", axes(m=None, rows=None, n=None, h=4), inputs, {"y": tensor("m h")}, reference, *constraints)


def role(*args, **kwargs):
    definition = contract(*args, **kwargs)
    return plan_of(contract_of(definition)).roles[kwargs.get("name", "v")]


HELPER = "def take(a, b):\n    return a[b.long()]\ndef low(w):\n    return (w >> 4) & 15\n"


@pytest.mark.parametrize(
    "lines",
    [
        ("y = table[v.long()]",),
        ("ids = v.to(torch.int64).clamp(min=0)", "y = table[ids] * 2"),
        ("big = table.float()", "for i, each in enumerate(v.tolist()):", "    y = big[each]"),
        ("y = F.embedding(v, table)",),
        ("y = torch.index_select(table, 0, v)",),
        ("y = table.index_select(0, v.flatten())",),
        ("for i, (a, b) in zip(v, x):", "    y = table[i]"),
    ],
)
def test_a_table_whose_rows_are_looked_up_is_found(lines):
    found = use(contract(body(*lines)), "v")
    assert (found.limits, found.tables) == (True, {"table"})
    assert role(body(*lines)).limit.id == "rows"


@pytest.mark.parametrize(
    "lines",
    [
        ("y = take(table, v)",),
        ("y = table[v // 4]",),
        ("y = x[:, v]",),
        ("y = x.gather(0, v[:, None])",),
        ("for i in range(int(v[0])):", "    x = x + i"),
        ("seen = torch.arange(4) < v[:, None]",),
        ("for e in range(3):", "    y = x * (v == e)"),
        ("ids = v >> 16", "y = table[ids]"),
        ("ids = (v >> 16) & 0xFFFF", "y = table[ids]"),
        ("low = codebook(v, table)",),
        ("low = torch.ops.mine.codebook(table, v)",),
        ("low = v.sparse_mask(table)",),
    ],
)
def test_other_uses_may_have_limits_too(lines):
    found = use(contract(body(*lines, helpers=HELPER)), "v")
    assert found.limits or not found.known
    assert not found.tables
    assert role(body(*lines, helpers=HELPER), shape="n h", name="v").kind == "index"


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        (("y = F.cross_entropy(x, v)",), "h"),
        (("y = F.cross_entropy(input=x.float(), target=v.long(), ignore_index=-100)",), "h"),
        (("y = F.nll_loss(F.log_softmax(x, 1), v, reduction='none')",), "h"),
        (("p = F.log_softmax(x.float() / 2, dim=-1)", "y = -p.gather(1, v[:, None])[:, 0]"), "h"),
        (("y = torch.gather(x.softmax(-1), -1, v.unsqueeze(-1))",), "h"),
        (("y = torch.take_along_dim(x, v[:, None], dim=1)",), "h"),
        (("y = x.index_select(dim=0, index=v)",), "m"),
        (("y = x.index_select(1, v)",), "h"),
        (("y = torch.zeros_like(table).scatter_(0, v[:, None], 1.0)",), "rows"),
        (("n, width = table.shape", "y = torch.zeros(width, n).index_add_(1, v, x)"), "rows"),
        (("y = x - F.one_hot(v, x.shape[1])",), "h"),
        (("y = F.one_hot(v, num_classes=table.size(0))",), "rows"),
        (("y = x[torch.arange(len(v)), v]",), "h"),
        (("y = x[..., v]", "y = y.log()"), "h"),
        (("for row, i in zip(x, v):", "    y = row[i]"), "h"),
        (("for i in range(len(v)):", "    y = x[i, int(v[i])]"), "h"),
        (("s = x @ table.T", "y = F.cross_entropy(s * 0.5, v)"), "rows"),
        (("s = F.linear(x, table)", "y = F.cross_entropy(s.view(-1, s.shape[-1]), v)"), "rows"),
        (("y = F.cross_entropy(x.transpose(0, 1), v)",), "m"),
        (("y = F.cross_entropy(scores(x, table), v)",), "rows"),
    ],
)
def test_ids_stay_below_the_size_along_which_something_is_looked_up(lines, size):
    helpers = "def scores(a, b):\n    return a.float() @ b.float().mT\n"
    limit = role(body(*lines, helpers=helpers)).limit
    assert ast.unparse(limit) == size


@pytest.mark.parametrize(
    "lines",
    [
        ("x = x.view(2, -1)", "y = F.cross_entropy(x, v)"),
        ("y = F.cross_entropy(x.unfold(0, 2, 1), v)",),
        ("y = x.gather(axis, v[:, None])",),
        ("y = x.gather(1, v[:, None] // 2)",),
        ("y = F.one_hot(v)",),
    ],
)
def test_a_size_that_the_text_does_not_tell_is_none(lines):
    assert not use(contract(body(*lines)), "v").sizes


def test_classes_of_a_loss_are_drawn_below_their_number():
    inputs = {"scores": tensor("n c"), "t": tensor("n", "int64", description="class of each row")}
    definition = define("loss", axes(n=None, c=None), inputs, {"y": tensor("n")},
                        "def run(scores, t):\n    return F.cross_entropy(scores, t, reduction='none')")  # fmt: skip
    for sizes, drawn in every(definition):
        assert not drawn["t"].numel() or int(drawn["t"].max()) < sizes["c"]


@pytest.mark.parametrize(
    "lines",
    [
        ("shifts = torch.arange(0, 32, 4)", "codes = (v[:, :, None] >> shifts) & 15", "w = codes.view(4, 8).float()"),
        ("low, high = v & 15, (v >> 4) & 15", "y = table[low] + table[high]"),
        ("w = low(v)", "y = table[w]"),
        ("words = v.long() & 0xFFFFFFFF", "w = ((words >> 8) & 255) - 8", "y = (w * x) > x.max()"),
        ("w = ((v << 24) >> 28).float() * x", "y = x[w > 3]"),
        ("assert v.dtype == torch.int32 and v.shape[0] == x.shape[0]", "y = v.view(torch.uint8).float()"),
        ("w = torch.bitwise_and(torch.bitwise_right_shift(v, 4), 15)", "y = table[w]"),
        ("if v is None:", "    return x", "v = v.contiguous()", "y = v & 3"),
    ],
)
def test_what_is_shifted_or_masked_is_bits(lines):
    found = use(contract(body(*lines, helpers=HELPER)), "v")
    assert (found.bits, found.limits, found.known) == (True, False, True)
    assert role(body(*lines, helpers=HELPER), shape="n h").kind == "bytes"


def test_parameters_are_those_of_the_same_name_or_place():
    assert use(contract(body("y = table[v]", inputs="v, x, table")), "v").limits
    assert use(contract(body("y = b[c]", "x = a", inputs="a, b, c")), "v").tables == {"table"}
    assert not use(contract("def run(x):\n    return x"), "v").known
    assert not use(contract("def run("), "v").known


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("v", "eight 4-bit codes each, any bit pattern", "bytes"),
        ("v", "int4 weights, packed eight to an int32", "bytes"),
        ("v", "Quantised zero points.", "bytes"),
        ("v", "Bitmap of the columns that count.", "bits"),
        ("v", "mask words", "bits"),
        ("qweight", None, "bytes"),
        ("qzeros", None, "bytes"),
        ("w_q", None, "bytes"),
        ("codes", None, "bytes"),
        ("v", "row of the packed tensor", "index"),
        ("v", "index of each code", "index"),
        ("v", None, "index"),
    ],
)
def test_words_and_names_say_bits_where_no_reference_does(name, words, kind):
    assert role(UNSEEN, words, name=name, shape="n h").kind == kind


@pytest.mark.parametrize("name", ["codes", "qweight"])
def test_a_reference_that_looks_up_counts_more_than_words(name):
    reference = body(f"y = table[{name}.long()]", inputs=f"x, table, {name}")
    for dtype in ("int32", "uint8"):
        assert role(reference, "Codes, packed.", name=name, dtype=dtype, shape="n h").kind == "index"


def test_small_integers_without_a_reason_are_all_of_the_dtype():
    definition = contract(body("y = v.float() + 1"), dtype="int8")
    drawn = make_inputs(definition, {"m": 1, "rows": 1, "n": 4000}, Recipe(0))["v"]
    assert (int(drawn.min()), int(drawn.max())) == (-128, 127)


def every(definition):
    return [(sizes, make_inputs(definition, sizes, recipe)) for sizes, recipe in edge_cases(definition, limit=40)]


PACKED = define(
    "int4_gemm", axes(m=None, n=6, words=2, k=16),
    {"x": tensor("m k", "float16"), "qweight": tensor("n words", "int32"),
     "zeros": tensor("n", "int8", description="zero point of each row, in [0, 15]")},
    {"y": tensor("m n", "float16")},
    """
    def run(x, qweight, zeros):
        codes = ((qweight[:, :, None] >> torch.arange(0, 32, 4, dtype=torch.int32)) & 15).reshape(6, 16)
        return (x.float() @ (codes - zeros.int()[:, None]).float().T).half()
    """,
)  # fmt: skip


@pytest.mark.parametrize("reference", [PACKED.reference, UNSEEN])
def test_packed_weights_have_all_bits_whatever_the_batch(reference):
    cases = every(replace(PACKED, reference=reference))
    assert {0, 1, 2} <= {sizes["m"] for sizes, _ in cases}
    for _, inputs in cases:
        assert int(inputs["qweight"].abs().max()) > 1 << 20
        assert {*inputs["zeros"].tolist()} <= {*range(16)}
    assert {0, 15} <= {zero for _, inputs in cases for zero in inputs["zeros"].tolist()}


LORA = define(
    "lora", axes(tokens=None, adapters=None, max_rank=8, h=4),
    {"x": tensor("tokens h"), "a": tensor("adapters max_rank h"),
     "ranks": tensor("adapters", "int32", description="rank of each adapter"),
     "ids": tensor("tokens", "int32", description="adapter of each token, -1 for none")},
    {"y": tensor("tokens h")}, UNSEEN, "adapters >= 1", "bool(((ids >= -1) & (ids < adapters)).all())",
    "bool(((ranks >= 1) & (ranks <= max_rank)).all())",
)  # fmt: skip
SLICED = """
def run(x, a, ranks, ids):
    y = x.clone()
    for t, i in enumerate(ids.tolist()):
        if i >= 0:
            y[t] += (a[i, : int(ranks[i])] @ x[t]).sum()
    return y
"""


@pytest.mark.parametrize("reference", [UNSEEN, SLICED])
def test_a_stated_range_is_drawn_at_all_sizes(reference):
    definition = replace(LORA, reference=reference)
    cases = every(definition)
    assert {0, 1} <= {sizes["tokens"] for sizes, _ in cases}
    ranks = {rank for sizes, inputs in cases for rank in inputs["ranks"].tolist() if sizes["tokens"] < 2}
    assert {1, 8} <= ranks <= {*range(1, 9)}
    listed = Workload("w", {"tokens": 1, "adapters": 3}, {name: InputSpec("random") for name in definition.inputs})
    assert make_inputs(definition, listed.axes, Recipe(0), workload=listed)["ranks"].shape == (3,)


@pytest.mark.parametrize(
    ("words", "constraints", "allowed"),
    [("local expert in [0, 11], or -1", (), range(-1, 12)), ("", ("((ids >= -1) & (ids < 12)).all()",), range(-1, 12)),
     ("Expert of each choice.", ("(ids >= 1).all()", "(ids <= 12).all()"), range(1, 13)), ("", (), range(6))],
)  # fmt: skip
def test_experts_are_all_of_those_that_are_stated(words, constraints, allowed):
    inputs = {"x": tensor("tokens h"), "ids": tensor("tokens top_k", "int32", description=words)}
    inputs["topk_ids"] = inputs.pop("ids")
    rules = [rule.replace("ids", "topk_ids") for rule in constraints]
    definition = define("moe", axes(tokens=None, top_k=3, h=4), inputs, {"y": tensor("tokens h")}, UNSEEN, *rules)
    assert {int(i) for _, inputs in every(definition) for i in inputs["topk_ids"].flatten()} == {*allowed}


def test_a_top_k_stays_within_its_range():
    inputs = {"logits": tensor("n vocab"), "top_k": tensor("n", "int32")}
    definition = define("topk", axes(n=None, vocab=50), inputs, {"y": tensor("n vocab")}, UNSEEN,
                        "((top_k >= 2) & (top_k <= 30)).all()")  # fmt: skip
    drawn = {int(k) for _, inputs in every(definition) for k in inputs["top_k"]}
    assert {2, 30} <= drawn <= {*range(2, 31)}


KEPT = "Number of tokens that stay in, for each sequence"  # as lengths are described


@pytest.mark.parametrize(("words", "apart"), [
    (KEPT, set()),
    (f"{KEPT}; 0 or less: all.", {0, -1}),
    (f"{KEPT}; -1 disables it.", {-1}),
    (f"{KEPT}; may exceed the vocabulary.", {51, 100}),
    (f"{KEPT}, at most 50.", set()),
])  # fmt: skip
def test_a_top_k_is_known_by_its_name_and_lies_anywhere_in_a_row(words, apart):
    inputs = {"probs": tensor("n vocab"), "top_k": tensor("n", "int32", description=words)}
    definition = define("topk", axes(n=None, vocab=50), inputs, {"y": tensor("n vocab")}, UNSEEN)
    drawn = {int(k) for _, inputs in every(definition) for k in inputs["top_k"]}
    assert drawn == {*range(1, 51)} | apart


@pytest.mark.parametrize(("dtype", "most"), [("int8", 127), ("uint8", 255), ("int16", 300), ("uint16", 300)])
def test_a_top_k_is_at_most_what_its_dtype_holds(dtype, most):
    inputs = {"probs": tensor("n vocab"), "top_k": tensor("n", dtype, description=KEPT)}
    definition = define("topk", axes(n=None, vocab=300), inputs, {"y": tensor("n vocab")}, UNSEEN)
    drawn = {int(k) for seed in range(12) for k in make_inputs(definition, {"n": 40}, Recipe(seed))["top_k"]}
    assert {1, most} <= drawn <= {*range(1, most + 1)}


def test_what_a_reference_does_with_no_top_k_is_drawn_unless_it_refuses_it():
    inputs = {"probs": tensor("n classes"), "top_k": tensor("n", "int32")}
    drawn = []
    for code in ("limit = torch.where(top_k > 0, top_k, 50)", "assert (top_k > 0).all()"):
        text = f"def run(probs, top_k):\n    {code}\n    return probs"
        definition = define("topk", axes(n=None, classes=50), inputs, {"y": tensor("n classes")}, text)
        drawn.append({int(k) for _, inputs in every(definition) for k in inputs["top_k"]})
    assert [min(each) for each in drawn] == [0, 1]
    assert [max(each) for each in drawn] == [50, 50]


def test_a_range_that_leaves_out_zero_raises_the_size_that_it_ends_at():
    inputs = {"x": tensor("rows h"), "which": tensor("n", "int32")}
    definition = define("late", axes(rows=None, n=None, h=4), inputs, {"y": tensor("n h")}, UNSEEN,
                        "((which >= 2) & (which < rows)).all()")  # fmt: skip
    cases = every(definition)
    assert all(sizes["rows"] > 2 for sizes, inputs in cases if inputs["which"].numel())
    assert {sizes["n"] for sizes, _ in cases} >= {0, 1}


@pytest.mark.parametrize(
    ("lines", "description", "constraints", "any_number"),
    [
        (("y = (v * 2).sum()",), "numbers", (), True),
        (("y = v.clamp(min=0)",), "pre-activations", (), True),
        (("y = torch.cos(v.float())",), "steps", (), False),
        (("y = table[v.long()]",), "rows", (), False),
        (("y = x[:, : int(v[0])]",), "numbers", (), False),
        (("y = (v * 2).sum()",), "numbers", ("bool((v < 40).all())",), False),
        (("y = (v * 2).sum()",), "numbers in [-9, 5]", (), False),
    ],
)
def test_what_is_only_computed_with_has_either_sign_and_all_bits(lines, description, constraints, any_number):
    definition = contract(body(*lines), description, *constraints)
    assert plan_of(contract_of(definition)).roles["v"].number is any_number
    drawn = [make_inputs(definition, {"m": 3, "rows": 5, "n": 40}, Recipe(seed))["v"] for seed in range(12)]
    assert any(int(each.min()) < 0 for each in drawn) is (any_number or "-9" in description)
    assert any(int(each.abs().max()) > 1 << 28 for each in drawn) is any_number
    assert any_number is False or any(0 <= int(each.min()) <= int(each.max()) < 64 for each in drawn)
    assert "-9" not in description or all(-9 <= int(each.min()) <= int(each.max()) <= 5 for each in drawn)


@pytest.mark.parametrize(
    ("lines", "adds"),
    [
        (("x.index_add_(0, v.long(), table)",), True),
        (("y = x.scatter_add(0, v.long(), table)",), True),
        (("y = torch.bincount(v)",), True),
        (("y = x.index_put((v.long(),), table, accumulate=True)",), True),
        (("for i in range(3):", "    x[int(v[i])] += table[i]"), True),
        (("ids = v.long()", "x[ids] += table"), False),
        (("y = x.index_copy(0, v.long(), table)",), False),
        (("x[0] += table[0]", "y = x[v.long()]"), False),
    ],
)
def test_adding_up_what_goes_to_equal_ids_is_seen(lines, adds):
    """`x[ids] += y` keeps one of those that go to the same row: of such ids none are equal."""
    assert use(contract(body(*lines)), "v").adds is adds


@pytest.mark.parametrize(
    ("description", "line", "distinct"),
    [
        ("slot of each update", "pool.index_copy_(0, slots.long(), values)", True),
        ("slot; duplicates are allowed and accumulate", "pool.index_copy_(0, slots.long(), values)", False),
        ("slot of each update; may come twice", "pool.index_copy_(0, slots.long(), values)", False),
        ("slot of each update", "pool.index_add_(0, slots.long(), values)", False),
        ("slot of each update, all different", "pool.index_add_(0, slots.long(), values)", True),
    ],
)
def test_slots_that_are_added_to_may_come_more_than_once(description, line, distinct):
    inputs = {
        "pool": tensor("num_slots h"), "values": tensor("n h"), "slots": tensor("n", "int32", description=description),
    }  # fmt: skip
    code = f"def run(pool, values, slots):\n    {line}\n    return pool"
    definition = define("slots", axes(num_slots=None, n=None, h=4), inputs, {"y": tensor("num_slots h")}, code)
    drawn = [make_inputs(definition, {"num_slots": 12, "n": 12}, Recipe(seed))["slots"] for seed in range(8)]
    assert all(len(set(each.tolist())) == 12 for each in drawn) is distinct
