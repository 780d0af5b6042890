# definition: rmsnorm_h128
# style: dps
# needs: cpu
# expect: FAIL computes in a method that it put on one object of the harness, which is called after the clock
# stage: timing
# catalogue: T02
# probe: look at what the harness's objects hold, not only at its modules and classes
import sys

import torch

todo = []


def run(x, w, y):
    frame = sys._getframe(1)
    while not {"memory", "request", "kernel"} <= frame.f_locals.keys():
        frame = frame.f_back
    memory, request, kernel = (frame.f_locals[name] for name in ("memory", "request", "kernel"))
    todo.append((x, w, y, memory.tensor(request["outputs"][0]["snap"])))
    if "take" not in vars(kernel.compilations):
        kernel.compilations.take = compute


def compute():
    while todo:
        x, w, y, copy = todo.pop()
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        y.copy_(wide * scale * w.float())
        copy.copy_(y)
    return []
