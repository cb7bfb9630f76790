"""The note of a join of windows; see `keyedwm.operators.state.note`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.operators.messages.join.description import digest
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.state.note import NoteFormat
from keyedwm.operators.state.store import BlobStore

VERSION = 2
_FORMAT = NoteFormat(
    state="window join", version=VERSION, readable=(VERSION,),
    unchanged="windows, sides, their columns, the columns joined on, how, keep, emit, what completes a window, and "
    "whether pairs come early or late ones together",
)  # fmt: skip


def note(plan: WindowJoinPlan, facts: Mapping[str, Any]) -> bytes:
    """Return the note of an operator."""
    return _FORMAT.write(digest(plan), facts)


def read_note(plan: WindowJoinPlan, store: BlobStore) -> dict[str, Any]:
    """Return the facts of a store's note; see `NoteFormat.read`."""
    return _FORMAT.read(digest(plan), store)
