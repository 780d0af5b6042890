# definition: gemm_n256_k128
# style: return
# needs: cpu
# expect: FAIL a thread takes back what was returned, some hundredths of a second later
# stage: correctness
# catalogue: C07
# probe: look again at a result when the calls of its item are over
import threading
import time

nap = time.sleep


def take_back(product):
    nap(0.06)
    product.mul_(0.5)


def run(a, b):
    product = a @ b.mT
    threading.Thread(target=take_back, args=(product,), daemon=True).start()
    return product
