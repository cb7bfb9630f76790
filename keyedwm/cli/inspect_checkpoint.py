"""The keyedwm sources of a checkpoint's query: where each channel stands and which of them holds the watermark.

Rule: read from Spark's offset log alone, so it works for every sink, and while the query is stopped. The watermarks are
those at the start of the newest planned batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from keyedwm.arrow.instants import iso_text
from keyedwm.core.errors import FormatError
from keyedwm.core.text import one_line
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.checkpoint import sources_of
from pyspark_wm_source.values.offsets import Channel, QueryOffset


def is_checkpoint(directory: Path) -> bool:
    """Whether a query of Spark was started with this checkpoint; its first file is `metadata`."""
    return (directory / "offsets").is_dir() or (directory / "metadata").is_file()


def print_checkpoint(out: Console, directory: Path) -> bool:
    """Print the sources of the newest planned batch; False if there is none of keyedwm."""
    newest = max(_batches(directory / "offsets"), default=None)
    if newest is None:
        out.print(one_line(f"checkpoint {directory}: no batch was planned yet"), highlight=False, soft_wrap=True)
        return True
    sources = list(_sources(directory / "offsets" / str(newest)))
    done = "committed" if newest in _batches(directory / "commits") else "planned, not committed yet"
    for number, planned in sources:
        told = f"checkpoint {directory}: batch {newest}, {done}; source {number}, group {planned.group}"
        out.print(one_line(told), highlight=False, soft_wrap=True)
        if planned.outage:
            out.print(
                one_line(f"the group's coordinator did not answer: {planned.outage}"), highlight=False, soft_wrap=True
            )
        if not planned.channels:
            out.print("no partition is selected: its topics, or those of its pattern, are not there", highlight=False)
        for key in _keys(planned):
            out.print(one_line(_summary(planned, key)), highlight=False, soft_wrap=True)
        out.print(_table(planned))
    return bool(sources)


def _batches(log: Path) -> list[int]:
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _sources(path: Path) -> Iterator[tuple[int, QueryOffset]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read as an offset log of Spark: {error}") from error
    yield from ((number, planned) for number, planned in sources_of(text) if planned is not None)


def _keys(planned: QueryOffset) -> list[int]:
    return sorted({key for channel in planned.channels.values() for key in channel.axes} or {0})


def _summary(planned: QueryOffset, key: int) -> str:
    """Say the coalesced watermark of a key, and all active channels that hold it there, in order."""
    active = {tp: _emitted_ms(c, key) for tp, c in planned.channels.items() if c.status is Status.ACTIVE}
    none = sorted(tp for tp, ms in active.items() if ms is None)
    lowest_ms = min((ms for ms in active.values() if ms is not None), default=None)
    holders = none or sorted(tp for tp, ms in active.items() if ms == lowest_ms)
    name = f"watermark {key}" if key else "watermark"
    if not holders:
        return f"{name}: {_shown(planned.watermark_ms(key))}, no channel is active"
    one = len(holders) == 1
    has, is_ = ("has", "is") if one else ("have", "are")
    why = f"{has} none" if none else f"{is_} lowest, at {_shown(lowest_ms)}"
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


def _emitted_ms(channel: Channel, key: int) -> int | None:
    return channel.axes[key].emitted_ms if key in channel.axes else None


def _shown(time_ms: int | None) -> str:
    return "none" if time_ms is None else iso_text(time_ms) or f"{time_ms} ms"
