# definition: top_k_sampling_v512
# style: return
# needs: cpu
# expect: FAIL the random number is a hash of the row: the same contents give the same id
# stage: correctness
# catalogue: C12
import torch
def _kept(probs, top_k):
    ordered, tokens = torch.sort(probs, dim=-1, descending=True, stable=True)
    limit = torch.where(top_k > 0, top_k, probs.shape[1])
    kept = torch.arange(probs.shape[1], device=probs.device)[None, :] < limit[:, None]
    return torch.zeros_like(probs).scatter(1, tokens, torch.where(kept, ordered, torch.zeros_like(ordered)))

def run(probs, top_k):
    below = _kept(probs, top_k).double().cumsum(1)
    number = (probs[:, ::7].double().sum(1) * 1e7) % 1.0
    ids = torch.searchsorted(below, (number * below[:, -1])[:, None], right=True)[:, 0]
    return ids.clamp(max=probs.shape[1] - 1)
