"""What known cards can do at most, from their makers' data sheets; a card that is not listed is measured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

_TERA: Final = 1e12
# By torch's name of a card: memory in TB/s, then dense TFLOP/s for 16-bit floats, TF32, 8-bit floats, 4-bit floats, and
# integers of 8 and of 4 bits; 0 where the card has no such unit. Sparsity, which doubles the printed numbers of some
# sheets, is not counted.
_SHEETS: Final[tuple[tuple[str, float, tuple[float, float, float, float, float, float]], ...]] = (
    (r"GB200", 8.0, (2500, 1250, 5000, 10000, 5000, 0)),
    (r"B200", 8.0, (2250, 1125, 4500, 9000, 4500, 0)),
    (r"H200 NVL", 4.8, (835, 418, 1671, 0, 1671, 0)),
    (r"H200|GH200 144G", 4.8, (989.4, 494.7, 1978.9, 0, 1978.9, 0)),
    (r"H100 NVL", 3.938, (835, 418, 1671, 0, 1671, 0)),
    (r"H100 PCIe", 2.039, (756, 378, 1513, 0, 1513, 0)),
    (r"H[18]00 80GB HBM3|H800", 3.352, (989.4, 494.7, 1978.9, 0, 1978.9, 0)),
    (r"H20", 4.0, (148, 74, 296, 0, 296, 0)),
    (r"A[18]00-SXM4?-80GB", 2.039, (312, 156, 0, 0, 624, 1248)),
    (r"A[18]00 80GB PCIe", 1.935, (312, 156, 0, 0, 624, 1248)),
    (r"A100-(SXM4|PCIE)-40GB", 1.555, (312, 156, 0, 0, 624, 1248)),
    (r"L40S", 0.864, (362, 183, 733, 0, 733, 1466)),
    (r"L4", 0.300, (121, 60, 242, 0, 242, 484)),
    (r"A10", 0.600, (125, 62.5, 0, 0, 250, 500)),
    (r"V100-SXM[23]?-(16|32)GB", 0.900, (125, 0, 0, 0, 0, 0)),
    (r"T4", 0.320, (65, 0, 0, 0, 130, 260)),
)
_WIDTHS: Final = {
    "float16": 0, "bfloat16": 0, "float32": 1, "float8_e4m3fn": 2, "float8_e5m2": 2, "float4_e2m1": 3,
    "float4_e2m1fn_x2": 3, "int8": 4, "uint8": 4, "int4": 5,
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What one card can do at most: `bandwidth` in bytes/s, `matrix` in FLOP/s by the operands' dtype.

    `source` says where the numbers are from: the maker's data sheet, or a measurement of this run.
    """

    bandwidth: float
    matrix: Mapping[str, float]
    source: Literal["data sheet", "measured"]

    @property
    def fastest(self) -> float | None:
        """The highest rate of any dtype: what no kernel exceeds, whatever it computes in.

        `None` where rates are measured: not all units are, and some are many times as fast.
        """
        return max(self.matrix.values(), default=None) if self.source == "data sheet" else None

    def facts(self) -> dict[str, object]:
        """Return the limits as they are stored with a run: GB/s and TFLOP/s."""
        rates = {dtype: round(rate / _TERA, 1) for dtype, rate in sorted(self.matrix.items())}
        return {"bandwidth_gb_s": round(self.bandwidth / 1e9, 1), "matrix_tflop_s": rates, "source": self.source}


def known(name: str) -> Limits | None:
    """Return the limits of a card by its name; `None` for one that is not listed, and for a slice of a card."""
    if re.search(r"\bMIG\b", name):
        return None
    for pattern, memory, rates in _SHEETS:
        if re.fullmatch(rf"(NVIDIA |Tesla )?({pattern})( (80|96|141|144|180)GB.*| HBM3e?)?", name):
            matrix = {dtype: rates[place] * _TERA for dtype, place in _WIDTHS.items() if rates[place]}
            return Limits(memory * _TERA, matrix, "data sheet")
    return None
