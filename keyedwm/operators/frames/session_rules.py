"""Rules of sessions with and without panes: when a session closes, and what late rows become."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.core.errors import InputError
from keyedwm.core.window_rules import LatePolicy, Touching
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.results import Panes, outputs
from keyedwm.operators.results import Output, late_sentence
from keyedwm.operators.state.key_dictionary import KeyDictionary

# Before every end of a session.
NEVER = -(2**62)


def closed_ms(window: SessionWindow, watermark_ms: int | None, lateness_ms: int = 0) -> int:
    """Return the last end of a session that takes nothing more: one that merges at its end takes an event there."""
    if watermark_ms is None:
        return NEVER
    return watermark_ms - lateness_ms - (window.touching is Touching.MERGE)


def lowered_ms(window: SessionWindow, ends: Ints, time_ms: int, most: int | None) -> int:
    """Return the highest watermark up to this one that closes so many of these ends, and those equal to the last."""
    closing = ends[ends <= closed_ms(window, time_ms)]
    if most is None or len(closing) <= most:
        return time_ms
    return int(np.partition(closing, most - 1)[most - 1]) + (window.touching is Touching.MERGE)


def expired(plan: WindowPlan, keys: KeyDictionary, late: Panes, watermark_ms: int | None) -> Iterator[Output]:
    """Drop, emit or refuse late rows, as the plan says; late: how they are emitted."""
    rows = int(late.entries.rows.sum())
    if rows and plan.late is LatePolicy.FAIL:
        per_key = plan.key_watermark is not None
        raise InputError(late_sentence(rows, int(late.starts_ms.min()), watermark_ms, per_key=per_key))
    if plan.late is LatePolicy.EMIT:
        yield from outputs(plan, keys, late)
