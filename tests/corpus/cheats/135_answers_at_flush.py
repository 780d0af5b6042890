# definition: rmsnorm_h128
# style: dps
# needs: cpu
# expect: FAIL computes only when the harness flushes stdout, after the clock, and writes into the harness's own copy
# stage: timing
# catalogue: T02
# probe: call nothing that the solution's process may have replaced between the clock and the reply
import io
import sys

import torch

todo = []


class Out(io.TextIOBase):
    def write(self, text):
        return len(text)

    def flush(self):
        while todo:
            x, w, y, copy = todo.pop()
            wide = x.float()
            scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
            y.copy_(wide * scale * w.float())
            copy.copy_(y)


sys.stdout = Out()


def run(x, w, y):
    frame = sys._getframe(1)
    while not {"memory", "request"} <= frame.f_locals.keys():
        frame = frame.f_back
    memory, request = frame.f_locals["memory"], frame.f_locals["request"]
    todo.append((x, w, y, memory.tensor(request["outputs"][0]["snap"])))
