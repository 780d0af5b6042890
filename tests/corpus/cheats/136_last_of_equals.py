# definition: greedy_v128
# style: return
# needs: cpu
# expect: FAIL of equal logits the last one wins, where the reference has one right answer though its op_type is sampling
# stage: correctness
# catalogue: C12
# probe: compare the ids of a reference that draws nothing
def run(logits):
    return logits.shape[1] - 1 - logits.flip(-1).argmax(-1)
