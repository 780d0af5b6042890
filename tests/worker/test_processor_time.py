from __future__ import annotations

import os
import subprocess
import time

from pytest_flashinfer.worker.processor_time import ProcessorTime, processor_time


def test_one_of_two_on_one_processor_waits_while_the_other_works():
    processes = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        for each in processes:
            os.sched_setaffinity(each.pid, {min(os.sched_getaffinity(0))})
        before, end = [processor_time(each.pid) for each in processes], time.monotonic() + 30
        spent = [ProcessorTime()]
        while min(min(each.worked, each.queued) for each in spent) < 0.02 and time.monotonic() < end:
            time.sleep(0.02)
            spent = [first.until(processor_time(each.pid)) for first, each in zip(before, processes, strict=True)]
        assert all(min(each.worked, each.queued) >= 0.02 for each in spent)
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert processor_time(processes[0].pid) == before[0].until(ProcessorTime()) == ProcessorTime()
