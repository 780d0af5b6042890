"""How the parameters of a dumped reference are matched with the inputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_flashinfer.data.absent import missing_names
from pytest_flashinfer.data.calling import adapter, entry_source, module_source
from pytest_flashinfer.data.model import Axis, Definition, TensorSpec

SHAPE = SimpleNamespace


def spec(*shape, optional=False, param=None):
    return TensorSpec(shape, "float32", optional=optional, param=param)


def definition(source, inputs, form=5, style="return", **axes):
    kinds = {name: Axis("var" if value is None else "const", value) for name, value in axes.items()}
    outputs = {"y": spec("n")}
    return Definition("d", "op", kinds, inputs, outputs, source, "f_reference", style, form=form)


def called(source, inputs, *values, form=5, **axes):
    """Run the entry with values in the order of the inputs."""
    text, entry = entry_source(definition(source, inputs, form, **axes))
    module = {}
    exec(text, module)
    return module[entry](*values)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("def f_reference(x, w): return x, w", ("X", "W")),
        ("def f_reference(w, x): return x, w", ("X", "W")),
        ("def f_reference(*, w, x): return x, w", ("X", "W")),
        ("def f_reference(X, W): return X, W", ("X", "W")),
        ("def f_reference(a, b): return a, b", ("X", "W")),
        ("def f_reference(b, w): return b, w", ("X", "W")),
        ("def f_reference(pair): return pair", ("X", "W")),
        ("def f_reference(x, w, h): return x, w, h", ("X", "W", 8)),
        ("def f_reference(x, w, H=None): return x, w, H", ("X", "W", 8)),
        ("def f_reference(x, w, out=None): return x, w, out", ("X", "W", None)),
        ("def f_reference(x, w, out): return x, w, out", ("X", "W", None)),
        ("def f_reference(x, **rest): return x, rest", ("X", {"w": "W"})),
        ("def f_reference(*given): return given", ("X", "W")),
        ("def f_reference(x, /, *, w): return x, w", ("X", "W")),
    ],
)
def test_parameters_are_bound_by_name_axis_case_tuple_and_position(source, result):
    assert called(source, {"x": spec("n"), "w": spec("n")}, "X", "W", n=None, h=8) == result


def test_inputs_said_to_belong_to_a_parameter_are_a_tuple():
    inputs = {"q": spec("n"), "k_part": spec("n", param="cache"), "v_part": spec("n", param="cache"), "z": spec("n")}
    source = "def f_reference(z, cache, q): return q, cache, z"
    assert called(source, inputs, 1, 2, 3, 4, n=None) == (1, (2, 3), 4)


def test_k_and_v_make_a_kv():
    inputs = {"q": spec("n"), "k_cache": spec("n"), "v_cache": spec("n")}
    assert called("def f_reference(q, kv_cache): return kv_cache", inputs, 1, 2, 3, n=None) == (2, 3)


def test_a_size_without_a_value_is_read_from_a_tensor():
    tensor = SHAPE(shape=(5, 7))
    assert called("def f_reference(x, d): return d", {"x": spec("n", "d")}, tensor, n=None, d=None) == 7


def test_an_optional_input_that_is_left_out_leaves_the_default():
    inputs = {"x": spec("n"), "w": spec("n", optional=True)}
    source = "def f_reference(x, w='default'): return w"
    assert called(source, inputs, 1, None, n=None) == "default"
    assert called(source, inputs, 1, 2, n=None) == 2


def test_a_parameter_that_nothing_fits_is_named():
    with pytest.raises(ValueError, match="needs `other`"):
        adapter(definition("def f_reference(x, other): pass", {"x": spec("n")}, n=None))


def test_other_forms_are_called_by_position_where_that_fits():
    source = "def f_reference(w, x): return w, x"
    assert called(source, {"x": spec("n"), "w": spec("n")}, 1, 2, form=3, n=None) == (1, 2)
    keywords = "def f_reference(x, *, w): return x, w"
    assert called(keywords, {"x": spec("n"), "w": spec("n")}, 1, 2, form=3, n=None) == (1, 2)


@pytest.mark.parametrize(
    "source",
    [
        "def f_reference(x, n): return torch.exp(x), math.pi",
        '"""Text."""\nfrom __future__ import annotations\ndef f_reference(x: T, n): return torch.exp(x), math.pi',
        "import torch\ndef f_reference(x: T, n): return torch.exp(x), math.pi",
    ],
)
def test_a_module_of_its_own_imports_what_every_reference_has(source):
    text, entry = module_source(definition(source, {"x": spec("n")}, n=3))
    module = {}
    exec(compile(text, "m", "exec", dont_inherit=True), module)
    torch = module["torch"]
    assert torch.equal(module[entry](torch.zeros(2))[0], torch.ones(2))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x): return torch.exp(x) * math.pi", ()),
        ("def f(x: Tensor) -> Optional[int]: return _helper(x)", ("_helper",)),
        ("def _g(x): return _h(x)\ndef f(x): return _g(x)", ("_h",)),
        ("def _unused(x): return _h(x)\ndef f(x): return x", ()),
        ("def f(x):\n    def g(y): return missing + y\n    return g(x)", ("missing",)),
        ("def f(x): return [i + k for i in x]", ("k",)),
        ("import torch.nn.functional as F\nC = 3\ndef f(x): return F.silu(x) + C", ()),
        ("@decorated\ndef f(x): return x", ("decorated",)),
        ("from m import *\ndef f(x): return anything", ()),
        ("def _set():\n    global T\n    T = 1\ndef f(x):\n    _set()\n    return T", ()),
        ("class A:\n    def m(self): return gone\ndef f(x): return A().m()", ("gone",)),
        ("def f(", ()),
    ],
)
def test_names_that_are_not_in_the_source(source, names):
    assert missing_names(source, "f") == names
