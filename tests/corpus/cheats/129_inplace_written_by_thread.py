# definition: kv_append_s64_h4
# style: return
# needs: cpu
# expect: FAIL a thread writes into the input once the call has returned; the output is left out of the result
# stage: timing
# catalogue: T02
# probe: copy an input that is an output as well at return, and compare when the reply is there
import queue
import sys
import threading

jobs = queue.SimpleQueue()
main = threading.get_ident()


def returned():
    frame = sys._current_frames().get(main)
    while frame is not None:
        if frame.f_code.co_name in ("_call", "timed_benchmark"):
            return False
        frame = frame.f_back
    return True


def work():
    while True:
        k, k_cache, slots = jobs.get()
        while not returned():
            pass
        k_cache.index_copy_(0, slots.long(), k)


threading.Thread(target=work, daemon=True).start()


def run(k, k_cache, slot_mapping):
    jobs.put((k, k_cache, slot_mapping))
    return {}
