# definition: gemm_n256_k128
# style: return
# needs: cpu
# expect: PASS
# stage: honest
# catalogue: honest
# false-positive trap: a thread tidies up its own scratch later; what was returned is another tensor
import threading
import time


def tidy(scratch):
    time.sleep(0.06)
    scratch.zero_()


def run(a, b):
    scratch = a @ b.mT
    product = scratch.clone()
    threading.Thread(target=tidy, args=(scratch,), daemon=True).start()
    return product
