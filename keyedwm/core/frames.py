"""Frame arithmetic: the boundaries `offset + n * size`, for every whole `n`, negative ones too (rules 8, 11).

Rule: `floor_frame(t) <= t`, clamped to 64 bits.
"""

from __future__ import annotations

from keyedwm.core.watermark import clamp_ms


def floor_frame(time_ms: int, size_ms: int, offset_ms: int = 0) -> int:
    """The highest boundary at or below a time."""
    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms)
