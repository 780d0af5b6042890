import triton
import triton.language as tl


@triton.jit
def load_sum(x_ptr, residual_ptr, cols, hidden_size):
    inside = cols < hidden_size
    x = tl.load(x_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    return x + tl.load(residual_ptr + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def looped_kernel(
    x_ptr, residual_ptr, w_ptr, out_ptr, hidden_size, eps, stride_x, stride_residual, stride_out, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, hidden_size, BLOCK):
        x = load_sum(x_ptr, residual_ptr, begin + tl.arange(0, BLOCK), hidden_size)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / hidden_size + eps)
    # The second reading finds the row in the cache.
    for begin in range(0, hidden_size, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        x = load_sum(x_ptr, residual_ptr, cols, hidden_size)
        w = tl.load(w_ptr + cols, mask=cols < hidden_size, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (x * scale * w).to(out_ptr.dtype.element_ty), mask=cols < hidden_size)


def run(hidden_states, residual, weight, output):
    num_rows, hidden_size = hidden_states.shape
    if num_rows == 0:
        return
    x = hidden_states if hidden_states.stride(1) == 1 else hidden_states.contiguous()
    residual = residual if residual.stride(1) == 1 else residual.contiguous()
    looped_kernel[(num_rows,)](
        x, residual, weight, output, hidden_size, 1e-5, x.stride(0), residual.stride(0), output.stride(0),
        BLOCK=2048, num_warps=4,
    )
