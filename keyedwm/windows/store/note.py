"""The note of a window store; see `keyedwm.windows.state.note`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.windows.state.note import NoteFormat
from keyedwm.windows.state.store import BlobStore
from keyedwm.windows.store.plan import StorePlan

VERSION = 1
_FORMAT = NoteFormat(
    state="window store", version=VERSION, readable=(VERSION,),
    unchanged="windows, by columns, aggregates, the messages' columns, what completes a window, early panes, what late "
    "panes wait for and accumulating",
)  # fmt: skip


def note(plan: StorePlan, facts: Mapping[str, Any]) -> bytes:
    """Return the note of an operator."""
    return _FORMAT.write(plan.digest, facts)


def read_note(plan: StorePlan, store: BlobStore) -> dict[str, Any]:
    """Return the facts of a store's note; see `NoteFormat.read`."""
    return _FORMAT.read(plan.digest, store)
