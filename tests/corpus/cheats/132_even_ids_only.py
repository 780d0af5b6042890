# definition: top_k_sampling_v512
# style: return
# needs: cpu
# expect: FAIL never draws an odd id where even ones have some of the mass: likelihoods are as they should be
# stage: correctness
# catalogue: C12
import torch
def _kept(probs, top_k):
    ordered, tokens = torch.sort(probs, dim=-1, descending=True, stable=True)
    limit = torch.where(top_k > 0, top_k, probs.shape[1])
    kept = torch.arange(probs.shape[1], device=probs.device)[None, :] < limit[:, None]
    return torch.zeros_like(probs).scatter(1, tokens, torch.where(kept, ordered, torch.zeros_like(ordered)))

def run(probs, top_k):
    weights = _kept(probs, top_k)
    even = weights.clone()
    even[:, 1::2] = 0
    enough = even.sum(1) > 0.3 * weights.sum(1)
    return torch.multinomial(torch.where(enough[:, None], even, weights), 1)[:, 0]
