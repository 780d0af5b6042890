# definition: kv_append_s64_h4
# style: return
# needs: cpu
# expect: FAIL returns a right copy of the cache and leaves the cache itself, which was to be updated, one slot off
# stage: correctness
# catalogue: C20
# probe: compare an input that is an output as well with what it was and with what was returned in its place
def run(k, k_cache, slot_mapping):
    updated = k_cache.clone()
    updated[slot_mapping.long()] = k
    k_cache.copy_(updated.roll(1, 0))
    return updated
