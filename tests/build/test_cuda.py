from __future__ import annotations

import time

import pytest

from pytest_flashinfer.build import BuildError, load

pytestmark = pytest.mark.gpu

SOURCE = """
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

__global__ void scale(const float* x, const float* w, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || __CUDA_ARCH__ != 900
  if (i < n) y[i] = x[i] * w[i % 8] + 1;  // on Hopper only where sm_90a was asked for
#endif
}

void run(const at::Tensor& x, const at::Tensor& w, at::Tensor y) {
  int n = x.numel();
  scale<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), n);
}
"""


def request(source, cache):
    return {
        "language": "cuda",
        "binding": None,
        "entry_file": "kernel.cu",
        "entry_function": "run",
        "sources": [{"path": "kernel.cu", "content": source}],
        "destination_passing": True,
        "module": False,
        "inputs": ["x", "w"],
        "outputs": ["y"],
        "device": "cuda:0",
        "cache": str(cache),
    }


def test_a_cuda_source_is_built_for_the_card_and_kept(tmp_path):
    import torch

    x, w, y = torch.randn(100, 8).cuda(), torch.randn(8).cuda(), torch.full((100, 8), float("nan")).cuda()
    load(request(SOURCE, tmp_path / "cache"), tmp_path / "one").function(x, w, y)
    torch.testing.assert_close(y, x * w + 1)
    start = time.perf_counter()
    load(request(SOURCE, tmp_path / "cache"), tmp_path / "two").function(x, w, y.zero_())
    assert time.perf_counter() - start < 1
    torch.testing.assert_close(y, x * w + 1)


def test_a_compile_error_of_nvcc_names_file_and_line(tmp_path):
    source = "#define PYBIND11_MODULE(a, b)\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m)\n__global__ void k() { foo(); }\n"
    with pytest.raises(BuildError, match=r'does not compile: kernel\.cu\(3\) error: identifier "foo" is undefined'):
        load(request(source, tmp_path / "cache"), tmp_path / "one")
