"""Sizes: solved, checked, completed, and said to be impossible in one line that helps."""

from __future__ import annotations

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from pytest_flashinfer.data.evaluate import run
from pytest_flashinfer.data.model import Axis
from pytest_flashinfer.inputs.constraints.equation import yields
from pytest_flashinfer.inputs.constraints.facts import as_rule, dimension, read
from pytest_flashinfer.inputs.contract import contract_of
from pytest_flashinfer.inputs.errors import AxisConflict, InputsError, Unsatisfiable
from pytest_flashinfer.inputs.sizes.axes import complete, output_shapes, solve_axes
from pytest_flashinfer.inputs.sizes.edges import edge_cases
from pytest_flashinfer.inputs.sizes.grid import grid_of
from tests.inputs.contracts import DENSE, MLA_PREFILL, PACKED, RAGGED, axes, define, tensor


def sizes(*constraints: str, **given: int | None):
    return define("d", axes(**given), {f"x_{n}": tensor(n) for n in given}, {"y": tensor(None)}, "", *constraints)


@pytest.mark.parametrize(
    ("constraint", "given", "name", "value"),
    [
        ("len_indptr == b + 1", {"b": 4}, "len_indptr", 5),
        ("len_indptr == b + 1", {"len_indptr": 5}, "b", 4),
        ("hidden == 2 * half", {"hidden": 10}, "half", 5),
        ("packed == k // 2", {"k": 9}, "packed", 4),
        ("packed == k // 2", {"packed": 4}, "k", 8),
        ("p * heads == 56", {"p": 7}, "heads", 8),
        ("padded == (m + 127) // 128 * 128", {"m": 129}, "padded", 256),
        ("rows - 3 == n", {"n": 2}, "rows", 5),
    ],
)
def test_one_unknown_is_found_whatever_side_it_stands_on(constraint, given, name, value):
    names = contract_of(sizes(constraint)).sizes
    definition = sizes(constraint, **dict.fromkeys(names))
    assert solve_axes(definition, given)[name] == value


@pytest.mark.parametrize(
    ("constraint", "some", "right"),
    [
        ("n & (n - 1) == 0", {4, 64, 256}, lambda n: n & (n - 1) == 0),
        ("(n & (n - 1)) == 0 and n >= 1", {1, 64, 256}, lambda n: n >= 1),
        ("n & 15 == 0", {16, 48, 272}, lambda n: n % 16 == 0),
        ("n ^ (n & 7) == n", {8, 40, 264}, lambda n: n % 8 == 0),
        ("n / 2 == n // 2", {2, 18, 258}, lambda n: n % 2 == 0),
        ("n == n // 16 * 16", {16, 48, 272}, lambda n: n % 16 == 0),
        ("(n + 15) // 16 * 16 == n", {16, 48, 272}, lambda n: n % 16 == 0),
        ("n == 8 * (n // 8)", {8, 40, 264}, lambda n: n % 8 == 0),
        ("n == min(n, 64)", {0, 1, 33, 64}, lambda n: n <= 64),
        ("n // 64 == 0", {0, 1, 33, 63}, lambda n: n < 64),
        ("cdiv(n, 64) == 2", {65, 67, 128}, lambda n: 64 < n <= 128),
        ("abs(n - 8) == 2", {6, 10}, lambda n: n in {6, 10}),
        ("(n - 8) * (n - 10) == 0", {8, 10}, lambda n: n in {8, 10}),
        ("n > 100000", {100001}, lambda n: n > 100000),
        ("n >= 100000 and n % 3 == 1", {100000}, lambda n: n >= 100000 and n % 3 == 1),
        ("not n <= 70000", {70001}, lambda n: n > 70000),
    ],
)
def test_an_equation_with_many_solutions_leaves_its_size_free(constraint, some, right):
    found = {case["n"] for case, _ in edge_cases(sizes(constraint, n=None))}
    assert some <= found
    assert all(map(right, found))
    with pytest.raises(Unsatisfiable, match="axis `n` has no size"):
        solve_axes(sizes(constraint, n=None), {})


def test_a_size_that_is_named_twice_in_a_sum_follows():
    definition = sizes("n * q + 2 * n * k == 4096", n=None, q=None, k=8)
    assert solve_axes(definition, {"q": 16})["n"] == 128
    assert "n" in contract_of(definition).derived


def _operations(parts):
    binary = st.sampled_from(["({} + {})", "({} - {})", "({} * {})", "({} // 3 + {})", "({} & {})", "min({}, {})"])
    unary = st.sampled_from(["(-{})", "abs({} - 9)", "cdiv({}, 16)", "({} >> 2)", "({} << 1)", "({} ^ 5)", "({} % 7)"])
    return st.builds(str.format, binary, parts, parts) | st.builds(str.format, unary, parts)


@drawn(st.recursive(st.sampled_from(["n", "m", "3", "16"]), _operations, max_leaves=5))
def test_an_equation_yields_only_what_its_sides_rise_or_fall_with(text):
    rule = as_rule(text, dimension(f"{text} == m"))
    if yields(rule, "n"):
        values = [run(rule.left, {"n": n, "m": 5}) for n in range(200)]
        assert sorted(values) in (values, values[::-1])


def test_equations_are_followed_to_the_end():
    definition = sizes("b == 2 * a", "c == b + 1", "d == c * a", a=None, b=None, c=None, d=None)
    assert solve_axes(definition, {"d": 21, "c": 7}) == {"a": 3, "b": 6, "c": 7, "d": 21}


def test_an_axis_given_by_an_expression_follows():
    known = {"h": Axis("const", 8), "n": Axis("var"), "both": Axis("expr", expression="n * h // 2")}
    definition = define("e", known, {"x": tensor("n both")}, {"y": tensor("both")}, "")
    assert solve_axes(definition, {"n": 3})["both"] == 12
    assert contract_of(definition).free == ("n",)


@pytest.mark.parametrize(
    ("names", "given", "found"),
    [
        ("batch_size batch_size_plus_1", {"batch_size": 3}, {"batch_size_plus_1": 4}),
        ("num_seqs len_cu_seqlens", {"num_seqs": 3}, {"len_cu_seqlens": 4}),
        ("batch_size len_indptr", {"len_indptr": 4}, {"batch_size": 3}),
        ("k k_div_128", {"k": 300}, {"k_div_128": 3}),
        ("n one", {"n": 3}, {"one": 1}),
    ],
)
def test_conventions_hold_where_no_constraint_speaks(names, given, found):
    definition = sizes(**dict.fromkeys(names.split()))
    assert found.items() <= solve_axes(definition, given).items()


def test_a_convention_gives_way_to_what_a_workload_says():
    definition = sizes(batch_size=None, len_indptr=None)
    assert solve_axes(definition, {"batch_size": 3, "len_indptr": 9}) == {"batch_size": 3, "len_indptr": 9}


def test_an_axis_that_only_a_shape_names_is_found():
    given = {"total_q": 5, "num_pages": 9, "len_indptr": 4, "num_kv_indices": 6}
    assert solve_axes(MLA_PREFILL, given)["batch_size"] == 3


def test_a_workload_that_violates_a_constraint_is_told_the_values():
    with pytest.raises(AxisConflict) as caught:
        solve_axes(RAGGED, {"n": 4, "len_indptr": 6, "total": 3})
    assert caught.value.constraint == "len_indptr == n + 1"
    told = "constraint `len_indptr == n + 1` does not hold for len_indptr = 6, n = 4, n + 1 = 5; correct the workload"
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        (["n > 10"], "`n > 10` does not hold for n = 4; correct the workload"),
        (["n > 10", "n < 5"], "`n > 10` does not hold for n = 4; no sizes were found that satisfy all constraints"),
    ],
)
def test_constraints_that_no_size_satisfies_are_not_the_workloads_fault(constraints, told):
    with pytest.raises(AxisConflict) as caught:
        solve_axes(sizes(*constraints, n=None), {"n": 4})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("used", "told"), [("token", "did you mean 'tokens'?"), ("width", "declare it under axes")]
)
def test_a_misspelt_axis_is_named_as_the_check_of_the_file_names_it(used, told):
    definition = define("d", axes(tokens=None), {"x": tensor(used)}, {"y": tensor("tokens")}, "")
    with pytest.raises(InputsError) as caught:
        solve_axes(definition, {"tokens": 4})
    assert str(caught.value) == f"unknown axis {used!r}; {told}"


@pytest.mark.parametrize("given", [{"n": -1}, {"h": 7, "n": 1}])
def test_impossible_sizes_are_conflicts(given):
    with pytest.raises(AxisConflict):
        solve_axes(RAGGED, {"total": 0, **given})


def test_a_size_that_no_constraint_speaks_of_is_asked_for():
    definition = define("d", axes(tokens=None), {"x": tensor("tokens")}, {"y": tensor("tokens")}, "")
    with pytest.raises(Unsatisfiable) as caught:
        solve_axes(definition, {})
    assert str(caught.value) == "axis `tokens` has no size: state it in the workload's axes"


def test_a_missing_size_is_named():
    with pytest.raises(Unsatisfiable, match="axis `total` has no size"):
        solve_axes(RAGGED, {"n": 4})
    with pytest.raises(Unsatisfiable, match=r"`m == 2 \* n` cannot be met: nothing decides axis `n`; state `n` in the"):
        solve_axes(sizes("m == 2 * n", n=None, m=None), {})


def test_nothing_can_satisfy_it_and_the_message_says_which_hook_would_help():
    definition = sizes("n * n == 2", n=None)
    with pytest.raises(Unsatisfiable, match=r"`n \* n == 2`.*`inputs` fixture in a conftest") as caught:
        edge_cases(definition)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("constraints", "wish", "expected"),
    [
        (["n % g == 0"], {"n": 13, "g": 4}, {"n": 16}),
        (["n in (16, 32)"], {"n": 20}, {"n": 32}),
        (["topk <= pages * 4"], {"topk": 30, "pages": 2}, {"pages": 8}),
        (["1 <= a // b <= 4"], {"a": 3, "b": 5}, {"a": 5}),
        (["n >= 2 or m == 0"], {"n": 1, "m": 3}, {"n": 2}),
        (["m == 2 * n", "m % 8 == 0"], {"n": 5}, {"n": 8, "m": 16}),
        (["min(n, m) >= 2"], {"n": 1, "m": 1}, {"n": 2, "m": 2}),
        (["min(n, m, k) >= 2"], {"n": 1, "m": 1, "k": 257}, {"n": 2, "m": 2, "k": 257}),
        (["max(n, m) <= 3"], {"n": 9, "m": 7}, {"n": 3, "m": 3}),
        (["all(v > 2 for v in (n, m))"], {"n": 1, "m": 2}, {"n": 3, "m": 3}),
    ],
)
def test_inequalities_raise_a_free_axis(constraints, wish, expected):
    contract = contract_of(sizes(*constraints, **dict.fromkeys(contract_of(sizes(*constraints)).sizes)))
    found = complete(contract, wish)
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        ("n * 2 == 7", "cannot be met: no size of n was found for it;"),
        ("all(v > v + n for v in (n, m))", "cannot be met: the nearest sizes found have m = 1, n = 1;"),
    ],
)
def test_what_nothing_satisfies_is_told_with_the_sizes_that_there_are(constraint, told):
    definition = sizes(constraint, n=None, m=None)
    with pytest.raises(Unsatisfiable) as caught:
        complete(contract_of(definition), {})
    assert told in str(caught.value)


def test_a_name_of_a_loop_is_no_size():
    definition = sizes("all(v > 2 for v in (n, m))", n=None, m=None)
    assert contract_of(definition).sizes == ("n", "m")
    with pytest.raises(AxisConflict, match="does not hold for m = 1, n = 4; correct the workload"):
        solve_axes(definition, {"n": 4, "m": 1})


def test_shapes_of_tensors_in_constraints_need_no_data():
    reading = read(("x.shape[1] == 2 * y", "len(x) == n", "x.size(0) == n"), {"x": ("n", "m")})
    assert not reading.data
    assert [sorted(rule.names) for rule in reading.axis] == [["m", "y"]]  # n == n says nothing


def test_an_optional_tensor_counts_as_present():
    reading = read(("bits is None or words == (n + 31) // 32",), {"bits": ("words",)})
    assert reading.axis[0].left is not None


def test_what_nobody_can_parse_is_kept_apart():
    reading = read(("a ==", "rows come in order, always", "open('x')"), {})
    assert [text.partition(":")[0] for text in reading.broken] == ["a ==", "open('x')"]
    assert reading.axis == reading.scalar == reading.data == ()


def test_output_shapes_follow_from_the_axes():
    assert output_shapes(PACKED, {"m": 3, "n": 8, "k": 32, "k_blocks": 1}) == {"c": (3, 8), "again": (3, 16)}


def test_an_axis_only_outputs_use_is_bound_by_the_result():
    definition = define("nonzero", axes(n=None, hits=None), {"x": tensor("n")}, {"y": tensor("hits n")}, "")
    found = solve_axes(definition, {"n": 4})
    assert found == {"n": 4}
    assert output_shapes(definition, found) == {"y": (None, 4)}
    assert "hits" not in contract_of(definition).free


def test_entries_of_shapes_may_be_arithmetic():
    definition = define("half", axes(n=None, h=8), {"x": tensor("n")}, {"y": tensor(None)}, "")
    definition.inputs["x"] = type(definition.inputs["x"])(("n", "h / 2"), "uint8")
    assert grid_of(definition).elements({"n": 3, "h": 8}) == 3 * 4 + 1


@pytest.mark.parametrize(
    ("queries", "keys", "tied"),
    [
        ("len_q", "len_kv", True), ("len_qo", "len_k", True), ("seqlen_q", "seqlen_k", True), ("q_len", "kv_len", True),
        ("max_seqlen_q", "max_seqlen_kv", True), ("q_len_padded", "len_kv_padded", True),
        ("len_quota", "len_kv", False), ("len_q", "len_keep", False), ("q_lens_at_all", "kv_len", False),
        ("seq_len_quanta", "kv_len", False),
    ],
)  # fmt: skip
def test_only_the_lengths_of_queries_and_keys_are_tied_by_their_names(queries, keys, tied):
    sizes = axes(**{queries: None, keys: None})
    definition = define("d", sizes, {"x": tensor(queries), "w": tensor(keys)}, {"y": tensor(queries)}, "")
    assert (grid_of(definition).settled({queries: 9, keys: 2})[keys] == 9) is tied


def test_queries_get_as_many_keys_where_both_are_free():
    definition = define("d", axes(qo_len=None, kv_len=None), {"q": tensor("qo_len"), "k": tensor("kv_len")},
                        {"y": tensor("qo_len")}, "")  # fmt: skip
    assert grid_of(definition).settled({"qo_len": 9, "kv_len": 2})["kv_len"] == 9
    assert solve_axes(DENSE, {"B": 1, "Q": 2, "KV": 3, "H_qo": 4})["H_kv"] == 2
