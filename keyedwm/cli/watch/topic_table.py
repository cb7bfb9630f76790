"""A topic for a terminal: its ends, their growth, and the partitions that would block a watermark."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyedwm.arrow.instants import time_text
from keyedwm.cli.query.topic import EndPicture, TopicPicture
from keyedwm.cli.watch.texts import UNKNOWN, against_clock, line, name_of, second_text, span, whole
from keyedwm.cli.watch.view import View
from keyedwm.core.text import listed

_NAME = 30
_LEAST_ROWS = 3
_S = 1_000
_MOST_NAMED = 3


def topic_layout(picture: TopicPicture, before: TopicPicture | None = None, *, width: int, rows: int | None = None,
                 first: int = 0, needle: str = "") -> RenderableType:  # fmt: skip
    """Return the lines of a picture. before: an earlier picture, for rows/s. width: the terminal's columns.

    rows: the number of partitions shown, from `first` on; None: all.
    """
    partitions = [one for one in picture.partitions if needle.lower() in str(one.channel).lower()]
    begin = 0 if rows is None else max(min(first, len(partitions) - rows), 0)
    page = partitions[begin:] if rows is None else partitions[begin : begin + rows]
    parts: list[RenderableType] = [*_head(picture, width), _table(page, picture, before)]
    if len(page) < len(picture.partitions):
        parts.append(
            line(f"partitions {min(begin + 1, begin + len(page))} to {begin + len(page)} of {len(partitions)}")
        )
    return Group(*parts)


def topic_page(
    picture: TopicPicture, before: TopicPicture | None, *, width: int, height: int, view: View
) -> tuple[RenderableType, int]:
    """Return a picture in `height` lines, keys in the last line, and the number of partitions that fit."""
    rows = max(_LEAST_ROWS, height - len(_head(picture, width)) - 3)
    content = topic_layout(picture, before, width=width, rows=rows, first=view.first, needle=view.needle)
    keys = (
        f"filter: {view.needle}_   Enter: keep   Esc: none" if view.is_typing else "q end  / filter  ↑↓ PgUp PgDn Home"
    )
    return Group(content, line(keys)), rows


def _head(picture: TopicPicture, width: int) -> list[Text]:
    records = sum(one.end - one.first for one in picture.partitions)
    lines = [
        line(f"{time_text(picture.taken_ms)} topic {picture.topic}"),
        line(f"{len(picture.partitions)} partitions, {records} offsets; by record timestamps (eventTime=timestamp):"),
    ]
    if picture.trouble is not None:
        lines += whole(f"the broker does not answer: {picture.trouble}", width)
    if not picture.are_times_known:
        return [*lines, line("  the brokers do not report timestamps (Kafka 3.0 and later do)")]
    known = [one.newest_ms for one in picture.partitions if one.newest_ms is not None]
    lowest = None if len(known) < len(picture.partitions) else min(known)
    highest = max(known, default=None)
    ahead = against_clock(highest, picture.taken_ms)
    names = listed([name_of(one.channel, _NAME) for one in picture.holders], _MOST_NAMED)
    since = f", whose newest record is of {second_text(lowest)}" if lowest is not None else ", without any record"
    return [
        *lines,
        line(f"  lowest of the partitions: {time_text(lowest)}{against_clock(lowest, picture.taken_ms)}"),
        *whole(f"  held by {names}{since}", width),
        *whole(f"  highest of all, as one watermark has it: {time_text(highest)}{ahead}", width),
    ]


def _table(partitions: Sequence[EndPicture], picture: TopicPicture, before: TopicPicture | None) -> Table:
    ends = {} if before is None else {one.channel: one.end for one in before.partitions}
    seconds = 0.0 if before is None else (picture.taken_ms - before.taken_ms) / _S
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("partition", no_wrap=True)
    for name in ("offsets", "log end", "open", *(("rows/s",) if ends else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("newest record", "silent"):
        table.add_column(name, no_wrap=True)
    for one in partitions:
        rate = f"{(one.end - ends[one.channel]) / seconds:.0f}" if one.channel in ends and seconds > 0 else UNKNOWN
        silent = None if one.newest_ms is None else max(picture.taken_ms - one.newest_ms, 0)
        table.add_row(
            name_of(one.channel, _NAME), str(one.end - one.first), str(one.end), str(one.uncommitted),
            *([rate] if ends else []), second_text(one.newest_ms), span(silent, none="-"),
        )  # fmt: skip
    return table
