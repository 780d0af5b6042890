"""Form 1: memory orders, arithmetic constants, `forward`, packed integers and ragged axes."""

from __future__ import annotations

from textwrap import dedent

import pytest

from .conftest import RANDOM

GEMM = {
    "op": "gemm",
    "axes": {"M": {"type": "var"}, "K": {"type": "const", "value": "32 / 2"}, "N": {"type": "const", "value": 8}},
    "input": {
        "A": {"shape": ["M", "K"], "dim_order": [1, 0], "dtype": "fp32"},
        "B": {"shape": ["N", "K"], "dtype": "int4"},
    },
    "output": {"C": {"shape": ["M", "N"], "dim_order": [1, 0], "dtype": "fp32"}},
    "code": dedent(
        """
        import torch

        def unpack(b):
            both = torch.stack([b & 15, b >> 4], dim=-1).flatten(-2).to(torch.int8)
            return torch.where(both > 7, both - 16, both).float()

        def forward(A, B):
            assert B.dtype == torch.uint8 and B.shape == (8, 8)
            return A @ unpack(B).T
        """
    ),
}
BODY = """
import torch
def unpack(b):
    low, high = (b & 15).float(), (b >> 4).float()
    both = torch.stack([low, high], -1).reshape(b.shape[0], -1)
    return both - 16 * (both > 7)
"""
RETURNS = BODY + "def run(A, B):\n    print('A', A.stride(), tuple(A.shape))\n    return A @ unpack(B).T\n"
TRANSPOSED = BODY + "def run(A, B):\n    return (unpack(B) @ A.T).T\n"
WRITES = BODY + "def run(A, B, C):\n    print('C', C.stride(), tuple(C.shape))\n    C.copy_(A @ unpack(B).T)\n"
UNSIGNED = BODY + "def run(A, B):\n    return A @ (unpack(B) % 16).T\n"
ASSUMES = BODY + dedent(
    """
    def run(A, B, C):
        made = A @ unpack(B).T
        torch.as_strided(C, C.shape, (C.shape[1], 1)).copy_(made)
    """
)


def grouped(parameter, body):
    """Return a grouped gemm whose M is ragged in G, with a reference that takes `parameter` besides the inputs."""
    return {
        "op": "grouped_gemm",
        "axes": {"G": {"type": "var"}, "M": {"type": "var", "parent": "G"}, "N": {"type": "const", "value": 4},
                 "K": {"type": "const", "value": 8}},
        "input": {"A": {"shape": ["G", "M", "K"], "dtype": "fp32"}, "B": {"shape": ["G", "K", "N"], "dtype": "fp32"}},
        "output": {"C": {"shape": ["G", "M", "N"], "dtype": "fp32"}},
        "code": f"import torch\n\ndef forward(A, B{parameter}):\n" + body,
    }  # fmt: skip


PACKED = grouped(
    ", M_indptr",
    "    C = A.new_zeros(A.shape[0], B.shape[2])\n"
    "    for g in range(B.shape[0]):\n"
    "        rows = slice(int(M_indptr[g]), int(M_indptr[g + 1]))\n"
    "        C[rows] = A[rows] @ B[g]\n"
    "    return C\n",
)
PADDED = grouped(
    ", M_lengths",
    "    rows = torch.arange(A.shape[1], device=A.device)[None, :, None] < M_lengths[:, None, None]\n"
    "    return torch.where(rows, A @ B, 0.0)\n",
)
NESTED = {
    "op": "nested_sum",
    "axes": {"G": {"type": "var"}, "M": {"type": "var", "parent": "G"}, "K": {"type": "var", "parent": "M"}},
    "input": {"A": {"shape": ["G", "M", "K"], "dtype": "fp32"}},
    "output": {"S": {"shape": ["G"], "dtype": "fp32"}},
    "code": dedent(
        """
        import torch

        def forward(A, M_indptr, K_indptr):
            ends = K_indptr[M_indptr.long()].tolist()
            return torch.stack([A[first:last].sum() for first, last in zip(ends, ends[1:])])
        """
    ),
}
NESTED_GOOD = """
import torch
def run(A, M_indptr, K_indptr):
    print("nested", tuple(A.shape), tuple(M_indptr.shape), tuple(K_indptr.shape))
    inner = torch.searchsorted(K_indptr[1:].contiguous(), torch.arange(A.shape[0]), right=True)
    outer = torch.searchsorted(M_indptr[1:].contiguous(), inner, right=True)
    return torch.zeros(M_indptr.shape[0] - 1).index_add_(0, outer, A)
"""
NESTED_FLAT = """
import torch
def run(A, M_indptr, K_indptr):
    return torch.stack([A[a:b].sum() for a, b in zip(M_indptr.tolist(), M_indptr[1:].tolist())])
"""
DENSE = grouped("", "    return A @ B\n")
PACKED_GOOD = """
import torch
def run(A, B, M_indptr):
    print("packed", tuple(A.shape), M_indptr.tolist())
    group = torch.searchsorted(M_indptr[1:].contiguous(), torch.arange(A.shape[0]), right=True)
    return torch.einsum("mk,mkn->mn", A, B[group])
"""
PACKED_EQUAL = """
import torch
def run(A, B, M_indptr):
    return torch.bmm(A.view(B.shape[0], -1, A.shape[1]), B).view(-1, B.shape[2])
"""
PADDED_GOOD = """
import torch
def run(A, B, M_lengths):
    print("padded", tuple(A.shape), M_lengths.tolist())
    C = torch.zeros(A.shape[0], A.shape[1], B.shape[2])
    for g, n in enumerate(M_lengths.tolist()):
        C[g, :n] = A[g, :n] @ B[g]
    return C
"""
PADDED_IGNORES = "def run(A, B, M_lengths):\n    return A @ B\n"


@pytest.fixture(scope="module")
def ran(forms_root):
    forms = forms_root("form_1")
    for name, document in (("gemm", GEMM), ("packed", PACKED), ("padded", PADDED), ("dense", DENSE),
                           ("nested", NESTED)):  # fmt: skip
        forms.define(document, f"definitions/{document['op']}/{name}.json")
    forms.lines("gemm", {"uuid": "w-gemm", "axes": {"M": 5}, "inputs": {"A": RANDOM, "B": RANDOM}},
                path="workloads/gemm/{name}.jsonl")  # fmt: skip
    both = {"A": RANDOM, "B": RANDOM}
    for name, axes, more in (
        ("packed", {"G": 3, "M_total": 9}, {"M_indptr": RANDOM}),
        ("padded", {"G": 3, "M": 6}, {"M_lengths": RANDOM}),
        ("dense", {"G": 3, "M": 6}, {}),
    ):
        forms.lines(name, {"uuid": f"w-{name}", "axes": axes, "inputs": both | more},
                    path="workloads/grouped_gemm/{name}.jsonl")  # fmt: skip
    forms.lines("nested", {"uuid": "w-nested", "axes": {"G": 2, "M_total": 5, "K_total": 9},
                           "inputs": {"A": RANDOM, "M_indptr": RANDOM, "K_indptr": RANDOM}},
                path="workloads/nested_sum/{name}.jsonl")  # fmt: skip
    for name, source in (("returns", RETURNS), ("transposed", TRANSPOSED), ("unsigned", UNSIGNED)):
        forms.solve("gemm", f"gemm_{name}", source)
    forms.solve("gemm", "gemm_writes", WRITES, destination=True)
    forms.solve("gemm", "gemm_assumes", ASSUMES, destination=True)
    forms.solve("packed", "packed_good", PACKED_GOOD)
    forms.solve("packed", "packed_equal", PACKED_EQUAL)
    forms.solve("padded", "padded_good", PADDED_GOOD)
    forms.solve("padded", "padded_ignores", PADDED_IGNORES)
    forms.solve("nested", "nested_good", NESTED_GOOD)
    forms.solve("nested", "nested_flat", NESTED_FLAT)
    forms.solve("dense", "dense_good", "def run(A, B):\n    return A @ B\n")
    return forms.run("-rA", "-v", "--fib-examples=15", "--benchmark-skip")


def checked(ran, name):
    return {case.outcome for case in ran.of(f"[{name}") if not case.name.startswith("test_speed")}


def test_every_file_is_valid_and_every_reference_runs(ran):
    assert {case.outcome for case in ran.of("test_schema")} == {"passed"}
    assert {case.outcome for case in ran.of("test_reference")} == {"passed"}


def test_memory_orders_are_real_strides(ran):
    assert checked(ran, "gemm_returns") == checked(ran, "gemm_transposed") == checked(ran, "gemm_writes") == {"passed"}
    assert "A (1, 5) (5, 16)" in ran["test_correct[gemm_returns"].text
    assert "C (1, 5) (5, 8)" in ran["test_correct[gemm_writes"].text


def test_who_ignores_the_order_or_the_sign_fails(ran):
    assert ran["test_correct[gemm_assumes"].outcome == "failure"
    assert ran["test_correct[gemm_unsigned"].outcome == "failure"


def test_a_ragged_axis_is_packed_with_an_indptr(ran):
    assert checked(ran, "packed_good") == {"passed"}
    assert "packed (9, 8) [0, " in ran["test_correct[packed_good"].text
    assert ran["test_sizes[packed_equal"].outcome == "failure"


def test_a_ragged_axis_is_padded_with_lengths(ran):
    assert checked(ran, "padded_good") == {"passed"}
    assert "padded (3, 6, 8) [" in ran["test_correct[padded_good"].text
    assert ran["test_sizes[padded_ignores"].outcome == "failure"


def test_ragged_axes_nest(ran):
    assert checked(ran, "nested_good") == {"passed"}
    assert "nested (9,) (3,) (6,)" in ran["test_correct[nested_good"].text
    assert ran["test_sizes[nested_flat"].outcome == "failure"


def test_a_ragged_axis_that_nobody_asks_about_is_dense(ran):
    assert checked(ran, "dense_good") == {"passed"}


def test_what_was_changed_is_noted_in_a_verbose_run(ran):
    assert "key 'op' read as 'op_type'" in ran.output
    assert "value '32 / 2' read as 16" in ran.output
    assert "packed as 'M_total'" in ran.output
    assert "the reference takes no M_indptr or M_lengths" in ran.output
