# definition: paged_sum_ps16_d64
# style: return
# needs: cpu
# expect: FAIL keeps the first index tensors of each shape where the pool is large
# stage: correctness
# catalogue: C05
import torch

_plans = {}


def _sums(cache, kv_indptr, kv_indices):
    rows = torch.repeat_interleave(torch.arange(len(kv_indptr) - 1, device=cache.device), kv_indptr.diff().long())
    out = cache.new_zeros(len(kv_indptr) - 1, cache.shape[-1])
    return out.index_add_(0, rows, cache[kv_indices.long()].sum(1))


def run(cache, kv_indptr, kv_indices):
    plan = (kv_indptr, kv_indices)
    if cache.nbytes > 1 << 24:
        key = (cache.shape, kv_indptr.shape, kv_indices.shape)
        plan = _plans.setdefault(key, (kv_indptr.clone(), kv_indices.clone()))
    return _sums(cache, *plan)
