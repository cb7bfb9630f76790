"""The keyedwm sources of a checkpoint's query: where each channel stands and which of them holds the watermark.

Rule: read from Spark's offset log alone, so it works for every sink, and while the query is stopped. The watermarks are
those at the start of the newest planned batch.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from keyedwm.arrow.instants import iso_text
from keyedwm.cli.query.log import newest_planned
from keyedwm.core.text import one_line
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files
from pyspark_wm_source.values.holding import emitted_ms, holders_of, keys_of
from pyspark_wm_source.values.offsets import Channel, QueryOffset


def print_checkpoint(out: Console, files: Files) -> bool:
    """Print the sources of the newest planned batch; False if there is none of keyedwm."""
    newest = newest_planned(files)
    if newest is None:
        out.print(one_line(f"checkpoint {files.place}: no batch was planned yet"), highlight=False, soft_wrap=True)
        return True
    done = "committed" if newest.is_committed else "planned, not committed yet"
    for number, planned in newest.sources.items():
        line = f"checkpoint {files.place}: batch {newest.number}, {done}; source {number}, group {planned.group}"
        out.print(one_line(line), highlight=False, soft_wrap=True)
        if planned.outage:
            out.print(
                one_line(f"the group's coordinator did not answer: {planned.outage}"), highlight=False, soft_wrap=True
            )
        if not planned.channels:
            out.print("no partition is selected: its topics, or those of its pattern, are not there", highlight=False)
        for key in keys_of(planned.channels):
            out.print(one_line(_summary(planned, key)), highlight=False, soft_wrap=True)
        out.print(_table(planned))
    return bool(newest.sources)


def _summary(planned: QueryOffset, key: int) -> str:
    """Say the coalesced watermark of a key, and all active channels that hold it there, in order."""
    holders = holders_of(planned.channels, key)
    lowest_ms = emitted_ms(planned.channels[holders[0]], key) if holders else None
    name = f"watermark {key}" if key else "watermark"
    if not holders:
        return f"{name}: {_shown(planned.watermark_ms(key))}, no channel is active"
    one = len(holders) == 1
    has, is_ = ("has", "is") if one else ("have", "are")
    why = f"{has} none" if lowest_ms is None else f"{is_} lowest, at {_shown(lowest_ms)}"
    return f"{name}: {_shown(planned.watermark_ms(key))}, held by {', '.join(map(str, holders))}, which {why}"


def _table(planned: QueryOffset) -> Table:
    table = Table(
        "channel", "next offset", "status", "watermark", "last news", "null event times", "late events",
        title=f"Channels at the start of batch {planned.batch} of the source",
    )  # fmt: skip
    for tp, channel in sorted(planned.channels.items()):
        table.add_row(*_row(tp, channel))
    return table


def _row(tp: TopicPartition, channel: Channel) -> tuple[str, ...]:
    marks = [
        f"{key}: {_shown(axis.emitted_ms)}" if len(channel.axes) > 1 else _shown(axis.emitted_ms)
        for key, axis in sorted(channel.axes.items())
    ]
    return (
        one_line(str(tp)), str(channel.start), channel.status.name.lower(), "\n".join(marks) or "none",
        _shown(channel.since_ms), str(channel.counts.bad), str(channel.counts.late),
    )  # fmt: skip


def _shown(time_ms: int | None) -> str:
    return "none" if time_ms is None else iso_text(time_ms) or f"{time_ms} ms"
