"""Whose kernels ran: names from sources against names from the card."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flashinfer.data.model import Solution, SourceFile
from pytest_flashinfer.judge.policy import kernel_names, objection, share

TRITON = """
import functools, torch, triton
import triton.language as tl

@triton.jit
def plain(x): pass

@triton.autotune(configs=[], key=["n"])
@triton.heuristics({})
@triton.jit(do_not_specialize=["n"])
def tuned(x, n): pass

def late(x): pass
compiled = triton.jit(late)

@functools.lru_cache(maxsize=None)
def helper(x): pass

@torch.jit.script
def scripted(x): return x

class Holder:
    @staticmethod
    @triton.jit
    def inner(x): pass
"""
CUDA = """
extern "C" __global__ void simple(float* x) { helper(x); }
template <typename T, int N>
__global__ void __launch_bounds__(MAX(N, 128), 2) bounded(const T* __restrict__ x) {}
__launch_bounds__(256) __global__ void before(float* x) {}
namespace { template <bool B> __global__ __cluster_dims__(2, 1, 1) void hidden(float* x) {} }
__global__
void
broken_over_lines(
    float* x) {}
__global__ void declared(float* x);
__device__ float helper(float* x) { return 1; }
"""


def solution(language, source, path="main.py"):
    return Solution("s", "d", "a", language, path, "run", (SourceFile(path, source),))


CU = solution("cuda", CUDA, "k.cu")
PY = solution("triton", TRITON)


def library(of, *names):
    return share(of, [(name, 1.0) for name in names]).library


def test_names_in_triton_sources():
    assert kernel_names(PY) == {"plain", "tuned", "late", "inner"}


def test_names_in_cuda_sources():
    assert kernel_names(CU) == {"simple", "bounded", "before", "hidden", "broken_over_lines", "declared"}


def test_names_in_cuda_text_within_python():
    assert kernel_names(solution("cuda", f"source = r'''{CUDA}'''\n")) >= {"simple", "bounded", "hidden"}


@pytest.mark.parametrize("text", ["def run(:", "\0", "", "@", "__global__", "__global__ void", "__launch_bounds__(((("])
def test_a_source_that_cannot_be_read_has_no_names(text):
    assert not kernel_names(solution("triton", text))


@given(st.text(st.sampled_from("_global_(){};<>@ \nabvoid"), max_size=300))
def test_any_text_can_be_read(text):
    kernel_names(solution("cuda", "__global__" + text, "k.cu"))


@pytest.mark.parametrize(
    "name",
    [
        "simple(float*)",
        "void bounded<float, 4>(float const*)",
        "void (anonymous namespace)::hidden<(bool)1>(float*)",
        "(anonymous namespace)::hidden(float*)",
        "std::enable_if<is_ok<float>::value, void>::type bounded<float, 4>(float const*)",
        "void mine::detail::bounded<std::vector<at::Half>, 4>(at::Half const*)",
        "_Z7boundedIfLi4EEvPKT_",
    ],
)
def test_a_kernel_of_the_source_is_its_own(name):
    assert library(CU, name) == 0


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::elementwise_kernel<4, at::native::simple, at::detail::Array<char*, 2>>(int, simple)",
        "void at::native::simple<float>(float*)",
        "void cub::DeviceReduceKernel<simple>(float*)",
        "ampere_sgemm_128x64_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN",
        "void gemv2T_kernel_val<int, int, float, simple>(float*)",
        "void cutlass::Kernel2<simple>(simple::Params)",
        "void splitKreduce_kernel<32, 16, int, float>(float*)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)",
        "simple_but_not_it(float*)",
        "not_simple(float*)",
        "_ZN2at6native6simpleEPf",
        "triton_poi_fused_add_0",
    ],
)
def test_a_kernel_of_a_library_is_not(name):
    assert library(CU, name) == 1


@pytest.mark.parametrize("stolen", ["native", "elementwise_kernel", "softmax_warp_forward", "DeviceReduceKernel"])
def test_a_name_taken_from_a_library_does_not_make_its_kernels_the_solutions(stolen):
    thief = solution("triton", f"import triton\n@triton.jit\ndef {stolen}(x): pass\n")
    assert stolen in kernel_names(thief)
    assert library(thief, "void at::native::elementwise_kernel<128, native>(int, native)") == 1
    assert library(thief, "void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)") == 1
    assert library(thief, "void cub::DeviceReduceKernel<native>(float*)") == 1
    assert library(thief, stolen) == 0


def test_triton_kernels_have_plain_names():
    assert library(PY, "tuned") == 0
    assert library(PY, "helper") == 1


@pytest.mark.parametrize("language", ["tilelang", "cutedsl", "cutile", "cutlass"])
def test_where_a_compiler_makes_up_names_only_known_libraries_are_foreign(language):
    of = solution(language, "def run(x): pass")
    assert library(of, "main_kernel", "kernel_cutlass_mine_0", "void cutlass::Kernel2<mine>(mine::Params)") == 0
    assert library(of, "void at::native::elementwise_kernel<128>(int)") == 1


def test_shares_are_shares_of_time():
    found = share(PY, [("plain", 3e-6), ("ampere_sgemm", 1e-6), ("plain", 4e-6)])
    assert found.library == pytest.approx(1 / 8)
    assert found.kernels == (("plain", 7e-6), ("ampere_sgemm", 1e-6))
    assert found.text == "plain 88%, ampere_sgemm 12%"


def test_copies_and_fills_are_nobodys_work():
    found = share(PY, [("plain", 1e-6), ("memcpy DtoD", 9e-6), ("memset", 9e-6)])
    assert found.library == 0
    assert "mem" not in found.text


@pytest.mark.parametrize("ran", [[], [("memcpy HtoD", 1e-6)]])
def test_where_nothing_is_known_nothing_is_said(ran):
    assert share(PY, ran) is None
    assert objection(PY, None) is None


def test_kernels_without_a_time_are_no_error():
    assert share(PY, [("ampere_sgemm", 0.0)]).library == 0


def test_long_names_are_cut():
    found = share(PY, [("void at::native::" + "x" * 500, 1.0)])
    assert len(found.text) < 100


@pytest.mark.parametrize(("own", "objects"), [(6e-6, False), (5e-6, False), (4e-6, True), (0.0, True)])
@pytest.mark.parametrize("language", ["triton", "python"])
def test_only_a_language_that_promises_kernels_is_held_to_it(language, own, objects):
    of = solution(language, TRITON)
    reason = objection(of, share(of, [("plain", own), ("ampere_sgemm", 1e-5 - own)]))
    assert (reason is not None) == (objects and language == "triton")
    if reason is not None:
        assert "declared triton" in reason
        assert "ampere_sgemm" in reason
