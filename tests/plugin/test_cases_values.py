"""Comparisons at the edges: cases 05, 06, 07 and 10."""

import pytest

from .repository import RANDOM, Repository

HEAD = "import torch\n\n"
SHAPED = {"shape": ["n", "h"], "dtype": "float32"}


def outputs(**specs):
    return {name: {"shape": list(shape), "dtype": dtype} for name, (shape, dtype) in specs.items()}


class Book:
    """Definitions, each with variants of a kernel, run together."""

    def __init__(self, root):
        self.repository = Repository(root)

    def page(  # noqa: PLR0913
        self, name, reference, *, out, sizes=(4,), axes=None, inputs=None, op_type="elementwise", **variants
    ):
        changes = {"axes": axes} if axes else {}
        if inputs:
            changes["inputs"] = inputs
        self.repository.define(name=name, op_type=op_type, reference=HEAD + reference, outputs=out, **changes)
        given = dict.fromkeys(inputs or ("x", "w"), RANDOM)
        self.repository.lines(
            *({"uuid": f"w-{n}", "axes": {"n": n}, "inputs": given} for n in sizes), name=name, folder=op_type
        )
        for variant, source in variants.items():
            self.repository.solve(variant, HEAD + source, of=name)

    def run(self, *options):
        return self.repository.run("-k", "test_correct", *options)


ATTEND = """\
def run(x, w):
    out, lse = x * w, x.sum(1)
    out[0], lse[0] = 0.0, {lse}
    return out, lse
"""
NAN = """\
def run(x, w):
    y = x * w
    {damage}
    return y
"""


def case_05_page(book):
    book.page(
        "attend_h8",
        ATTEND.format(lse="-torch.inf"),
        out=outputs(out=(["n", "h"], "float32"), lse=(["n"], "float32")),
        same=ATTEND.format(lse="-torch.inf"),
        finite=ATTEND.format(lse="-1e30"),
        positive=ATTEND.format(lse="torch.inf"),
        nan=ATTEND.format(lse="torch.nan"),
    )
    book.page(
        "broken_h8",
        NAN.format(damage="y[1] = torch.nan"),
        out=outputs(y=(["n", "h"], "float32")),
        clean=NAN.format(damage="pass"),
        alike=NAN.format(damage="y[1] = torch.nan"),
    )


@pytest.fixture(scope="module")
def case_05(tmp_path_factory):
    book = Book(tmp_path_factory.mktemp("case_05"))
    case_05_page(book)
    return book.repository.run("-k", "test_correct or test_reference")


def test_case_05_equal_infinities_pass(case_05):
    assert case_05["test_correct[same"].outcome == "passed"


@pytest.mark.parametrize(("variant", "value"), [("finite", "-1e+30"), ("positive", "inf"), ("nan", "nan")])
def test_case_05_other_values_where_the_truth_is_infinite_fail(case_05, variant, value):
    case = case_05[f"test_correct[{variant}"]
    assert case.outcome == "failure"
    for word in ("lse", "[0]", value, "-inf"):
        assert word in case.text, case.text


def test_case_05_no_solution_is_blamed_for_a_reference_that_is_nan(case_05):
    said = "y[1, 0]: reference is NaN here: take other inputs, or accept it by --fib-tolerance=equal_nan=true"
    for variant in ("clean", "alike"):
        case = case_05[f"test_correct[{variant}"]
        assert (case.outcome, case.message) == ("skipped", f"reference fails: {said}")
    blamed, other = sorted(case_05.of("test_reference"), key=lambda case: case.outcome)
    assert (blamed.outcome, other.outcome) == ("failure", "passed")
    assert blamed.message == f"INVALID_REFERENCE: reference fails: {said}"


def test_case_05_nan_in_both_passes_where_that_is_asked_for(tmp_path):
    book = Book(tmp_path)
    case_05_page(book)
    done = book.repository.run("-k", "test_correct or test_reference", "--fib-tolerance=equal_nan=true")
    assert {case.outcome for case in done.of("test_reference")} == {"passed"}
    assert done["test_correct[alike"].outcome == "passed"
    assert done["test_correct[clean"].outcome == "failure"


def test_case_05_no_share_of_mismatches_excuses_an_infinity(tmp_path):
    book = Book(tmp_path)
    case_05_page(book)
    done = book.run("--fib-tolerance=required_matched_ratio=0.5")
    assert done["test_correct[finite"].outcome == "failure"
    assert done["test_correct[same"].outcome == "passed"


def case_06_page(book):
    book.page(
        "softmax_v65536",
        "def run(x):\n    return torch.softmax(x, -1)\n",
        out=outputs(y=(["n", "v"], "float32")),
        axes={"n": {"type": "var"}, "v": {"type": "const", "value": 65536}},
        inputs={"x": {"shape": ["n", "v"], "dtype": "float32"}},
        op_type="softmax",
        honest="def run(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n    return e / e.sum(-1, keepdim=True)\n",
        zeros="def run(x):\n    return torch.zeros_like(x)\n",
        constant="def run(x):\n    return torch.full_like(x, 1 / 65536)\n",
    )


def test_case_06_the_default_bound_tells_zeros_from_small_values(tmp_path):
    book = Book(tmp_path)
    case_06_page(book)
    done = book.run()
    assert {name.partition("[")[2].partition("-")[0]: outcome for name, outcome in done.outcomes().items()} == {
        "honest": "passed",
        "zeros": "failure",
        "constant": "failure",
    }


def test_case_06_a_tolerance_that_lets_zeros_pass_is_refused_with_the_numbers(tmp_path):
    book = Book(tmp_path)
    case_06_page(book)
    done = book.run("--fib-tolerance=rtol=1e-2 atol=1e-2")
    assert done.code == 1
    for variant in ("zeros", "constant"):
        case = done[f"test_correct[{variant}"]
        assert case.outcome in ("failure", "error")
        for word in ("zeros would pass", "0.01", "max|reference|"):
            assert word in case.message + case.text, case.text


@pytest.fixture(scope="module")
def case_07(tmp_path_factory):
    book = Book(tmp_path_factory.mktemp("case_07"))
    index = "def run(x, w):\n    return torch.full((len(x),), {value}, dtype=torch.int64)\n"
    book.page(
        "index_h8",
        index.format(value=16777217),
        out=outputs(idx=(["n"], "int64")),
        near=index.format(value=16777216),
        exact=index.format(value=16777217),
    )
    flip = "def run(x, w):\n    mask = x > 0\n    {damage}\n    return mask\n"
    book.page(
        "mask_h8",
        flip.format(damage="pass"),
        out=outputs(mask=(["n", "h"], "bool")),
        sizes=(125,),
        flipped=flip.format(damage="mask[3, 3] ^= True"),
    )
    top = (
        "def run(x, w):\n"
        "    same = torch.tensor([5.0, 7.0, 7.0, 1.0, 0.0, 0.0, 0.0, 0.0]).expand_as(x)\n"
        "    return {pick}\n"
    )
    book.page(
        "top_h8",
        top.format(pick="torch.tensor([1, 2]).expand(len(x), 2).contiguous()"),
        out={"idx": {"shape": ["n", "k"], "dtype": "int64"}},
        axes={"n": {"type": "var"}, "h": {"type": "const", "value": 8}, "k": {"type": "const", "value": 2}},
        swapped=top.format(pick="torch.tensor([2, 1]).expand(len(x), 2).contiguous()"),
    )
    best = "def run(x):\n    values, idx = x.topk(2)\n    return values, idx{order}\n"
    book.page(
        "best_h8",
        best.format(order=""),
        out={"values": {"shape": ["n", "k"], "dtype": "float32"}, "idx": {"shape": ["n", "k"], "dtype": "int64"}},
        axes={"n": {"type": "var"}, "h": {"type": "const", "value": 8}, "k": {"type": "const", "value": 2}},
        inputs={"x": {"shape": ["n", "h"], "dtype": "float32"}},
        ranked=best.format(order=""),
        turned=best.format(order=".flip(1)"),
    )
    return book


def test_case_07_ids_that_have_values_beside_them_keep_their_order(case_07):
    done = case_07.run("--fib-tolerance=idx:comparison=topk", "-k", "test_correct and (ranked or turned or swapped)")
    assert done["test_correct[ranked"].outcome == "passed"
    assert done["test_correct[swapped"].outcome == "passed", "where nothing goes with them their order is free"
    case = done["test_correct[turned"]
    assert case.outcome == "failure"
    assert "in another order than the values that go with them" in case.text


def test_case_07_integers_differ_by_one_and_fail(case_07):
    done = case_07.run()
    case = done["test_correct[near"]
    assert case.outcome == "failure"
    assert "16777216" in case.text
    assert "16777217" in case.text
    assert done["test_correct[exact"].outcome == "passed"
    assert done["test_correct[flipped"].outcome == "failure"
    assert done["test_correct[swapped"].outcome == "failure"


def test_case_07_a_share_for_all_outputs_does_not_excuse_a_bool(case_07):
    assert case_07.run("--fib-tolerance=required_matched_ratio=0.95")["test_correct[flipped"].outcome == "failure"


def test_case_07_a_share_for_the_output_by_name_does(case_07):
    done = case_07.run("--fib-tolerance=mask:required_matched_ratio=0.95")
    assert done["test_correct[flipped"].outcome == "passed"
    assert done["test_correct[near"].outcome == "failure"


ROWS = """\
def run(x, w, y):
    for row in range({rows}):
        y[row] = x[row] * w + 1
"""


@pytest.fixture(scope="module")
def case_10(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("case_10"))
    repository.define()
    repository.sizes(4)
    repository.solve("whole", ROWS.format(rows="len(x)"), destination=True)
    repository.solve("short", ROWS.format(rows="len(x) - 1"), destination=True)
    count = "def run(x, w):\n    return (x > 0).sum(1, dtype=torch.int32)\n"
    repository.define(name="count_h8", outputs=outputs(c=(["n"], "int32")), reference=HEAD + count)
    repository.sizes(4, name="count_h8")
    repository.solve("ints", "def run(x, w, c):\n    c[:-1] = (x > 0).sum(1)[:-1]\n", of="count_h8", destination=True)
    byte = "def run(x, w):\n    return (x * 40).to(torch.int8)\n"
    repository.define(name="byte_h8", outputs=outputs(c=(["n", "h"], "int8")), reference=HEAD + byte)
    repository.sizes(4, name="byte_h8")
    short = "def run(x, w, c):\n    c[:-1] = (x * 40)[:-1].to(c.dtype)\n"
    repository.solve("bytes", short, of="byte_h8", destination=True)
    return repository.run("-k", "test_correct or test_speed or test_sizes")


@pytest.mark.parametrize("check", ["test_correct", "test_speed", "test_sizes"])
def test_case_10_rows_that_were_never_written_always_fail(case_10, check):
    assert case_10[f"{check}[whole"].outcome == "passed"
    for variant in ("short", "ints"):
        case = case_10[f"{check}[{variant}"]
        assert case.outcome == "failure"
        assert "never written" in case.text, case.text


STATEMENT = "never written: the value that every output is filled with before a call is still there"


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32"])
def test_case_10_of_an_output_that_nobody_wrote_there_is_one_statement(tmp_path, dtype):
    repository = Repository(tmp_path)
    body = f"def run(x, w):\n    return (x * 40).to(torch.{dtype})\n"
    repository.define(outputs=outputs(c=(["n", "h"], dtype)), reference=HEAD + body)
    repository.sizes(4)
    repository.solve("nothing", "def run(x, w, c):\n    pass\n", destination=True)
    case = repository.run("-k", "test_correct")["test_correct[nothing"]
    first, second, *_ = case.text.splitlines()
    assert (first, second.split(":")[0]) == (f"INCORRECT_NUMERICAL: output 'c': {STATEMENT}", "  case")
    assert case.text.count("never written") == 1


def test_case_10_says_that_it_is_the_last_row(case_10):
    assert case_10["test_correct[short"].text.count("never written") == 1
    assert case_10["test_correct[bytes"].text.count(f"last row {STATEMENT}") == 1
    assert "last row never written" in case_10["test_correct[short"].text
    assert "last row never written" in case_10["test_correct[bytes"].text, "where each bit pattern is a value, too"
