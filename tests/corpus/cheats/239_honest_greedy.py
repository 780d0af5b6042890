# definition: greedy_v128
# style: dps
# needs: cpu
# expect: PASS
# stage: honest
import torch


def run(logits, ids):
    largest = logits.amax(dim=-1, keepdim=True)
    places = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
    ids.copy_(torch.where(logits == largest, places, logits.shape[1]).amin(dim=-1))
