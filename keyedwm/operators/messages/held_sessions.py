"""What the state of sessions that keep their messages holds, read from its blobs; see `held`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import contiguous, millis
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.listed_keys import key_column, key_columns
from keyedwm.operators.messages.marks import OF_SESSIONS, is_marked
from keyedwm.operators.messages.sessions import OpenSessions, Parts
from keyedwm.operators.state.store import logs_of
from keyedwm.operators.summary import Summary

INDEX = "sessions"


def of_sessions(told: Mapping[str, Any]) -> bool:
    """Return whether the windows of a plan are sessions; told: of the plan."""
    return is_marked(told, OF_SESSIONS)


def windows(
    told: Mapping[str, Any], buckets: Iterable[tuple[Mapping[str, Any], Mapping[str, bytes]]]
) -> pa.Table | None:
    """Return the sessions that are held, in order of end: by columns (`key_columns`), start and end in ms, and what is
    known of each.

    One row for each session, topic and partition; None if there never was one. buckets: the store's note of each, and
    its log of sessions.
    """
    tables = [_listed(told, facts, held) for facts, blobs in buckets if (held := _sessions(blobs)) is not None]
    return pa.concat_tables(tables).sort_by([("end", "ascending")]) if tables else None


def messages(told: Mapping[str, Any], blobs: Mapping[str, bytes], rows: pa.Table) -> pa.Table:
    """Return those of some messages of a bucket that are held still; blobs: the log of sessions."""
    held = _sessions(blobs)
    if held is None:
        return rows.slice(0, 0)
    at = millis(contiguous(rows[told["time"]]))
    return rows.filter(pa.array(held.sessions.owners(held.numbers(rows), at) >= 0))


def summary(blobs: Mapping[str, int], facts: Mapping[str, Any]) -> Summary:
    """Return what a bucket holds, from its notes alone; `frames` are the sessions, and `rows` the messages."""
    sessions, rows, oldest_ms = facts.get("open", (0, 0, 0))
    return Summary(
        frames=sessions, rows=rows, size_bytes=sum(blobs.values()), oldest_ms=oldest_ms if sessions else None
    )


def _listed(told: Mapping[str, Any], facts: Mapping[str, Any], held: OpenSessions) -> pa.Table:
    parts = held.parts
    named = [[one[place] for one in facts["channels"]] for place in range(2)]
    numbers = {
        "first_offset": parts.first, "last_offset": parts.last, "messages": parts.rows, "bytes": parts.sizes,
    }  # fmt: skip
    keys = {key_column(number): column for number, column in enumerate(held.keys.columns(parts.keys))}
    columns = {
        **{name: column for name, column in keys.items() if name in key_columns(told)},
        "start": pa.array(parts.starts), "end": pa.array(parts.ends),
        "topic": pa.array(named[0], pa.string()).take(pa.array(parts.channels)),
        "partition": pa.array(named[1], pa.int32()).take(pa.array(parts.channels)),
        **{name: pa.array(column) for name, column in numbers.items()},
        "is_complete": pa.array(parts.ends <= facts["complete"]),
    }  # fmt: skip
    ranks = Channels(("topic", "partition", "offset"), facts["channels"]).ranks()[parts.channels]
    order = np.lexsort((ranks, held.keys.ranks(parts.keys), parts.starts, parts.ends))
    return pa.Table.from_arrays(list(columns.values()), list(columns)).take(pa.array(order))


def _sessions(blobs: Mapping[str, bytes]) -> OpenSessions | None:
    """What is known of each session, None if nothing ever was."""
    logs = logs_of(blobs)
    tables = logs.read(INDEX)
    return OpenSessions(Parts.key_fields(tables[0]), logs, INDEX) if tables else None
