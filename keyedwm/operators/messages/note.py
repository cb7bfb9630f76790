"""The note of a window store; see `keyedwm.operators.state.note`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.operators.messages.description import digest
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.state.note import NoteFormat
from keyedwm.operators.state.store import BlobStore

VERSION = 2
_FORMAT = NoteFormat(
    state="window store", version=VERSION, readable=(VERSION,),
    unchanged="windows, by columns, aggregates, the messages' columns, what completes a window, early panes, what late "
    "panes wait for and accumulating",
)  # fmt: skip


def note(plan: StorePlan, facts: Mapping[str, Any]) -> bytes:
    """Return the note of an operator."""
    return _FORMAT.write(digest(plan), facts)


def read_note(plan: StorePlan, store: BlobStore) -> dict[str, Any]:
    """Return the facts of a store's note; see `NoteFormat.read`."""
    return _FORMAT.read(digest(plan), store)
