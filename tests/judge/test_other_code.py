"""Code of a definition besides its reference, as the reference's worker runs it and as the judge reads its replies."""

from types import SimpleNamespace

import pytest
import torch

from pytest_flashinfer.data.model import Definition, TensorSpec
from pytest_flashinfer.inputs.errors import InputsError
from pytest_flashinfer.judge.reference import other_code_client
from pytest_flashinfer.judge.reference.other_code import Foreign, ForeignError

INPUTS = {"x": TensorSpec(("n",), "float32"), "scale": TensorSpec(None, "float32"), "kv": TensorSpec(("n",), "float32")}
INIT = """
def make(*, n, device="cuda", seed=0):
    g = torch.Generator(device).manual_seed(seed)
    return {"X": torch.rand(n, generator=g), "scale": 0.1, "workspace": 3}
"""
CHECK = """
def check(reference_outputs, actual_outputs, *, rtol=0.5, atol=0.0):
    if float(reference_outputs.sum()) == 7:
        raise RuntimeError("the check is broken")
    if actual_outputs.shape != reference_outputs.shape:
        raise ValueError("shapes differ")
    return bool(((actual_outputs - reference_outputs).abs() <= atol + rtol * reference_outputs.abs()).all())
"""


def definition(**more):
    return Definition("d", "op", {}, INPUTS, {}, "def run(x, scale, kv): return x", **more)


class Memory:
    """Slots that hold tensors by name."""

    def __init__(self, **tensors):
        self.tensors = tensors

    def tensor(self, slot):
        return self.tensors[slot["name"]]


def foreign(**more):
    return Foreign(other_code_client.describe(definition(**more)), "cpu")


def make(code, what="init", axes=None):
    return foreign(**code).make({"what": what, "axes": axes or {"n": 4}, "seed": 3, "scalars": {}})


def test_a_definition_without_other_code_has_no_description():
    assert other_code_client.describe(definition()) is None


def test_made_tensors_are_held_until_they_are_taken():
    one = foreign(init=INIT)
    reply = one.make({"what": "init", "axes": {"n": 4}, "seed": 3, "scalars": {}})
    assert reply == {
        "values": [{"name": "x", "size": [4], "dtype": "torch.float32"}, {"name": "scale", "float": (0.1).hex()}],
        "unused": ["X", "workspace"],
    }
    place = torch.zeros(4)
    one.take({"slots": [{"name": "x"}]}, Memory(x=place))
    assert torch.equal(place, torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert one.held == {}


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("def make(*, rows, device, seed):\n    return {}\n", "inputs", "asks for `rows`, which is not an axis"),
        ("def make(*, n):\n    return [n]\n", "inputs", "returned list, not a dict"),
        ("def make(*, n):\n    return 1 / 0\n", "inputs", "ZeroDivisionError"),
        ("x = 1\n", "inputs", "holds no function"),
        ("def make(*, n):\n    import not_here\n", "absent", "not_here"),
        ("import not_here\ndef make(*, n):\n    pass\n", "absent", "not_here"),
        ("def make(*, n):\n    return {'x': object()}\n", "inputs", "made as a object"),
        ("def make(*, n):\n    return {'x': torch.eye(n).to_sparse()}\n", "inputs", "made with layout"),
    ],
)
def test_what_init_does_wrong_is_told_in_a_line(source, kind, said):
    with pytest.raises(ForeignError) as caught:
        make({"init": source})
    assert caught.value.kind == kind
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_custom_inputs_get_axes_and_scalars():
    source = "def run(x, scale, kv): return x\ndef gen(sizes, device): return {'x': torch.full((2,), sizes['s'])}\n"
    described = other_code_client.describe(definition(custom_inputs="gen")) | {"reference": source}
    one = Foreign(described, "cpu")
    one.make({"what": "custom", "axes": {"n": 2}, "seed": 3, "scalars": {"s": 1.5}})
    assert one.held["x"].tolist() == [1.5, 1.5]


def check(reference, actual, **settings):
    memory = Memory(r=torch.tensor(reference), a=torch.tensor(actual))
    request = {"pairs": [[{"name": "r"}, {"name": "a"}]], "settings": settings}
    return foreign(check=CHECK).check(request, memory)


def test_the_check_decides_with_the_settings():
    assert check([1.0, 2.0], [1.4, 2.0]) == {"passed": True, "why": ""}
    assert check([1.0, 2.0], [1.4, 2.0], rtol=0.1) == {"passed": False, "why": ""}
    assert check([1.0], [1.0, 2.0]) == {"passed": False, "why": "ValueError: shapes differ"}


def test_a_check_that_fails_on_the_reference_itself_is_to_blame():
    with pytest.raises(ForeignError, match="the definition's check raised RuntimeError") as caught:
        check([7.0], [7.0])
    assert caught.value.kind == "reference"


def test_a_check_that_does_not_load_is_to_blame():
    with pytest.raises(ForeignError) as caught:
        foreign(check="def c(:\n").check({"pairs": [], "settings": {}}, Memory())
    assert caught.value.kind == "reference"


class Oracle:
    """The judge's side of a worker that gives fixed replies."""

    def __init__(self, *replies):
        self.asked = []
        answers = iter(replies)
        self.worker = SimpleNamespace(call=lambda request, timeout: self.asked.append(request) or next(answers))
        self.arena = SimpleNamespace(data=torch.zeros(4096, dtype=torch.uint8))

    def place(self, packing, values):
        for name, value in values.items():
            packing.slots[name].tensor_of(self.arena.data).copy_(value)


def test_replies_become_inputs():
    values = [{"name": "x", "size": [2], "dtype": "torch.float32"}, {"name": "s", "float": "0x1p-1"},
              {"name": "k", "value": None}]  # fmt: skip
    oracle = Oracle({"values": values, "unused": ["a\x1b[0m"]}, {})
    oracle.arena.data[:8] = torch.tensor([1.0, 2.0]).view(torch.uint8)
    made, unused = other_code_client.make(oracle, {"what": "init"}, 1.0)
    assert made["x"].tolist() == [1.0, 2.0]
    assert (made["s"], made["k"]) == (0.5, None)
    assert unused[0].isprintable()
    assert oracle.asked[0] == {"what": "init", "do": "make"}
    assert [slot["name"] for slot in oracle.asked[1]["slots"]] == ["x"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"name": "x", "size": [2], "dtype": "torch.quint8"}, "made with dtype torch.quint8"),
        ({"name": "x", "size": [-1], "dtype": "torch.float32"}, "a shape that is none"),
        ({"name": "x", "size": [True], "dtype": "torch.float32"}, "a shape that is none"),
        ({"name": "x", "size": [1 << 20, 1 << 20], "dtype": "torch.float32"}, "MiB"),
        ({"name": "x", "value": {"a": 1}}, "made as no plain value"),
    ],
)
def test_replies_that_are_none_are_refused(value, said):
    with pytest.raises(InputsError, match=said):
        other_code_client.make(Oracle({"values": [value]}, {}), {"what": "init"}, 1.0)


def test_the_verdict_of_a_check_is_its_word_and_nothing_like_it():
    pairs = [(torch.ones(2), torch.zeros(2)), (None, torch.ones(1))]
    assert other_code_client.check(Oracle({"passed": True}), pairs, {}, 1.0) is None
    assert other_code_client.check(Oracle({"passed": False, "why": "x\x1b"}), pairs, {}, 1.0) == (
        "refused by the definition's own check: x\\x1b"
    )
    for answer in ({}, {"passed": 1}, {"passed": "True"}):
        assert other_code_client.check(Oracle(answer), pairs, {}, 1.0) == "refused by the definition's own check"
    oracle = Oracle({"passed": True})
    other_code_client.check(oracle, pairs, {"rtol": 0.5}, 1.0)
    [request] = oracle.asked
    assert request["settings"] == {"rtol": 0.5}
    assert [[slot is not None for slot in pair] for pair in request["pairs"]] == [[True, True], [False, True]]
