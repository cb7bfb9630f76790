"""What a committed reader sees, against the exact reference; and that nothing is late by a promise that was given."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.watermark import Status
from tests.system.world.query import Query


def difference(expected: list[str], seen: list[str]) -> str:
    """The first few values that make the difference."""
    lost = sorted(set(expected) - set(seen))
    doubled = sorted({value for value in seen if seen.count(value) > 1})
    strange = sorted(set(seen) - set(expected))
    return (
        f"{len(seen)} records for {len(expected)}; lost {lost[:3]}, twice {doubled[:3]}, unexpected {strange[:3]}"
        + ("" if lost or doubled or strange else ", in another order")
    )


def late(query: Query, excused: set[str]) -> str | None:
    """No event of a batch is below its own channel's watermark. excused: the values of those that may be."""
    promised: dict[str, int] = {}
    holding = _holding(query)
    for (batch, _), table in sorted(query.rows.items()):
        columns = (table[name].to_pylist() for name in ("control", "topic", "partition", "offset", "value"))
        times = (_ms(table, name) for name in ("event_time", "watermark"))
        for control, topic, partition, offset, value, event_ms, stamp_ms in zip(*columns, *times, strict=True):
            if control is None:
                if value.decode() in excused:
                    continue
                channel = f"{topic}-{partition}"
                if event_ms < promised.get(channel, event_ms):
                    return f"batch {batch}: {channel} offset {offset} is late by its own channel's watermark"
                if (batch, channel) in holding and stamp_ms is not None and event_ms < stamp_ms:
                    return f"batch {batch}: {channel} offset {offset} is late by the coalesced watermark"
            elif control["kind"] == "reset":
                promised.pop(control["channel"], None)
            elif control["kind"] == "watermark" and control["channel"] is not None:
                told_ms = round(control["watermark"].timestamp() * 1_000)
                if told_ms < promised.get(control["channel"], told_ms):
                    return f"batch {batch}: the watermark of {control['channel']} goes back"
                promised[control["channel"]] = max(told_ms, promised.get(control["channel"], told_ms))
    return None


def _ms(table: pa.Table, name: str) -> list[int | None]:
    column = table[name]
    return pc.cast(column.cast(pa.timestamp("ms", column.type.tz), safe=False), pa.int64()).to_pylist()


def _holding(query: Query) -> set[tuple[int, str]]:
    """(batch, channel) of the channels that hold the coalesced watermark: not idle, nor behind it after a spell.

    Nor is one that came later, until it has caught up: the coalesced watermark does not go back for a new partition.
    """
    found, trailing, known = set(), set(), set()
    for batch, text in enumerate(query.checkpoint.offsets):
        offset = json.loads(text)
        coalesced = dict(offset["coalesced"]["emitted"]).get(0)
        for topic, channels in offset["channels"].items():
            for partition, entry in channels.items():
                channel = f"{topic}-{partition}"
                axes = [part for part in entry[1:] if isinstance(part, list) and part]
                own = axes[-1][1] if axes else None
                if entry[1] == Status.IDLE.value:
                    trailing.add(channel)
                elif coalesced is None or (own is not None and own >= coalesced):
                    trailing.discard(channel)
                elif channel not in known:
                    trailing.add(channel)
                known.add(channel)
                if channel not in trailing:
                    found.add((batch, channel))
    return found
