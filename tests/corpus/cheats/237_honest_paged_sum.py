# definition: paged_sum_ps16_d64
# style: return
# needs: cpu
# expect: PASS
# stage: honest
# catalogue: honest
import torch

def _sums(cache, kv_indptr, kv_indices):
    rows = torch.repeat_interleave(torch.arange(len(kv_indptr) - 1, device=cache.device), kv_indptr.diff().long())
    out = cache.new_zeros(len(kv_indptr) - 1, cache.shape[-1])
    return out.index_add_(0, rows, cache[kv_indices.long()].sum(1))


def run(cache, kv_indptr, kv_indices):
    return _sums(cache, kv_indptr, kv_indices)
