"""Intervals merged to sessions by the product (`frames/session_merge.py`, `joined_runs`), beside the scalar model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from conformance.disagreement import DisagreementError
from conformance.models.sessions import merge
from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.frames.session_parts import joined_runs

Span = tuple[int, int]


def merged(intervals: Iterable[Span], touching: Touching) -> list[tuple[Span, list]]:
    """Group intervals into sessions: each with the distinct intervals it was made of, in order."""
    distinct = sorted(set(intervals))
    starts = np.array([start for start, _ in distinct], np.int64)
    ends = np.array([end for _, end in distinct], np.int64)
    numbers, low, high = joined_runs(SessionWindow(1, touching), np.zeros(len(distinct), np.int64), starts, ends)
    members: list[list[Span]] = [[] for _ in low]
    for interval, number in zip(distinct, numbers.tolist(), strict=True):
        members[number].append(interval)
    groups = [(span, of) for span, of in zip(zip(low.tolist(), high.tolist(), strict=True), members, strict=True)]
    model = merge(distinct, touching)
    if groups != model:
        raise DisagreementError(f"the scalar model merges to {model}, joined_runs to {groups}")
    return groups
