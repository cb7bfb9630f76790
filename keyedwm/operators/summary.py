"""Summary of the state of one bucket, from its manifest alone: no table is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keyedwm.operators.frames.frame_log import FRAME
from keyedwm.operators.frames.session_log import DUE, REST, YOUNG
from keyedwm.operators.frames.session_table import SESSIONS
from keyedwm.operators.state.store import PART

_SESSION_LOGS = (YOUNG, DUE, REST, SESSIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """`frames`: slices of event time that are open, None for sessions, processors and joins. rows: of frames, of
    sessions, before parts are merged, of a processor's logs, or that wait in a join. oldest_ms: the start of the oldest
    frame, the first end of a session, or the earliest row of a join, where that is known.
    """

    frames: int | None
    rows: int
    size_bytes: int
    oldest_ms: int | None


def summary(blobs: Mapping[str, int], state: Mapping[str, Any]) -> Summary:
    """Return what a bucket holds. blobs: name → bytes; state: the manifest of its operator."""
    logs = {name.partition(PART)[0] for name in blobs}
    starts = [int(name.removeprefix(FRAME)) for name in logs if name.startswith(FRAME)]
    rows = state.get("rows", {})
    size_bytes = sum(blobs.values())
    if "open" in state:  # of kept messages
        windows, messages, first = state["open"]
        return Summary(frames=windows, rows=messages, size_bytes=size_bytes, oldest_ms=first if windows else None)
    if any(name.startswith(_SESSION_LOGS) for name in logs):
        ends = [state.get("young_end"), state.get("rest_end"), *(first for _, first, _ in state.get("due", ()))]
        rows_held = sum(count for name, count in rows.items() if name.startswith(_SESSION_LOGS))
        first = min((end for end in ends if end is not None), default=None)
        return Summary(frames=None, rows=rows_held, size_bytes=size_bytes, oldest_ms=first)
    if "own" in state:  # a processor's
        return Summary(frames=None, rows=sum(rows.values()), size_bytes=size_bytes, oldest_ms=None)
    if "received" in state:  # a join's
        slices = [one for side in ("left", "right", "waiting") for one in state.get(side, ())]
        changes, *_ = state.get("changes", [[]])
        rows_held = sum(one[1] for one in (*slices, *changes))
        oldest_ms = min((one[3] for one in slices), default=None)
        return Summary(frames=None, rows=rows_held, size_bytes=size_bytes, oldest_ms=oldest_ms)
    if "accounts" in state:  # a join's of windows: what was taken of either side, less what has gone
        counts = state["accounts"]
        gone = sum(one.get(name, 0) for one in counts for name in ("expired", "dropped_messages"))
        taken = sum(one.get("taken", 0) for one in counts)
        return Summary(frames=None, rows=taken - gone, size_bytes=size_bytes, oldest_ms=None)
    rows_held = sum(count for name, count in rows.items() if name.startswith(FRAME))
    return Summary(frames=len(starts), rows=rows_held, size_bytes=size_bytes, oldest_ms=min(starts, default=None))
