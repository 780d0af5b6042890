"""The worker on a card: shared memory, streams, errors that a context does not survive."""

from __future__ import annotations

import time

import pytest
import torch

from pytest_flashinfer.worker import cudart, cumem, sandbox, unwritten
from pytest_flashinfer.worker.errors import CallFailed, WorkerDied, WorkerTimedOut
from pytest_flashinfer.worker.layout import plan
from pytest_flashinfer.worker.runner import Output

pytestmark = pytest.mark.gpu

F32 = torch.float32
GOOD = "def run(x, y):\n    y.copy_(x * 2)\n"
WILD = """
    import triton, triton.language as tl
    @triton.jit
    def k(p):
        tl.store(p + 68719476736, 1.0)
    def run(x, y):
        y.copy_(x * 2)
        k[(1,)](y)
"""


@pytest.fixture(autouse=True)
def _hidden():
    """The judge is closed to other processes, as in a real run; memory must be shared all the same."""
    sandbox.hide_process()


def kinds(result):
    return [violation.kind for violation in result.violations]


def y_of(x):
    return [Output("y", tuple(x.shape), x.dtype)]


def good_after(gpu):
    x = gpu.randn(64, 128)
    result = gpu.run(GOOD, {"x": x}, y_of(x))
    return torch.equal(result.outputs["y"].cuda(), x * 2) and not result.violations


@pytest.mark.parametrize("destination", [True, False])
def test_an_honest_call_yields_its_values(gpu, destination):
    source = GOOD if destination else "def run(x):\n    return x * 2\n"
    runner = gpu.build(source, destination=destination)
    for _ in range(4):
        x = gpu.randn(1000, 33)
        result = runner.run({"x": x}, y_of(x))
        assert torch.equal(result.outputs["y"].cuda(), x * 2)
        assert result.outputs["y"].device.type == "cpu"  # of small calls
        assert not result.violations
    assert not runner.settle()


def test_two_processes_find_the_inputs_of_one_layout_at_the_same_place_and_have_outputs_of_their_own(gpu):
    first, second = gpu.build(GOOD), gpu.build("def run(x, y):\n    y.copy_(x * 3)\n")
    for rows in (64, 1000, 10):
        x, other = gpu.randn(rows, 1000), gpu.randn(rows, 1000)
        results = [runner.run({"x": value}, y_of(x)) for runner, value in ((first, x), (second, other))]
        assert torch.equal(results[0].outputs["y"].cuda(), x * 2)
        assert torch.equal(results[1].outputs["y"].cuda(), other * 3)
        assert not results[0].violations
        assert not results[1].violations
        layout = plan({"x": x}, y_of(x))
        there = layout.inputs["x"].tensor_of(first.arena.window(layout.total, layout.front))
        assert torch.equal(there, other), "what lies there is the last one's"
        assert not first.settle(), "nobody else wrote to its outputs"
    assert gpu.pool.inputs.nbytes


def test_inputs_that_have_to_grow_stay_where_they_are(gpu):
    runner = gpu.build(GOOD)
    small, large = gpu.randn(8, 1024), gpu.randn(5000, 1024)
    runner.run({"x": small}, y_of(small))
    runner.run({"x": large}, y_of(large))
    layout = plan({"x": small}, y_of(small))
    index = torch.device(gpu.device).index or 0
    pieces = gpu.pool.inputs.at_end(layout.front, index)
    mapping = cumem.VirtualMapping([(piece.fd, piece.nbytes) for piece in pieces], index)
    there = torch.as_tensor(cudart.Block(mapping.pointer, mapping.nbytes), device=gpu.device)[-layout.front :]
    assert torch.equal(layout.inputs["x"].tensor_of(there), large[-8:])
    torch.cuda.synchronize()
    mapping.close()


def test_what_a_judge_gives_back_is_free_once_no_worker_maps_it(gpu):
    runner = gpu.build(GOOD)
    x = torch.zeros(1 << 28, dtype=torch.uint8, device=gpu.device).view(1 << 14, 1 << 14)
    runner.run({"x": x}, y_of(x), keep=False)
    held = torch.cuda.mem_get_info(gpu.device)[0]
    assert gpu.pool.inputs.nbytes >= x.numel()
    runner.rest()
    assert torch.cuda.mem_get_info(gpu.device)[0] - held >= 2 * x.numel()
    assert gpu.pool.inputs.nbytes <= 1 << 29


# CASE 11: an illegal access or a hang hurts one item only
def test_case_11_an_illegal_access_is_named_and_costs_one_item(gpu):
    assert good_after(gpu)
    with pytest.raises(WorkerDied, match="illegal memory access"):
        gpu.run(WILD)
    assert good_after(gpu)
    assert float(torch.ones(8, device=gpu.device).sum()) == 8.0


def test_case_11_a_device_assertion_is_named(gpu):
    source = "import torch\ndef run(x, y):\n    y.copy_(x[torch.full((4,), 10**6, device=x.device)])\n"
    with pytest.raises(WorkerDied, match="assert"):
        gpu.run(source)
    assert good_after(gpu)


def test_case_11_an_endless_kernel_ends_at_the_limit(gpu):
    runner = gpu.build("import torch\ndef run(x, y):\n    y.copy_(x)\n    torch.cuda._sleep(10**14)\n")
    x = gpu.randn(4, 8)
    start = time.monotonic()
    with pytest.raises(WorkerTimedOut):
        runner.run({"x": x}, y_of(x), timeout=1.0)
    assert time.monotonic() - start < 3.0
    assert good_after(gpu)


def test_an_exit_during_device_work_is_named(gpu):
    with pytest.raises(WorkerDied, match="signal SIGKILL"):
        gpu.run("import os, torch\ndef run(x, y):\n    torch.cuda._sleep(10**8)\n    os.kill(os.getpid(), 9)\n")
    assert good_after(gpu)


def test_running_out_of_memory_leaves_the_worker_usable(gpu):
    runner = gpu.build(
        "import torch\ndef run(x, y):\n    y.copy_(x * 2)\n    if x[0, 0] > 0: torch.empty(10**13, device=x.device)\n"
    )
    x = torch.ones(4, 8, device=gpu.device)
    with pytest.raises(CallFailed, match="out of memory"):
        runner.run({"x": x}, y_of(x))
    assert not runner.run({"x": -x}, y_of(x)).violations


DAMAGE = {
    "x.zero_()": "input",
    "x.data[3, 4] += 1": "input",
    "y.as_strided((1,), (1,), y.numel()).fill_(7)": "guard",
    "torch.as_strided(y, (y.untyped_storage().nbytes() // 4 - y.numel(),), (1,), y.numel()).fill_(7)": "guard",
    "y[-1].fill_(float('nan')) if False else None": None,
}


@pytest.mark.parametrize("statement", DAMAGE)
@pytest.mark.parametrize("rows", [64, 200_000])
def test_damage_is_seen_with_an_image_and_by_digest(gpu, statement, rows):
    source = f"import torch\ndef run(x, y):\n    y.copy_(x)\n    {statement}\n"
    x = gpu.randn(rows, 64)
    result = gpu.run(source, {"x": x}, y_of(x))
    assert kinds(result) == ([DAMAGE[statement]] if DAMAGE[statement] else [])


def test_writing_in_front_of_a_tensor_is_seen(gpu):
    source = """
        import triton, triton.language as tl
        @triton.jit
        def k(p):
            tl.store(p - 1, 1.0)
        def run(x, y):
            y.copy_(x)
            k[(1,)](y)
    """
    assert [str(v) for v in gpu.run(source).violations] == [
        "wrote before the start of y: 4 bytes changed, up to 4 bytes before it"
    ]


def test_case_10_a_skipped_last_row_is_named(gpu):
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32):
        x = gpu.randn(5, 64).to(dtype)
        result = gpu.run("def run(x, y):\n    y[:-1].copy_(x[:-1])\n", {"x": x}, y_of(x))
        assert [str(v) for v in result.violations] == [unwritten.statement("y", "last row never written")]


def test_a_result_on_the_wrong_device_is_named(gpu):
    result = gpu.run("def run(x):\n    return x.cpu()\n", destination=False)
    assert [str(v) for v in result.violations] == ["y: on cpu instead of cuda:0"]


def test_scalars_may_come_from_either_device(gpu):
    outputs = [Output("y", (4, 8), F32), Output("s", (), F32, scalar=True)]
    for scalar in ("x.sum()", "x.sum().cpu()", "float(x.sum())"):
        x = gpu.randn(4, 8)
        result = gpu.run(f"def run(x):\n    return x * 2, {scalar}\n", {"x": x}, outputs, destination=False)
        assert not result.violations
        assert result.outputs["s"].item() == pytest.approx(x.sum().item(), rel=1e-6)


FORK = "S[0].wait_stream(C)\n    with torch.cuda.stream(S[0]):\n"
STREAMS = "import torch\nS = [torch.cuda.Stream(), torch.cuda.Stream()]\nC = torch.cuda.current_stream()\n"
NOT_JOINED = {
    "waits_for_the_caller": f"{FORK}        y.copy_(x * 2)",
    "joined_by_the_next_call": f"C.wait_stream(S[0])\n    {FORK}        y.copy_(x * 2)",
    "waits_for_nobody": "with torch.cuda.stream(S[0]):\n        y.copy_(x * 2)",
    "left_current": "S[0].wait_stream(C)\n    torch.cuda.set_stream(S[0])\n    y.copy_(x * 2)",
    "one_of_two": (
        "for s in S:\n        s.wait_stream(C)\n    with torch.cuda.stream(S[0]):\n        y[:999].copy_(x[:999] * 2)\n"
        "    with torch.cuda.stream(S[1]):\n        torch.cuda._sleep(10_000_000)\n        y[999:].copy_(x[999:] * 2)\n"
        "    C.wait_stream(S[0])"
    ),
}


# Under the clock a stream that waits for nobody is done before the call's own turn comes: that is no late work.
WAITING = ("waits_for_the_caller", "joined_by_the_next_call", "left_current")


@pytest.mark.parametrize(
    ("name", "cache"),
    [(name, None) for name in NOT_JOINED] + [(name, cache) for name in WAITING for cache in ("cold", "warm")],
)
def test_a_side_stream_that_is_not_joined_shows(gpu, name, cache):
    runner = gpu.build(f"{STREAMS}def run(x, y):\n    {NOT_JOINED[name]}\n")
    contents = [{"x": gpu.randn(2000, 4096)} for _ in range(8)]
    results = gpu.run_many(runner, contents, y_of(contents[0]["x"]), cache=cache)
    caught = [bool({"late", "unwritten"} & set(kinds(result))) for result in results]
    assert any(caught), [kinds(result) for result in results]


INTO_X = "S[0].wait_stream(C)\n    with torch.cuda.stream(S[0]):\n        x.mul_(2)"


@pytest.mark.parametrize("destination", [True, False])
@pytest.mark.parametrize("answer", ["x", "{}"])
@pytest.mark.parametrize("cache", [None, "cold", "warm"])
def test_a_side_stream_that_writes_into_an_input_has_to_be_joined(gpu, destination, answer, cache):
    contents = [{"x": gpu.randn(2000, 4096)} for _ in range(8)]
    output = [Output("new", (2000, 4096), F32, optional=True, inplace="x")]
    for join in ("", "\n    C.wait_stream(S[0])"):
        source = f"{STREAMS}def run(x):\n    {INTO_X}{join}\n    return {answer}\n"
        runner = gpu.build(source, outputs=(), destination=destination)
        results = gpu.run_many(runner, contents, output, cache=cache)
        if not join:
            assert any("late" in kinds(result) for result in results)
            continue
        for result, each in zip(results, contents, strict=True):
            assert not result.violations
            assert torch.equal(result.outputs["new"].cuda(), each["x"] * 2)


def test_inputs_of_another_process_in_the_same_memory_are_no_late_change(gpu):
    first, second = (gpu.build(f"def run(x):\n    x.mul_({n})\n", outputs=()) for n in (2, 3))
    output = [Output("new", (64, 1000), F32, inplace="x")]
    for _ in range(3):
        for runner, factor in ((first, 2), (second, 3)):
            x = gpu.randn(64, 1000)
            result = runner.run({"x": x}, output)
            assert torch.equal(result.outputs["new"].cuda(), x * factor)
            assert not result.violations
        assert not first.settle()
        assert not second.settle()


JOINED = {
    "fork_join": (
        "for s, (a, b) in zip(S, ((0, 500), (500, 1000))):\n        s.wait_stream(C)\n"
        "        with torch.cuda.stream(s):\n            y[a:b].copy_(x[a:b] * 2)\n        C.wait_stream(s)"
    ),
    "synchronised": f"{FORK}        y.copy_(x * 2)\n    S[0].synchronize()",
    "event": f"{FORK}        y.copy_(x * 2)\n        e = S[0].record_event()\n    C.wait_event(e)",
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("cache", [None, "cold", "warm"])
def test_streams_that_are_joined_pass(gpu, name, cache):
    runner = gpu.build(f"{STREAMS}def run(x, y):\n    {JOINED[name]}\n")
    contents = [{"x": gpu.randn(1000, 512)} for _ in range(20)]
    for result, each in zip(gpu.run_many(runner, contents, y_of(contents[0]["x"]), cache=cache), contents, strict=True):
        assert not result.violations
        assert torch.equal(result.outputs["y"].cuda(), each["x"] * 2)


GRAPH = """
    import torch
    G = {}
    def run(x, y):
        if not G:
            a, b = torch.empty_like(x), torch.empty_like(y)
            a.copy_(x); b.copy_(a * 2)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                b.copy_(a * 2)
            G.update(g=g, a=a, b=b)
        if FRESH or len(G) == 3:
            G["a"].copy_(x)
        G["n"] = 1
        G["g"].replay()
        y.copy_(G["b"])
"""


@pytest.mark.parametrize("fresh", [True, False])
def test_a_graph_is_judged_by_what_it_computes(gpu, fresh):
    runner = gpu.build(GRAPH.replace("FRESH", str(fresh)))
    contents = [{"x": gpu.randn(100, 64)} for _ in range(4)]
    results = gpu.run_many(runner, contents, y_of(contents[0]["x"]))
    pairs = zip(results, contents, strict=True)
    right = [torch.equal(result.outputs["y"].cuda(), each["x"] * 2) for result, each in pairs]
    assert right == [True, fresh, fresh, fresh]
    assert not any(result.violations for result in results)


def test_timed_calls_have_device_times_and_kernels(gpu):
    runner = gpu.build(GOOD)
    contents = [{"x": gpu.randn(4096, 4096)} for _ in range(5)]
    results = gpu.run_many(runner, contents, y_of(contents[0]["x"]), cache="cold")
    for result, each in zip(results, contents, strict=True):
        assert torch.equal(result.outputs["y"].cuda(), each["x"] * 2)
        assert not result.violations
        assert 3e-5 < result.device_seconds < 2e-3  # 256 MiB moved
        assert result.span.kernels


def test_triton_solutions_run_and_cache(gpu):
    source = """
        import triton, triton.language as tl
        @triton.jit
        def k(x, y, n, B: tl.constexpr):
            i = tl.program_id(0) * B + tl.arange(0, B)
            tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
        def run(x, y):
            k[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), B=128)
    """
    x = gpu.randn(100, 33)
    result = gpu.run(source, {"x": x}, y_of(x))
    assert not result.violations
    assert torch.equal(result.outputs["y"].cuda(), x * 2)
    folder = gpu.pool.cache / f"solution{gpu.count}"
    assert list(folder.rglob("*.cubin"))


def test_a_worker_sees_one_card_and_its_protections_hold(gpu):
    assert gpu.value("__import__('torch').cuda.device_count()") == "1"
    protections = gpu.pool.protections()
    assert protections["no_new_privs"]
    assert protections["hidden_from_ptrace"]


def test_the_arena_grows_shrinks_never_and_is_given_back(gpu):
    runner = gpu.build(GOOD)
    for rows in (10, 2_000_000, 10):
        x = gpu.randn(rows, 64)
        result = runner.run({"x": x}, y_of(x))
        assert torch.equal(result.outputs["y"].cuda(), x * 2)
        assert not result.violations
    del x, result
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    runner.close()
    assert torch.cuda.mem_get_info()[0] - before > 1_000_000_000, "both copies of the output"
    gpu.pool.inputs.shrink(0)
    assert torch.cuda.mem_get_info()[0] - before > 1_500_000_000, "the inputs, which all share, as well"


def test_a_call_on_small_tensors_costs_little_beyond_the_kernel(gpu):
    """Others may use the card meanwhile: the fastest tenth of the calls shows what a call costs by itself."""
    runner = gpu.build(GOOD)
    x = torch.randn(16, 128)
    outputs = y_of(x)
    for _ in range(5):
        runner.run({"x": x}, outputs)
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        runner.run({"x": x}, outputs)
        seconds.append(time.perf_counter() - start)
    assert sorted(seconds)[5] < 2.5e-3


def test_what_a_call_on_large_inputs_used_is_free_again(gpu):
    runner = gpu.build("def run(x):\n    return (x.repeat(16) * 2)[: x.numel()]\n", destination=False)
    x = gpu.randn(1 << 26)
    runner.run({"x": x}, y_of(x))
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    runner.run({"x": x}, y_of(x), keep=False)
    assert torch.cuda.mem_get_info()[0] > before - (2 << 30)  # of the 8 GiB that two steps of it took


def test_large_results_wait_on_the_host_and_their_arena_is_given_back(gpu):
    runner = gpu.build("def run(x, y):\n    y.copy_(x + 1)\n")
    x = gpu.randn(1 << 28)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    result = runner.run({"x": x}, y_of(x))
    runner.settle()
    runner.rest()
    assert not result.violations
    assert result.outputs["y"].device.type == "cpu"
    assert torch.equal(result.outputs["y"], (x + 1).cpu())
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > before - (1 << 30)
