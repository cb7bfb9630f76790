"""Operators at rest: named blobs, one for each frame, pane book or slice of sessions, and a small note.

Rule: a blob is rewritten only if what it holds was touched. Every note carries the format's version and the plan's
digest; what was written by another version or for another plan is refused, never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from keyedwm.core.errors import FormatError
from keyedwm.windows.plan import Plan

VERSION = 1
NOTE = "note"


def packed(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def unpacked(blob: bytes) -> pa.Table:
    """The reverse of `packed`."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def note(plan: Plan, facts: Mapping[str, int | None]) -> tuple[str, bytes]:
    """The note of an operator, a named blob: its facts, the version and the plan."""
    return NOTE, json.dumps({"version": VERSION, "plan": plan.digest(), **facts}, sort_keys=True).encode()


def read_note(plan: Plan, state: Mapping[str, bytes]) -> dict[str, int | None]:
    """The facts of the note among these blobs; FormatError if it is not this version's and this plan's."""
    try:
        told = json.loads(state[NOTE])
    except (KeyError, ValueError) as error:
        raise FormatError(f"the window state holds {', '.join(sorted(state))}, but no {NOTE} in JSON") from error
    if told.get("version") != VERSION:
        raise FormatError(f"the window state is of version {told.get('version')}, this is version {VERSION}")
    if told.get("plan") != plan.digest():
        raise FormatError(
            f"the window state belongs to plan {told.get('plan')}, this is plan {plan.digest()}: windows, by columns, "
            "aggregates and late settings must stay as they were"
        )
    return told


class Changes:
    """Which blobs were touched, and which are gone, since the last question."""

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self.gone: set[str] = set()

    def touch(self, names: Iterable[str]) -> None:
        """These hold something new."""
        names = set(names)
        self.touched |= names
        self.gone -= names

    def forget(self, names: Iterable[str]) -> None:
        """These are no more."""
        names = set(names)
        self.touched -= names
        self.gone |= names

    def taken(self) -> tuple[set[str], set[str]]:
        """The answer, and a new beginning."""
        answer = self.touched, self.gone
        self.touched, self.gone = set(), set()
        return answer
