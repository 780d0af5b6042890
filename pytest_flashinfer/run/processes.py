"""The device of a run and the processes on it. Little is imported for them, so that they can start before all else."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_flashinfer.run.card import Card
from pytest_flashinfer.run.distribution import lists_only, sharers, turn_of
from pytest_flashinfer.worker import device as devices

if TYPE_CHECKING:
    from pytest_flashinfer.settings.options import Options
    from pytest_flashinfer.worker.pool import Pool


class Processes:
    """What a process of the run calls solutions and references with; heavy parts are made when first asked for.

    Raises pytest.UsageError where the device that is asked for is not there, or no kernel could be kept.
    """

    def __init__(self, config: pytest.Config, settings: Options) -> None:
        try:
            found = devices.find(settings.device, require_gpu=settings.require_gpu, turn=turn_of(config))
        except devices.DeviceError as error:
            raise pytest.UsageError(str(error)) from error
        if not lists_only(config):
            _make_cache()
        self.device = devices.narrowed(found, os.environ)
        self.card = Card(self.device, sharers(config, self.device.count), self.start)
        self._hidden = [*settings.definitions, *settings.solutions, *settings.workloads, config.rootpath]
        self._pool: Pool | None = None
        self._has_torch = False

    def start(self) -> Pool:
        """Start the workers of this run, unless they are, and return them; nothing is waited for."""
        if self._pool is None:
            self._pool = self._started()
        return self._pool

    def _started(self) -> Pool:
        from pytest_flashinfer.worker import sandbox
        from pytest_flashinfer.worker.pool import Pool
        from pytest_flashinfer.worker.request import cache_folder

        sandbox.hide_process()
        return Pool(str(self.device), self._hidden, cache_folder(), turns=self.card.turns)

    def start_with_torch(self) -> Pool:
        """Start the workers and load torch in this process as well, unless that is done; return the workers."""
        pool = self.start()  # first: its processes import torch at the same time
        if not self._has_torch:
            self._load_torch(pool)
            self._has_torch = True
        return pool

    def _load_torch(self, pool: Pool) -> None:
        import_torch()
        import torch

        torch.set_num_threads(1)  # what the judge does on the CPU is in small pieces; idle threads would spin beside it
        if self.device.kind == "cuda":
            from pytest_flashinfer.judge.oracle.client import HANDLER

            pool.begin(HANDLER, lambda: torch.zeros(1, device=str(self.device)))  # a context of this process's own

    def close(self) -> None:
        """End every process that was started."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.card.turns.close()


def _make_cache() -> None:
    from pytest_flashinfer.worker.request import make_cache

    try:
        make_cache()
    except (OSError, RuntimeError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        advice = "set XDG_CACHE_HOME to a folder that this user may write to"
        raise pytest.UsageError(f"there is no place for compiled kernels: {reason}: {advice}") from error


def import_torch() -> None:
    """Import torch without searching it for garbage, now, later or when this process ends: it takes a third less."""
    if "torch" in sys.modules:
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("torch")
        gc.freeze()
    finally:
        if collecting:
            gc.enable()
