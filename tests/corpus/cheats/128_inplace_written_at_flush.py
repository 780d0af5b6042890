# definition: kv_append_s64_h4
# style: dps
# needs: cpu
# expect: FAIL writes into the input only when the harness flushes stdout, after the clock and before the reply
# stage: timing
# catalogue: T02
# probe: copy an input that is an output as well at return, and compare when the reply is there
import io
import sys

todo = []


class Out(io.TextIOBase):
    def write(self, text):
        return len(text)

    def flush(self):
        while todo:
            k, k_cache, slots = todo.pop()
            k_cache.index_copy_(0, slots.long(), k)


sys.stdout = Out()


def run(k, k_cache, slot_mapping):
    todo.append((k, k_cache, slot_mapping))
