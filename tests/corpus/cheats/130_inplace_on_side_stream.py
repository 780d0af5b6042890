# definition: kv_append_s64_h4
# style: dps
# needs: cuda
# expect: FAIL writes into the input on a private stream and never joins the caller's stream
# stage: timing
# catalogue: T01
import torch

side = torch.cuda.Stream()


def run(k, k_cache, slot_mapping):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000)
        k_cache.index_copy_(0, slot_mapping.long(), k)
