# definition: kv_append_s64_h4
# style: dps
# needs: cpu
# expect: PASS
# stage: honest
# catalogue: honest
def run(k, k_cache, slot_mapping):
    k_cache.index_copy_(0, slot_mapping.long(), k)
