"""What the state of windows on demand holds, read from its blobs; see `held`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from keyedwm.arrow.columns import contiguous, millis
from keyedwm.operators.messages import held
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.held_by_key import ADDED, CHANNEL, COMPLETE, EDGES
from keyedwm.operators.messages.listed_keys import key_column, key_columns
from keyedwm.operators.messages.opened_members import in_key_order, listed
from keyedwm.operators.messages.opened_windows import OPENED, Opened, OpenedWindows
from keyedwm.operators.messages.timeline import LOWEST
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.store import logs_of

# What is needed of a bucket's blobs.
BLOBS = (OPENED, held.MESSAGES)


def windows(told: Mapping[str, Any], facts: Mapping[str, Any], blobs: Mapping[str, bytes]) -> pa.Table | None:
    """Return the windows that a bucket holds, key by key: one row for each topic and partition; None if it has none.

    Columns: `key_columns`, start and end in ms, topic, partition, first_offset, last_offset, messages, bytes,
    is_complete. facts: the store's note of the bucket. blobs: its log of windows, and its messages.
    """
    logs = logs_of(blobs)
    tables = logs.read(OPENED)
    kept = [held.messages(name, blob) for name, blob in blobs.items() if name.startswith(held.MESSAGES)]
    if not tables or not kept:
        return None
    opened = OpenedWindows(Opened.key_fields(tables[0]), logs)
    channels = Channels(tuple(told["record"]), facts["channels"])
    size = told["grid"][0]
    known = opened.rows.take(opened.rows.starts + size - 1 > facts["border"])
    rows = pa.concat_tables(kept)
    messages = in_key_order(rows, millis(contiguous(rows[told["time"]])), opened.numbers(rows), channels)
    keys, starts, numbers = listed(opened, known, messages, channels, size)
    named = [[one[place] for one in facts["channels"]] for place in range(2)]
    mine = {key_column(number): column for number, column in enumerate(opened.keys.columns(keys))}
    complete = facts.get("axes", {}).get("0", {}).get("horizon", LOWEST)
    columns = {
        "start": pa.array(starts), "end": pa.array(starts + size),
        "topic": pa.array(named[0], pa.string()).take(pa.array(numbers[0])),
        "partition": pa.array(named[1], pa.int32()).take(pa.array(numbers[0])),
        **dict(zip(ADDED, map(pa.array, numbers[1:]), strict=True)),
        COMPLETE: pa.array(starts + size <= complete),
    }  # fmt: skip
    return pa.table({**{name: column for name, column in mine.items() if name in key_columns(told)}, **columns})


def schema_of(told: Mapping[str, Any], name: str, blob: bytes) -> pa.Schema:
    """Return the columns of `windows`; name, blob: a part of a bucket's log of windows."""
    fields = Opened.key_fields(read_stored(name, blob))
    keys = [one.with_name(key_column(number)) for number, one in enumerate(fields)]
    numbers = [pa.field(one, pa.int64()) for one in (*EDGES, *ADDED)]
    channel = [pa.field(CHANNEL[0], pa.string()), pa.field(CHANNEL[1], pa.int32())]
    known = [one for one in keys if one.name in key_columns(told)]
    return pa.schema([*known, *numbers[:2], *channel, *numbers[2:], pa.field(COMPLETE, pa.bool_())])
