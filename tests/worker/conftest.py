"""One pool for all tests of this floor, and workers that run sources given as text."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from pytest_flashinfer.worker.pool import Pool
from pytest_flashinfer.worker.runner import Output, Runner

SECRET = "the tolerance is 1e-3"


class Lab:
    """Builds a source in a fresh worker and hands out its runner."""

    def __init__(self, pool: Pool, hidden: Path) -> None:
        self.pool = pool
        self.device = pool.device
        self.hidden = hidden
        self.runners: list[Runner] = []
        self.count = 0

    def build(self, source, *, inputs=("x",), outputs=("y",), destination=True, timeout=60.0) -> Runner:
        worker = self.pool.worker()
        runner = Runner(worker, self.device, self.pool.inputs, destination=destination)
        self.runners.append(runner)
        self.count += 1
        folder = self.pool.cache / f"solution{self.count}"
        request = {
            "language": "python",
            "binding": None,
            "entry_file": "main.py",
            "entry_function": "run",
            "sources": [{"path": "main.py", "content": textwrap.dedent(source)}],
            "destination_passing": destination,
            "module": False,
            "inputs": list(inputs),
            "outputs": list(outputs),
            "device": "cpu" if self.device == "cpu" else "cuda:0",
            "cache": str(folder),
        }
        worker.build(request, folder, timeout)
        return runner

    def run(self, source, inputs=None, outputs=None, *, destination=True, timeout=60.0, **options):
        """Run a source once on 4 x 8 floats, or what is given."""
        inputs = {"x": self.randn(4, 8)} if inputs is None else inputs
        outputs = [Output("y", (4, 8), torch.float32)] if outputs is None else outputs
        own = [output.name for output in outputs if not (destination and output.inplace)]
        names = {"inputs": tuple(inputs), "outputs": tuple(own)}
        runner = self.build(source, destination=destination, **names)
        return runner.run(inputs, outputs, timeout=timeout, **options)

    @staticmethod
    def run_many(runner, contents, outputs, **options):
        """Call once for each of `contents`, all of one shape; device times and late changes are there at the end."""
        results = [runner.run(inputs, outputs, **options) for inputs in contents]
        runner.settle()
        runner.read_clock()
        return results

    def value(self, expression):
        """Return what a Python expression is in a worker, as text."""
        result = self.run(f"def run(x):\n    print({expression})\n    return x.clone()\n", destination=False)
        return result.log.strip()

    def randn(self, *size, dtype=torch.float32):
        return torch.randn(*size, device=self.device).to(dtype)

    def close(self) -> None:
        for runner in self.runners:
            runner.worker.close()
            runner.close()
        self.runners.clear()


def make_pool(device: str, root: Path) -> Pool:
    hidden = root / "project"
    hidden.mkdir()
    (hidden / "definition.json").write_text(SECRET)
    checkout = Path(__file__).parents[2]  # pytest puts it on sys.path, for there is a conftest.py
    return Pool(device, hidden=[hidden, checkout], cache=root / "cache")


@pytest.fixture(scope="session")
def cpu_pool(tmp_path_factory):
    pool = make_pool("cpu", tmp_path_factory.mktemp("worker"))
    yield pool
    pool.close()


@pytest.fixture
def lab(cpu_pool):
    lab = Lab(cpu_pool, cpu_pool.hidden[0])
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def gpu_pool(tmp_path_factory):
    pool = make_pool("cuda:0", tmp_path_factory.mktemp("worker_gpu"))
    yield pool
    pool.close()


@pytest.fixture
def gpu(gpu_pool):
    lab = Lab(gpu_pool, gpu_pool.hidden[0])
    yield lab
    lab.close()
