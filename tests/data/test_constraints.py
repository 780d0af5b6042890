import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.constraints import ConstraintError, UnsupportedError, evaluate_integer, parse


class Ints:
    """As much of a tensor of integers as constraints use, so that these tests need no torch."""

    def __init__(self, *values, dtype="torch.int32"):
        self.values, self.dtype, self.shape, self.ndim = list(values), dtype, (len(values),), 1

    def __getitem__(self, index):
        picked = self.values[index]
        return Ints(*picked) if isinstance(picked, list) else Ints(picked)

    def _with(self, other, compare):
        others = other.values if isinstance(other, Ints) else [other] * len(self.values)
        return Ints(*(compare(a, b) for a, b in zip(self.values, others, strict=True)))

    def __ge__(self, other):
        return self._with(other, lambda a, b: a >= b)

    def __le__(self, other):
        return self._with(other, lambda a, b: a <= b)

    def __eq__(self, other):
        return self._with(other, lambda a, b: a == b)

    __hash__ = None

    def __and__(self, other):
        return self._with(other, lambda a, b: a & b)

    def __int__(self):
        return self.item()

    def __bool__(self):
        if len(self.values) != 1:
            raise RuntimeError("Boolean value of several elements is ambiguous")
        return bool(self.values[0])

    def __len__(self):
        return len(self.values)

    def item(self):
        (value,) = self.values
        return value

    def all(self):
        return Ints(all(self.values))

    def max(self):
        return Ints(max(self.values))

    def sum(self):
        return Ints(sum(self.values))

    def numel(self):
        return len(self.values)

    def size(self, dim):
        return self.shape[dim]

    def tolist(self):
        return self.values


ENV = {
    "b": 3,
    "len_indptr": 4,
    "total": 5,
    "h": 64,
    "indptr": Ints(0, 2, 2, 5),
    "state": None,
    "layout": "NHD",
    "eps": 1e-6,
}

TRUE = [
    "len_indptr == b + 1",
    "1 <= b <= 4",
    "b in (1, 3) and h % 8 == 0 or False",
    "not b == 4",
    "h // 3 * 2 - 1 == 41",
    "-b < +b",
    "h / 2 == 32",
    "2 ** b == 8",
    "total == indptr[-1].item()",
    "total == int(indptr[-1])",
    "indptr[0] == 0",
    "bool((indptr[1:] >= indptr[:-1]).all()) and int(indptr[0]) == 0",
    "((indptr[1:] >= 0) & (indptr[1:] <= 5)).all()",
    "all(indptr[i] <= indptr[i + 1] for i in range(b))",
    "torch.all(indptr[1:] >= indptr[:-1])",
    "max(indptr) == total",
    "sum(indptr.tolist()) == 9",
    "sorted(indptr) == indptr.tolist()",
    "all(a <= c for a, c in zip(indptr.tolist(), indptr.tolist()))",
    "all(i <= p for i, p in enumerate(indptr.tolist()))",
    "set([1, 2]) == {2, 1}",
    "len(indptr) == len_indptr and indptr.shape[0] == len_indptr and indptr.size(0) == 4 and indptr.numel() == 4",
    "indptr.shape == (4,)",
    "indptr.dtype == torch.int32 and indptr.dtype == 'int32' and indptr.dtype == 'torch.int32'",
    "state is None or state.shape[0] == b",
    "state is None if b == 3 else b == 9",
    "layout in ['NHD', 'HND']",
    "layout not in ('HND',)",
    "cdiv(h, 10) == 7 and ceil(h / 10) == 7 and math.ceil(h / 10) == 7",
    "min(b, h) == 3 and max([b, h]) == 64 and abs(-b) == 3",
    "0 < eps < 1",
]


@pytest.mark.parametrize("text", TRUE)
def test_true_constraints(text):
    constraint = parse(text, list(ENV), tensors=["indptr", "state"])
    assert constraint.kind == "expression"
    assert constraint.holds(ENV)
    assert constraint.names <= ENV.keys()
    assert constraint.reads_tensors == bool({"indptr", "state"} & constraint.names)


@pytest.mark.parametrize(
    "text", ["len_indptr == b", "total == indptr[0].item()", "b in (1, 2)", "layout == 'x'", "1 < b < 2"]
)
def test_false_constraints(text):
    assert not parse(text).holds(ENV)


def test_case_04_message_has_the_constraint_and_both_values():
    text = parse("len_indptr == b + 1").explain({"len_indptr": 9, "b": 3})
    assert text == "'len_indptr == b + 1' does not hold for b = 3, len_indptr = 9, b + 1 = 4"
    assert parse("b > 10").explain({"b": 4}) == "'b > 10' does not hold for b = 4"
    assert parse("1 > 2").explain({}) == "'1 > 2' does not hold"
    why = "does not hold for b = 4: b % 0 cannot be computed: b % 0 divides by zero"
    assert parse("b % 0 == 1").explain({"b": 4}) == f"'b % 0 == 1' {why}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tokens =< 8192", "tokens <= 8192"),
        ("tokens => 1", "tokens >= 1"),
        ("tokens = 3", "tokens == 3"),
        ("a >= 1 && b <= 2", "a >= 1 and b <= 2"),
        ("a > 1||b", "a > 1 or b"),
        ("!(a == b)", "not (a == b)"),
        ("a ≤ b", "a <= b"),
        ("a ≠ 0 && b", "a != 0 and b"),
    ],
)
def test_operators_of_other_languages_are_understood_as_a_slip(text, meant):
    with pytest.raises(ConstraintError) as caught:
        parse(text)
    assert str(caught.value).endswith(f"; did you mean {meant!r}?")


@pytest.mark.parametrize("text", ["n <", "a ! b", "(a == b", "a != b)", "a && (b"])
def test_nothing_is_suggested_that_does_not_parse_either(text):
    with pytest.raises(ConstraintError, match="does not parse") as caught:
        parse(text)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "each segment lies within one page",
        "indptr is sorted",
        "indptr is non decreasing",
        "indptr must have b + 1 entries, all of them >= 0.",
        "kv_indptr monotonic",
        "The page indices (kv_indices) are unique.",
    ],
)
def test_case_04_a_sentence_in_words_is_prose(text):
    constraint = parse(text, ["indptr", "b", "kv_indices"])
    assert (constraint.kind, constraint.tree, constraint.names) == ("prose", None, frozenset())
    with pytest.raises(ConstraintError):
        constraint.holds({})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("len_indptr == b +", "does not parse"),
        ("a = b + 1", "does not parse"),
        ("(a == b", "does not parse"),
        ("a == b c", "does not parse"),
        ("", "does not parse"),
        ("b\0 == 1", "does not parse"),
        ("(" * 500, "does not parse"),
        ("b == 1 and " * 300 + "b", "longer than"),
        ("bb == 3", "unknown name 'bb'; did you mean 'b'?"),
        ("zzz == 3", "it is neither an axis nor an input"),
    ],
)
def test_broken_constraints(text, message):
    with pytest.raises(ConstraintError) as caught:
        parse(text, ["a", "b", "c", "len_indptr"])
    assert message in str(caught.value)
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "x.__class__",
        "x.data_ptr()",
        "open('x')",
        "(lambda: 1)()",
        "[].__len__()",
        "f'{x}'",
        "torch.load('x')",
        "math.factorial(9999)",
        "x.sum(**y)",
        "max(*x)",
        "(y := 3)",
        "{1: 2}",
        "x.shape.count(1) == 2",
        "x.fill_(1)",
        "x.repeat(99999)",
        "torch.rand(10 ** 12)",
        "torch.save(x, 'x')",
        "-" * 100 + "1",
    ],
)
def test_what_is_not_known_is_not_computed(text):
    with pytest.raises(UnsupportedError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9 == b",
        "1 << 99999 == b",
        "[1] * 999999999 == b",
        "'%999999999d' % b == 'x'",
        "len(range(10 ** 9)) == b",
        "all(sum(range(100000)) > i for i in range(100000))",
        "all(i + j >= 0 for i in range(9999) for j in range(9999))",
        "b / 0 == 1",
        "indptr[99] == 1",
        "indptr >= 1",
        "layout + b == 1",
        "unbound == 1",
        "int('9' + layout) == 1",
        "state.shape[0] == 1",
    ],
)
def test_what_cannot_be_computed_says_so_at_once(text):
    start = time.process_time()
    with pytest.raises(ConstraintError):
        parse(text).holds(ENV)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "size"), [("4096 / 32", 128), ("h // 3 * 2", 42), ("h * 2.0", 128), ("max(h, 3)", 64)]
)
def test_sizes(text, size):
    assert evaluate_integer(text, {"h": 64}) == size


@pytest.mark.parametrize("text", ["4097 / 32", "h + x", "True", "'a'", "h.shape", "some words here", "h / 0"])
def test_what_is_no_size(text):
    with pytest.raises(ConstraintError):
        evaluate_integer(text, {"h": 64})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ids.unique().numel() == ids.numel()", True),
        ("torch.unique(ids).numel() == 2", False),
        ("bool(((ids / 0).isposinf() | (ids / 0).isneginf()).all())", True),
        ("bool((ids - 1 <= (ids - 3).clamp(min=0) * 2 + ids).all())", True),
        ("ids.sort().values[0] == 1 and ids.argsort()[0] == 1", True),
        ("bool((ids.cumsum(0)[-1] == ids.sum()).all())", True),
        ("torch.isin(ids, torch.arange(5)).all()", True),
        ("bool(torch.where(ids > 2, ids, 0).eq(ids).all())", False),
        ("int(torch.bincount(ids, minlength=8).max()) == 1", True),
        ("torch.bincount(ids * 10 ** 8).max() == 1", None),
        ("ids.to(torch.float64).mean() == 7 / 3", True),
        ("ids.sum(dtype=torch.int32).item() == 7", True),
        ("torch.equal(ids, torch.cat([ids[:1], ids[1:]]))", True),
        ("ids.view(1, 3).t().shape == (3, 1) and ids[None].T.ndim == 2", True),
        ("torch.cat([torch.arange(10 ** 6) for i in range(99)]).numel() == 0", None),
        ("size.clamp(min=2) == 2", None),
        ("size.item() == 1 and size.max() == 1", True),
    ],
)
def test_what_tensors_have_is_computed(text, holds):
    torch = pytest.importorskip("torch")
    env = {"ids": torch.tensor([4, 1, 2]), "size": 1}
    if holds is None:
        with pytest.raises(ConstraintError):
            parse(text).holds(env)
    else:
        assert parse(text).holds(env) is holds


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("(ids <= 1000).all()", True),
        ("(ids < 256).all()", True),
        ("(ids >= -1).all()", True),
        ("(2 ** 40 > ids).all()", True),
        ("0 <= ids.min() <= 70000", True),
        ("(ids > 300).any()", False),
        ("(ids == -251).any()", False),
    ],
)
def test_a_number_that_a_tensors_dtype_does_not_hold_is_compared_as_it_is(text, holds, dtype):
    torch = pytest.importorskip("torch")
    assert parse(text).holds({"ids": torch.tensor([5, 0, 100], dtype=getattr(torch, dtype))}) is holds


WORDS = st.sampled_from(
    [
        "b",
        "h",
        "indptr",
        "[-1]",
        ".item()",
        ".shape",
        "==",
        "+",
        "(",
        ")",
        "and",
        "1",
        "is",
        "None",
        "in",
        ",",
        "**",
        "for",
    ]
)


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_is_an_expression_a_sentence_or_refused(text):
    outcome = ""
    try:
        constraint = parse(text)
        if constraint.kind == "expression":
            constraint.holds(ENV)
    except ConstraintError as error:
        outcome = str(error)
    assert "\n" not in outcome
