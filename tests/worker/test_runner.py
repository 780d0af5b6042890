"""What a call produced, and what it did that it must not do, on storage that the judge owns."""

from __future__ import annotations

import math
import time

import pytest
import torch

from pytest_flashinfer.worker.errors import CallFailed
from pytest_flashinfer.worker.runner import Output
from pytest_flashinfer.worker.unwritten import statement as told

F32 = torch.float32
Y = Output("y", (4, 8), F32)
S = Output("s", (), F32, scalar=True)


def kinds(result):
    return [violation.kind for violation in result.violations]


def settle(runner, result):
    """Wait for a late change, at most two seconds."""
    end = time.monotonic() + 2
    while "late" not in kinds(result) and time.monotonic() < end:
        runner.settle()


def messages(result):
    return [str(violation) for violation in result.violations]


@pytest.mark.parametrize("destination", [True, False])
def test_an_honest_call_yields_its_values_and_no_violation(lab, destination):
    source = "def run(x, y):\n    y.copy_(x * 2)\n" if destination else "def run(x):\n    return x * 2\n"
    x = lab.randn(4, 8)
    result = lab.run(source, {"x": x}, destination=destination)
    assert torch.equal(result.outputs["y"], x * 2)
    assert not result.violations
    assert not result.unwritten
    assert result.host_seconds > 0


# CASE 08: return shapes
RETURNS = {
    "tuple": ("return y, s", None),
    "list": ("return [y, s]", None),
    "dict": ("return {'s': s, 'y': y}", None),
    "python_float": ("return y, 2.5", None),
    "python_int": ("return y, 2", None),
    "alone": ("return y", "1 of 2 outputs returned: missing s"),
    "swapped": ("return s, y", "y: shape [] instead of [4, 8]; order is y, s"),
    "extra": ("return y, s, y", "3 values returned for 2 outputs: y, s"),
    "none": ("return None", "returned None: did you mean destination style?"),
    "unknown_key": ("return {'y': y, 's': s, 'z': s}", "returned unknown outputs z; declared are y, s"),
    "dict_without": ("return {'s': s}", "1 of 2 outputs returned: missing y"),
    "text": ("return y, 'three'", "s: returned str, not a plain torch.Tensor"),
    "only_text": ("return 'three'", "returned str, not the 2 outputs y, s"),
    "generator": ("yield y", "returned generator, not the 2 outputs y, s"),
    "async": ("return later()", "returned coroutine (of an async function), not the 2 outputs y, s"),
}


@pytest.mark.parametrize("name", RETURNS)
def test_case_08_two_outputs(lab, name):
    statement, message = RETURNS[name]
    source = f"async def later(): pass\n\ndef run(x):\n    y, s = x * 2, x.sum()\n    {statement}\n"
    x = lab.randn(4, 8)
    result = lab.run(source, {"x": x}, [Y, S], destination=False)
    if message is None:
        assert not result.violations
        assert torch.equal(result.outputs["y"], x * 2)
        assert result.outputs["s"].shape == ()
        assert result.outputs["s"].item() == pytest.approx(
            {"python_float": 2.5, "python_int": 2.0}.get(name, x.sum().item())
        )
    else:
        assert messages(result)[0] == message
        assert not result.log, "nothing is printed in the solution's name"
        assert "unwritten" not in kinds(result)


def test_case_08_a_tuple_of_one_passes(lab):
    assert not lab.run("def run(x):\n    return (x * 2,)\n", destination=False).violations


def test_case_08_an_optional_output_may_be_left_out(lab):
    optional = Output("s", (), F32, optional=True)
    result = lab.run("def run(x):\n    return x * 2\n", outputs=[Y, optional], destination=False)
    assert not result.violations
    assert result.missing == ("s",)
    assert set(result.outputs) == {"y"}


FORMS = {
    "rows": ("x[:1] * 2", "shape", "y: shape [1, 8] instead of [4, 8]"),
    "dtype": ("x.double()", "dtype", "y: dtype float64 instead of float32"),
    "number": ("3.5", "shape", "y: a Python float instead of a tensor of shape [4, 8]"),
    "array": ("x.numpy()", "object", "y: returned ndarray, not a plain torch.Tensor"),
    "meta": ("x.to('meta')", "device", "y: on meta instead of cpu"),
    "sparse": ("x.to_sparse()", "object", "y: layout torch.sparse_coo instead of torch.strided"),
    "parameter": ("torch.nn.Parameter(x)", "object", "y: returned Parameter, not a plain torch.Tensor"),
    "generator": ("(x for _ in range(1))", "object", "y: returned generator, not a plain torch.Tensor"),
    "subclass": (
        "x.clone().as_subclass(T)",
        "type",
        "y: returned a subclass of torch.Tensor, T, not a plain torch.Tensor",
    ),
    "attributes": (
        "mark(x * 2)",
        "type",
        "y: the returned tensor carries attributes of its own (cpu); return a plain tensor",
    ),
    "input": ("x", "alias", "y: shares memory with the input x"),
    "view": ("x.view(8, 4).t().contiguous().t().t().reshape(4, 8).copy_(x) and None or x[:]", "alias", "y: shares"),
}


@pytest.mark.parametrize("name", [name for name in FORMS if name != "view"])
def test_a_result_of_another_form_is_named(lab, name):
    expression, kind, message = FORMS[name]
    source = (
        "import torch\nclass T(torch.Tensor): pass\ndef mark(t):\n    t.cpu = lambda: t\n    return t\n"
        f"def run(x):\n    return {expression}\n"
    )
    result = lab.run(source, destination=False)
    assert kinds(result) == [kind]
    assert messages(result) == [message]


ACCEPTED = {
    "transposed": "(x * 2).t().contiguous().t()",
    "expanded": "torch.zeros(1, 8).expand(4, 8) + x * 2",
    "slice_of_larger": "torch.cat([x * 2, x], 1)[:, :8]",
    "inference": "infer(x)",
    "grad": "(x.requires_grad_() * 2)",
    "compiled": "noted(x * 2)",
    "negated": "torch._neg_view(x * -2)",
    "parameter_free_module": "torch.nn.Identity()(x * 2)",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_honest_results_in_unusual_clothes_pass(lab, name):
    source = (
        "import torch\n@torch.inference_mode()\ndef infer(x):\n    return x * 2\n"
        "def noted(t):\n    t._dynamo_propagated_dynamic_indices = {0}\n    return t\n"
        f"def run(x):\n    return {ACCEPTED[name]}\n"
    )
    x = lab.randn(4, 8)
    result = lab.run(source, {"x": x}, destination=False)
    assert not result.violations
    assert torch.equal(result.outputs["y"], x * 2)


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
    *(torch.float8_e8m0fnu, torch.uint16, torch.uint32, torch.uint64),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_travels_and_its_poison_is_seen(lab, dtype):
    raw = torch.randint(0, 2, (5, 3 * dtype.itemsize), dtype=torch.uint8)
    x = raw.view(dtype) if dtype is not torch.bool else raw[:, :3] == 1
    output = Output("y", (5, 3), dtype)
    runner = lab.build("def run(x, y):\n    y.copy_(x)\n")
    result = runner.run({"x": x}, [output])
    assert not result.violations
    assert torch.equal(result.outputs["y"].view(torch.uint8), x.view(torch.uint8))
    assert not result.unwritten
    lazy = lab.build("def run(x, y):\n    y[:4].copy_(x[:4])\n")
    result = lazy.run({"x": x}, [output])
    assert result.unwritten == {"y": "last row never written"}
    certain = dtype is torch.bool or dtype.itemsize >= 4 or dtype in {torch.float16, torch.bfloat16}
    assert kinds(result) == ["unwritten"] * certain


UNWRITTEN = {
    "pass": "never written",
    "y[:-1] = 1": "last row never written",
    "y[:2] = 1": "last 2 of 4 rows never written",
    "y[:, :-1] = 1": "last column never written",
    "y[:, :5] = 1": "last 3 of 8 columns never written",
    "y[1:] = 1": "8 of 32 elements never written, first at [0, 0]",
    "y.fill_(1)[2, 3] = y[2, 3]": None,
    "y.view(-1)[:11] = 1; y.view(-1)[12:] = 1": "1 of 32 elements never written, first at [1, 3]",
    "y.copy_(y + 1)": "never written",
}


@pytest.mark.parametrize("statement", UNWRITTEN)
def test_case_10_what_was_never_written_is_named(lab, statement):
    result = lab.run(f"def run(x, y):\n    {statement}\n")
    expected = UNWRITTEN[statement]
    assert messages(result) == ([] if expected is None else [told("y", expected)])


def test_case_10_in_one_dimension(lab):
    result = lab.run("def run(x, y):\n    y[:-2] = 1\n", outputs=[Output("y", (9,), F32)])
    assert messages(result) == [told("y", "last 2 of 9 elements never written")]


def test_a_nan_that_was_computed_is_no_poison(lab):
    result = lab.run("def run(x, y):\n    y.copy_((x - x) / (x - x))\n")
    assert not result.violations
    assert result.outputs["y"].isnan().all()


def test_any_byte_but_zero_is_true(lab):
    source = (
        "import torch\ndef run(x, y):\n    y.view(torch.uint8).copy_(torch.tensor([0, 1, 2, 255], dtype=torch.uint8))\n"
    )
    result = lab.run(source, outputs=[Output("y", (4,), torch.bool)])
    assert result.outputs["y"].tolist() == [False, True, True, True]


DAMAGE = {
    "x.zero_()": ("input", "input x was modified: 32 of 32 elements, first at [0, 0]"),
    "x[2, 5] += 1": ("input", "input x was modified: 1 of 32 elements, first at [2, 5]"),
    "x.view(torch.int32)[1, 0] ^= -2**31": ("input", "input x was modified: 1 of 32 elements, first at [1, 0]"),
    "over(y, 4, 128)": ("guard", "wrote past the end of y: 4 bytes changed, up to 4 bytes behind it"),
    "over(y, 1, 1000)": ("guard", "wrote past the end of y: 1 bytes changed, up to 873 bytes behind it"),
    "over(y, 8, -8)": ("guard", "wrote before the start of y: 8 bytes changed, up to 8 bytes before it"),
    "over(x, 8, -8)": ("guard", "wrote before the start of x: 8 bytes changed, up to 8 bytes before it"),
    "over(x, 3, 128)": ("guard", "wrote past the end of x: 3 bytes changed, up to 3 bytes behind it"),
}


@pytest.mark.parametrize("statement", DAMAGE)
def test_damage_around_and_in_the_tensors_is_named(lab, statement):
    kind, message = DAMAGE[statement]
    source = f"""
        import ctypes, torch
        def over(t, count, offset):
            for i in range(count):
                at = ctypes.c_ubyte.from_address(t.data_ptr() + offset + i)
                at.value ^= 255
        def run(x, y):
            y.copy_(x * 2)
            {statement}
    """
    result = lab.run(source)
    assert kinds(result) == [kind]
    assert messages(result) == [message]


def test_the_whole_storage_behind_a_tensor_is_guarded(lab):
    source = """
        import torch
        def run(x, y):
            y.copy_(x)
            n, end = y.untyped_storage().nbytes() // 4, y.storage_offset() + y.numel()
            torch.as_strided(y, (n - end,), (1,), end).fill_(7.0)
    """
    assert kinds(lab.run(source)) == ["guard"]


def test_inputs_that_may_be_modified_are_read_back(lab):
    runner = lab.build("def run(x, w, y):\n    x.add_(1)\n    y.copy_(w)\n", inputs=("x", "w"))
    x, w = lab.randn(4, 8), lab.randn(4, 8)
    result = runner.run({"x": x, "w": w}, [Y, Output("new", (4, 8), F32, inplace="x")])
    assert not result.violations
    assert torch.equal(result.outputs["y"], w)
    assert torch.equal(result.outputs["new"], x + 1)
    assert kinds(runner.run({"x": x, "w": w}, [Y, Output("new", (4, 8), F32, inplace="w")])) == ["input"]


def test_a_result_in_place_of_its_declared_input_is_no_alias(lab):
    runner = lab.build("def run(x):\n    return x.mul_(2)\n", destination=False)
    output = Output("y", (4, 8), F32, inplace="x")
    x = lab.randn(4, 8)
    result = runner.run({"x": x}, [output])
    assert not result.violations
    assert torch.equal(result.outputs["y"], x * 2)
    again = runner.run({"x": x}, [output])  # the same storage as before, as it has to be
    assert not again.violations


def test_strided_inputs_arrive_strided_and_their_gaps_are_guarded(lab):
    wide = lab.randn(6, 20)
    cases = {"x": wide[:, 3:11], "t": lab.randn(8, 6).t(), "e": lab.randn(1, 8).expand(6, 8), "o": torch.ones(6, 8)}
    source = "def run(x, t, e, o, y):\n    print(x.stride(), t.stride(), e.stride())\n    y.copy_(x + t + e + o)\n"
    output = [Output("y", (6, 8), F32)]
    result = lab.run(source, cases, output)
    assert not result.violations
    assert result.log.strip() == "(20, 1) (1, 6) (0, 1)"
    assert torch.equal(result.outputs["y"], cases["x"] + cases["t"] + cases["e"] + 1)
    spill = "def run(x, t, e, o, y):\n    y.copy_(x)\n    x.as_strided((6, 12), (20, 1), 8)[:5] = 0\n"
    result = lab.run(spill, cases, output)
    assert messages(result) == ["wrote between the elements of the strided input x"]
    assert [each.kind for each in result.violations] == ["guard"]
    spill += "    x[1, 2] += 1\n    e.as_strided((8,), (1,))[0] += 1\n"
    for within, found in (([], ["input", "guard"]), ([Output("new", (6, 8), F32, inplace="x")], ["guard"])):
        result = lab.run(spill, cases, output + within)
        ours = [each.kind for each in result.violations if each.tensor == "x"]
        assert (ours, [each.kind for each in result.violations if each.tensor == "e"]) == (found, ["input"])


def test_strided_destinations_keep_their_strides_and_gaps(lab):
    output = Output("y", (4, 8), F32, strides=(1, 6))
    x = lab.randn(4, 8)
    result = lab.run("def run(x, y):\n    assert y.stride() == (1, 6)\n    y.copy_(x)\n", {"x": x}, [output])
    assert not result.violations
    assert torch.equal(result.outputs["y"], x)
    result = lab.run("def run(x, y):\n    y.copy_(x)\n    y.as_strided((6, 7), (1, 6)).fill_(0)\n", {"x": x}, [output])
    assert kinds(result) == ["guard"]


def test_scalars_none_and_text_are_passed_as_they_are(lab):
    source = "def run(a, b, c, d, e, f, y):\n    print(repr((a, b, c, d, e, f)))\n    y.fill_(1)\n"
    inputs = {"a": 3, "b": -math.inf, "c": True, "d": None, "e": "mode", "f": 0.1}
    assert lab.run(source, inputs).log.strip() == "(3, -inf, True, None, 'mode', 0.1)"


def test_empty_and_zero_dimensional_tensors(lab):
    inputs = {"x": torch.empty(0, 8), "s": torch.tensor(2.0)}
    outputs = [Output("y", (0, 8), F32), Output("r", (), F32)]
    result = lab.run("def run(x, s, y, r):\n    y.copy_(x * s)\n    r.copy_(s)\n", inputs, outputs)
    assert not result.violations
    assert result.outputs["y"].shape == (0, 8)
    assert result.outputs["r"].item() == 2.0
    result = lab.run("def run(x, s):\n    return x * s, s.clone()\n", inputs, outputs, destination=False)
    assert not result.violations


def test_the_same_storage_is_used_again_and_its_poison_renewed(lab):
    runner = lab.build("def run(x, y):\n    print(x.data_ptr(), y.data_ptr())\n    y[:2].copy_(x[:2])\n")
    results = [runner.run({"x": lab.randn(4, 8)}, [Y]) for _ in range(3)]
    assert len({result.log for result in results}) == 1
    assert all(result.unwritten == {"y": "last 2 of 4 rows never written"} for result in results)


def test_a_larger_arena_replaces_the_first_and_shapes_may_alternate(lab):
    runner = lab.build("def run(x, y):\n    y.copy_(x + 1)\n")
    for rows in (4, 100_000, 4, 100_000):
        x = lab.randn(rows, 8)
        result = runner.run({"x": x}, [Output("y", (rows, 8), F32)])
        assert not result.violations
        assert torch.equal(result.outputs["y"], x + 1)


def test_outputs_are_private_copies(lab):
    runner = lab.build("def run(x, y):\n    y.copy_(x)\n")
    first, second = lab.randn(4, 8), lab.randn(4, 8)
    kept = runner.run({"x": first}, [Y])
    view = runner.run({"x": second}, [Y], keep=False)
    runner.run({"x": second + 1}, [Y])
    assert torch.equal(kept.outputs["y"], first)
    assert torch.equal(view.outputs["y"], second + 1)


@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
def test_a_large_arena_is_compared_with_the_judges_own_inputs(lab, monkeypatch, strided):
    monkeypatch.setattr("pytest_flashinfer.worker.guarded_memory.IMAGE_LIMIT", 1024)
    x = lab.randn(80, 40).T if strided else lab.randn(40, 80)
    output = [Output("y", (40, 80), F32)]
    assert not lab.run("def run(x, y):\n    y.copy_(x)\n", {"x": x}, output).violations
    assert messages(lab.run("def run(x, y):\n    y.copy_(x)\n    x[3, 4] = 0\n", {"x": x}, output)) == [
        "input x was modified"
    ]
    runner = lab.build("def run(x, y):\n    y[:-1].copy_(x[:-1])\n    y.as_strided((1,), (1,), 3200).fill_(0)\n")
    for _ in range(2):
        assert kinds(runner.run({"x": x}, output)) == ["guard", "unwritten"]


# Inputs that an override may make: a view that starts between words, repeated elements, what is not written out yet.
VIEWS = {
    "behind another element": torch.arange(3201.0)[1:].view(40, 80),
    "one element for all": torch.tensor(2.0).expand(40, 80),
    "conjugated": torch.complex(torch.arange(3200.0), torch.ones(3200)).view(40, 80).conj(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_large_inputs_may_be_views(lab, monkeypatch, name):
    monkeypatch.setattr("pytest_flashinfer.worker.guarded_memory.IMAGE_LIMIT", 1024)
    x, output = VIEWS[name].to(lab.device), [Output("y", (40, 80), F32)]
    result = lab.run("def run(x, y):\n    y.copy_(x.real)\n", {"x": x}, output)
    assert not result.violations
    assert torch.equal(result.outputs["y"], x.real)
    changing = "def run(x, y):\n    y.copy_(x.real)\n    x.as_strided((1,), (1,)).fill_(7)\n"
    assert messages(lab.run(changing, {"x": x}, output)) == ["input x was modified"]


# What is judged is what was there when the call returned.
LATE = {
    "thread": """
        import threading, time
        def later(x, y):
            time.sleep(0.03); y.copy_(x * 2)
        def run(x, y):
            threading.Thread(target=later, args=(x.clone(), y)).start()
    """,
    "process": """
        import os, time
        def run(x, y):
            if os.fork() == 0:
                time.sleep(0.03); y.copy_(x * 2); os._exit(0)
    """,
}


@pytest.mark.parametrize("name", LATE)
def test_work_after_the_return_does_not_count_and_shows(lab, name):
    runner = lab.build(LATE[name])
    result = runner.run({"x": lab.randn(4, 8)}, [Y])
    assert result.unwritten == {"y": "never written"}
    settle(runner, result)
    assert sorted(kinds(result)) == ["late", "unwritten"]
    assert any("changed after the call had returned" in message for message in messages(result))


def test_a_result_that_is_changed_later_shows(lab):
    source = """
        import threading, time
        def spoil(y):
            time.sleep(0.03); y.zero_()
        def run(x):
            y = x * 2
            threading.Thread(target=spoil, args=(y,)).start()
            return y
    """
    runner = lab.build(source, destination=False)
    x = lab.randn(4, 8)
    result = runner.run({"x": x}, [Y])
    assert torch.equal(result.outputs["y"], x * 2)
    settle(runner, result)
    assert kinds(result) == ["late"]


def test_a_late_change_is_found_by_the_next_call(lab):
    runner = lab.build(LATE["thread"])
    first = runner.run({"x": lab.randn(4, 8)}, [Y])
    time.sleep(0.2)
    runner.run({"x": lab.randn(4, 8)}, [Y])
    assert sorted(kinds(first)) == ["late", "unwritten"]


def test_the_storage_of_an_earlier_result_may_not_come_back(lab):
    runner = lab.build("import torch\nB = torch.empty(4, 8)\ndef run(x):\n    return B.copy_(x)\n", destination=False)
    results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(3)], [Y])
    assert [kinds(result) for result in results] == [[], ["reused"], ["reused"]]


@pytest.mark.parametrize("buffers", [2, 5])
def test_nor_that_of_one_some_calls_before(lab, buffers):
    source = f"import torch, itertools\nR = itertools.cycle([torch.empty(4, 8) for _ in range({buffers})])\n"
    runner = lab.build(source + "def run(x):\n    return next(R).copy_(x)\n", destination=False)
    results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(buffers + 1)], [Y])
    assert [kinds(result) for result in results] == [[]] * buffers + [["reused"]]


@pytest.mark.parametrize(
    ("spoils", "found"), [("y.zero_()", ["late"]), ("y[::2] += 1", ["late"]), ("y.clone().zero_()", []), ("y + 1", [])]
)
def test_what_was_returned_may_not_change_long_after_either(lab, spoils, found):
    head = "import threading, time, torch\nnap = time.sleep\ntime.sleep = lambda seconds: None\n"
    body = f"def spoil(y):\n    nap(0.02)\n    {spoils}\n\ndef run(x):\n    y = x * 2\n"
    start = "    threading.Thread(target=spoil, args=(y,), daemon=True).start()\n    return y\n"
    runner = lab.build(head + body + start, destination=False)
    first, then = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(2)], [Y])
    assert kinds(first) == kinds(then) == []
    time.sleep(0.06)
    (later,) = lab.run_many(runner, [{"x": lab.randn(4, 8)}], [Y])
    assert kinds(later) == found


def test_results_may_lie_side_by_side_in_one_storage(lab):
    head = "import torch\nslab, used = torch.empty(32, 8), [0]\n"
    body = "def run(x):\n    used[0] += {}\n    return slab[used[0]:used[0] + 4].copy_(x)\n"
    for step, kind in ((4, []), (3, ["reused"])):
        runner = lab.build(head + body.format(step), destination=False)
        results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(3)], [Y])
        assert [kinds(result) for result in results] == [[], kind, kind]


def test_two_outputs_may_share_a_buffer(lab):
    outputs = [Output("q", (4, 4), F32), Output("k", (4, 4), F32)]
    result = lab.run("def run(x):\n    return (x * 2).split(4, dim=1)\n", outputs=outputs, destination=False)
    assert not result.violations


def test_a_destination_that_was_swapped_shows(lab):
    result = lab.run("import torch\ndef run(x, y):\n    y.set_((x * 2).clone())\n")
    assert kinds(result) == ["swapped", "unwritten"]


STICKY = {
    "default_device": "torch.set_default_device('meta')",
    "default_dtype": "torch.set_default_dtype(torch.float16)",
    "patched_copy": "torch.Tensor.copy_ = lambda *a, **k: None",
    "patched_builtins": "import builtins; builtins.any = builtins.all = lambda *a: False",
    "patched_empty": "torch.empty = torch.zeros = lambda *a, **k: None",
    "patched_clock": "import time; time.perf_counter = lambda: 0.0",
    "patched_shape": "torch.Tensor.shape = property(lambda t: (1,))",
    "closed_stdout": "import sys; sys.stdout.close()",
    "no_stdout": "import sys; sys.stdout = None",
    "moved": "import os; os.chdir('/')",
    "grad_mode": "torch.set_grad_enabled(False)",
}


@pytest.mark.parametrize("name", STICKY)
def test_state_that_a_solution_leaves_behind_changes_no_fact(lab, name):
    source = f"import torch\n{STICKY[name]}\ndef run(x):\n    return x.mul(2)\n"
    runner = lab.build(source, destination=False)
    for _ in range(2):
        x = lab.randn(4, 8)
        result = runner.run({"x": x}, [Y])
        assert torch.equal(result.outputs["y"], x * 2)
        assert not result.violations
        assert result.host_seconds > 0


def test_timed_calls_are_checked_calls(lab):
    source = "N = []\ndef run(x, y):\n    N.append(1)\n    y.copy_(x * 2 if len(N) != 3 else x)\n"
    runner = lab.build(source)
    contents = [{"x": lab.randn(4, 8)} for _ in range(4)]
    results = lab.run_many(runner, contents, [Y], cache="cold")
    right = [torch.equal(result.outputs["y"], each["x"] * 2) for result, each in zip(results, contents, strict=True)]
    assert right == [True, True, False, True]
    assert all(0 < result.device_seconds < 1 for result in results)


def test_a_call_that_raises_leaves_the_clock_and_the_next_call_in_order(lab):
    runner = lab.build("def run(x, y):\n    assert x[0, 0] > 0\n    y.copy_(x)\n")
    good, bad = {"x": torch.ones(4, 8)}, {"x": -torch.ones(4, 8)}
    first = runner.run(good, [Y], cache="warm")
    with pytest.raises(CallFailed, match="AssertionError"):
        runner.run(bad, [Y], cache="warm")
    second = runner.run(good, [Y], cache="warm")
    runner.read_clock()
    assert first.device_seconds > 0
    assert second.device_seconds > 0
    assert not first.violations + second.violations


def test_a_kernel_that_sniffs_for_benchmarks_is_seen_through(lab):
    source = """
        import sys
        def run(x, y):
            frame = sys._getframe(1)
            while frame and "bench" not in frame.f_code.co_name and "timed" not in frame.f_code.co_name:
                frame = frame.f_back
            if frame is None:
                y.copy_(x)
    """
    runner = lab.build(source)
    assert not runner.run({"x": lab.randn(4, 8)}, [Y]).violations
    assert kinds(runner.run({"x": lab.randn(4, 8)}, [Y], cache="cold")) == ["unwritten"]


def test_no_tensor_of_the_judge_can_be_found_in_a_worker(lab):
    source = """
        import gc, torch
        def run(x, y):
            y.copy_(x)
            print(sum(type(o) is torch.Tensor and o is not x and o is not y for o in gc.get_objects()))
    """
    assert lab.run(source).log.strip() == "0"


def test_packed_results_may_have_either_dtype(lab):
    output = Output("y", (4, 8), torch.uint8, also=(torch.int8,))
    source = "import torch\ndef run(x):\n    return torch.full((4, 8), -1, dtype=torch.int8)\n"
    result = lab.run(source, outputs=[output], destination=False)
    assert not result.violations
    assert result.outputs["y"].unique().tolist() == [255]


# Calls ahead of a measurement
COUNTS = "n = 0\ndef run(x):\n    global n\n    n += 1\n    return x * n\n"


def test_calls_ahead_are_many_and_leave_nothing_behind(lab):
    runner = lab.build(COUNTS, destination=False)
    x = lab.randn(4, 8)
    runner.run({"x": x}, [Y])
    runner.warm({"x": x}, [Y], "cold")
    (result,) = lab.run_many(runner, [{"x": x}], [Y], cache="cold")
    calls = result.outputs["y"][0, 0] / x[0, 0]
    assert 2 + 3 <= round(float(calls)) <= 2 + 30
    assert not result.violations
    assert result.span is not None


def test_calls_ahead_may_write_to_their_inputs_and_outputs(lab):
    runner = lab.build("def run(x, y):\n    x.add_(1); y.copy_(x)\n")
    x = lab.randn(4, 8)
    runner.warm({"x": x}, [Y], "cold")
    result = runner.run({"x": x}, [Y, Output("new", (4, 8), F32, inplace="x")])
    assert torch.equal(result.outputs["y"], x + 1)
    assert not result.violations


def test_calls_ahead_end_in_time(lab):
    runner = lab.build("import time\ndef run(x):\n    time.sleep(0.4)\n    return x + 0\n", destination=False)
    start = time.monotonic()
    runner.warm({"x": lab.randn(4, 8)}, [Y], "cold")
    assert time.monotonic() - start < 2, "two batches alone would take 2.4 s"


def test_a_call_ahead_that_fails_says_why(lab):
    runner = lab.build("def run(x):\n    raise ValueError('odd')\n", destination=False)
    with pytest.raises(CallFailed, match="ValueError: odd"):
        runner.warm({"x": lab.randn(4, 8)}, [Y], "cold")


def test_a_large_arena_is_given_back_until_the_next_call(lab, monkeypatch):
    monkeypatch.setattr("pytest_flashinfer.worker.arena.LARGE", 1 << 20)
    runner = lab.build("def run(x, y):\n    y.copy_(x + 1)\n")
    for _ in range(2):
        x = lab.randn(4, 8)
        result = runner.run({"x": x}, [Y])
        runner.settle()
        runner.rest()
        assert runner.arena.nbytes == 0
        assert not result.violations
        assert torch.equal(result.outputs["y"], x + 1)
    monkeypatch.undo()
    runner.run({"x": x}, [Y])
    runner.rest()
    assert runner.arena.nbytes, "a small one stays"


def test_an_input_that_is_returned_is_one_in_every_call(lab):
    """Not the memory of an earlier result, which it was as well."""
    runner = lab.build("def run(x):\n    return x[:, :4]\n", destination=False)
    narrow = Output("y", (4, 4), F32)
    results = lab.run_many(runner, [{"x": lab.randn(4, 8)} for _ in range(3)], [narrow])
    for result in results:
        assert kinds(result) == ["alias"]
        assert messages(result) == ["y: shares memory with the input x"]


def test_arguments_of_one_call_are_not_those_of_the_next(lab):
    """What is asked once more is said in short; numbers that Python finds equal are not the same argument."""
    runner = lab.build("def run(x, k, y):\n    print(repr(k))\n    y.copy_(x)\n", inputs=("x", "k"))
    given = [1, 1, True, 1.0, 0.0, -0.0, None, "1", 1]
    said = [runner.run({"x": lab.randn(4, 8), "k": k}, [Y]).log.strip() for k in given]
    assert said == [repr(k) for k in given]
    x = lab.randn(2, 8)
    assert torch.equal(runner.run({"x": x, "k": 1}, [Output("y", (2, 8), F32)]).outputs["y"], x)
    assert runner.run({"x": lab.randn(4, 8), "k": 1}, [Y]).log.strip() == "1"


MOVES = ("x.share_memory_()", "ForkingPickler.dumps(x)", "x.share_memory_(); y.share_memory_()")


@pytest.mark.parametrize("move", MOVES)
def test_tensors_that_a_solution_has_moved_are_back_at_their_place(lab, move):
    source = f"""
        from multiprocessing.reduction import ForkingPickler
        import torch.multiprocessing
        def run(x):
            y = x * 2
            {move}
            return y
    """
    runner = lab.build(source, destination=False)
    for _ in range(3):
        x = lab.randn(4, 8)
        result = runner.run({"x": x}, [Y])
        assert torch.equal(result.outputs["y"], x * 2)
