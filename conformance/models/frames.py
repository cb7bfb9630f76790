"""Frame arithmetic beyond what the product needs.

Rule: `floor_frame(t) <= t < higher_frame(t)`, both clamped to 64 bits.
"""

from __future__ import annotations

from keyedwm.core.watermark import clamp_ms


def higher_frame(time_ms: int, size_ms: int, offset_ms: int = 0) -> int:
    """The lowest boundary above a time."""
    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms + size_ms)
