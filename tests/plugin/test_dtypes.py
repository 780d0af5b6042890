"""Whole runs with dtypes that torch stores and hardly computes in: pairs of 4-bit floats, unsigned integers."""

from __future__ import annotations

import textwrap

import pytest

from tests.plugin.repository import Repository

CODES = """
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = (x.float().abs()[..., None] - grid).abs().argmin(-1).to(torch.uint8) | (x < 0).to(torch.uint8) << 3
    packed = codes[:, ::2] | codes[:, 1::2] << 4
"""
QUANTISE = f"import torch\n\ndef run(x):{CODES}    return packed"
AS_PAIRS = f"{QUANTISE}.view(torch.float4_e2m1fn_x2)\n"
AS_ELEMENTS = f"{QUANTISE}.repeat_interleave(2, 1)\n"
INTO_PAIRS = f"""
import torch

def run(x, q):{CODES}
    assert q.dtype is torch.float4_e2m1fn_x2
    q.copy_(packed.view(q.dtype))
"""
WRONG = f"{QUANTISE} ^ 1\n"
DOUBLE = textwrap.dedent("""
    import torch

    def run(q):
        grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        codes = torch.stack([q.view(torch.uint8) & 15, q.view(torch.uint8) >> 4], -1).flatten(-2).long()
        return torch.where(codes > 7, -grid[codes & 7], grid[codes & 7]) * 2
""")
SUMS = textwrap.dedent("""
    import torch

    def run(x, indptr):
        ends = indptr.long()
        sums = [x[a:b].sum(0) for a, b in zip(ends[:-1], ends[1:])]
        return torch.stack(sums) if sums else x.new_zeros(0, x.shape[1]), (ends[1:] - ends[:-1]).to(indptr.dtype)
""")
HONEST = ("pairs", "codes", "into", "doubled", "sums")


def define(made, name, inputs, outputs, reference, **more):
    axes = {"rows": {"type": "var"}, "h": {"type": "const", "value": 16}, "pairs": {"type": "const", "value": 8}}
    used = str((inputs, outputs))
    axes = {axis: spec for axis, spec in axes.items() if f"'{axis}'" in used} | more.pop("axes", {})
    made.define(name=name, description=name, axes=axes, inputs=inputs, outputs=outputs, reference=reference, **more)
    sizes = {axis: 5 for axis, spec in axes.items() if spec["type"] == "var"}
    made.lines({"uuid": "five", "axes": sizes, "inputs": {key: {"type": "random"} for key in inputs}}, name=name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("dtypes"))
    x = {"x": {"shape": ["rows", "h"], "dtype": "float32"}}
    pairs = {"q": {"shape": ["rows", "pairs"], "dtype": "float4_e2m1fn_x2"}}
    define(made, "bytes", x, pairs, QUANTISE)
    made.solve("pairs", AS_PAIRS, of="bytes")
    define(made, "view", x, pairs, AS_PAIRS)
    made.solve("codes", QUANTISE, of="view")
    made.solve("elements", AS_ELEMENTS, of="view")
    made.solve("into", INTO_PAIRS, of="view", destination=True)
    made.solve("wrong", WRONG, of="view")
    define(made, "double", pairs, {"y": x["x"]}, DOUBLE)
    made.solve("doubled", DOUBLE, of="double")
    axes = {"ends": {"type": "expr", "expression": "segments + 1"}, "segments": {"type": "var"}}
    outputs = {"y": {"shape": ["segments", "h"], "dtype": "float32"}, "n": {"shape": ["segments"], "dtype": "uint32"}}
    indices = {"indptr": {"shape": ["ends"], "dtype": "uint32"}}
    define(made, "uint32", x | indices, outputs, SUMS, constraints=["rows == indptr[-1].item()"], axes=axes)
    made.solve("sums", SUMS, of="uint32")
    return made.run()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_passes(run, name):
    assert {*run.outcomes(f"[{name}").values()} == {"passed"}, run.output


def test_wrong_codes_and_another_shape_fail(run):
    assert "INCORRECT_NUMERICAL" in run["test_correct[wrong"].text
    assert "shape [5, 16] instead of [5, 8]" in run["test_correct[elements"].text
    assert all(case.outcome != "failure" for case in run.of("test_reference"))
