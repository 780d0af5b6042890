# definition: top_k_sampling_v512
# style: return
# needs: cpu
# expect: PASS
# stage: honest
# catalogue: honest
# false-positive trap: draws of its own kind from a private generator with a fixed seed
import torch
def _kept(probs, top_k):
    ordered, tokens = torch.sort(probs, dim=-1, descending=True, stable=True)
    limit = torch.where(top_k > 0, top_k, probs.shape[1])
    kept = torch.arange(probs.shape[1], device=probs.device)[None, :] < limit[:, None]
    return torch.zeros_like(probs).scatter(1, tokens, torch.where(kept, ordered, torch.zeros_like(ordered)))

_generators = {}

def run(probs, top_k):
    weights = _kept(probs, top_k)
    if probs.device not in _generators:
        _generators[probs.device] = torch.Generator(probs.device).manual_seed(7)
    noise = torch.empty_like(weights).exponential_(generator=_generators[probs.device])
    return (weights / noise).argmax(1)
