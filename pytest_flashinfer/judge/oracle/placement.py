"""Which truths the host finds: those of small cases, where a card spends its time on launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flashinfer.judge.reference.origin import ReferenceFailed

if TYPE_CHECKING:
    from pytest_flashinfer.judge.oracle.truth import Truth
    from pytest_flashinfer.worker.case import Case

MOST_BYTES = 1 << 18  # inputs and outputs: up to that size one core is done sooner than a card
_DTYPES = ("float64", "float32", "float16", "bfloat16")  # of integers and codes, a rounding in another order shows


def on_host(case: Case, device: str) -> bool:
    """Say whether the host shall find the truth about a case of a run on `device`.

    A listed workload's reference always runs on the card: that it does is one of the things to be checked.
    """
    if device == "cpu" or case.workload is not None or case.nbytes > MOST_BYTES:
        return False
    return all(spec.dtype in _DTYPES for spec in case.definition.outputs.values())


def doubtful(found: Truth | ReferenceFailed) -> bool:
    """Say whether the reference does so badly on the host that it may do better on the card."""
    if isinstance(found, ReferenceFailed):
        return True
    return found.unfair is not None or any(output.widened > 1 for output in found.outputs.values())
