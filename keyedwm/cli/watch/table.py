"""A picture as a terminal shows it: some lines about the query and each source, and its partitions, slowest first.

Rule: 80 columns are enough; what does not fit in height is counted, not cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyedwm.arrow.instants import iso_text
from keyedwm.cli.query.picture import Holder, PartitionPicture, Picture, SourcePicture, WatermarkPicture
from keyedwm.core.text import printable
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.holding import Cause

_MOST_NAMED = 3
_WIDE = 120  # columns, from which on a row has more than what tells why the watermark waits
_WIDE_NAME, _NARROW_NAME = 40, 22
_LEAST_ROWS = 3
_S, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_UNKNOWN = "?"


def layout(picture: Picture, before: Picture | None = None, *, width: int, height: int | None = None) -> RenderableType:
    """Lay a picture out. before: an earlier one, for rows/s. height: lines that there are, None for as many as needed.

    width: columns that there are. With several sources each gets its share of the height.
    """
    heads = [_query_lines(picture), *(_source_lines(source, picture.taken_ms) for source in picture.sources)]
    rows = None
    if height is not None:
        used = sum(map(len, heads)) + 2 * len(picture.sources)  # the head of a table, and what it leaves out
        keys = max((len(one.watermarks) for one in picture.sources), default=1)  # a row has a line for each
        rows = max(_LEAST_ROWS, (height - used) // (len(picture.sources) * keys))
    parts: list[RenderableType] = [*heads[0]]
    for source, lines in zip(picture.sources, heads[1:], strict=True):
        rates = _rates(source, picture, before)
        parts += [*lines, _table(source.partitions[:rows], picture.taken_ms, rates, is_wide=width >= _WIDE)]
        if rows is not None and len(source.partitions) > rows:
            parts.append(_line(f"{len(source.partitions) - rows} more partitions, which are not slower"))
    return Group(*parts)


def _query_lines(picture: Picture) -> list[Text]:
    committed = "no batch committed yet"
    if picture.committed_batch is not None:
        committed = f"committed batch {picture.committed_batch}, {_ago(picture.committed_ms, picture.taken_ms)}"
    lines = [
        _line(f"{_time(picture.taken_ms)} {picture.checkpoint}"),
        _line(f"planned batch {picture.planned_batch}, {committed}{_published(picture)}"),
    ]
    if picture.trouble:
        lines.append(_line(f"the broker does not answer: {picture.trouble}"))
    return lines


def _published(picture: Picture) -> str:
    one = picture.publication
    if one is None:
        return ""
    return f"; the sink's ledger: batch {one.batch}, {'published' if one.is_published else 'decided'}"


def _source_lines(source: SourcePicture, taken_ms: int) -> list[Text]:
    idle = sum(one.status is Status.IDLE for one in source.partitions)
    backlogs = [one.backlog for one in source.partitions]
    known = [backlog for backlog in backlogs if backlog is not None]
    backlog = f"backlog {sum(known)}" if known else "backlog not known"
    late, unreadable, future, resets = (
        sum(getattr(one, name) for one in source.partitions) for name in ("late", "unreadable", "future", "resets")
    )
    lines = [
        _line(
            f"source {source.source}: planned {_ago(source.planned_ms, taken_ms)}, {len(source.partitions)} partitions,"
            f" {idle} idle, {backlog}"
        ),
        _line(f"late {late}, unreadable {unreadable}, future {future}, resets {resets}"),
    ]
    before = sum(not one.is_current for one in source.partitions)
    if before:
        lines.append(_line(f"{before} partitions show their watermarks and counts as of the start of this batch"))
    if source.coordinator:
        lines.append(_line(f"the consumer group cannot be read: {source.coordinator}"))
    for watermark in source.watermarks:
        lines += _held(watermark, taken_ms)
    return lines


def _held(watermark: WatermarkPicture, taken_ms: int) -> list[Text]:
    """Say a watermark in a line, and of each cause in another who holds it."""
    name = f"watermark {watermark.key}" if watermark.key else "watermark"
    unmoved = f", unmoved for {_span(max(taken_ms - watermark.unmoved_since_ms, 0))}"
    lines = [_line(f"{name}: {_time(watermark.watermark_ms)}{_lag(watermark.watermark_ms, taken_ms)}{unmoved}")]
    if not watermark.held_by:
        lines.append(_line("  held by nobody: no partition is active"))
    ordered = sorted(watermark.held_by, key=lambda holder: holder.cause.value)
    for cause, same in groupby(ordered, key=lambda holder: holder.cause):
        lines.append(_line("  " + _holders(cause, list(same), taken_ms)))
    return lines


def _lag(time_ms: int | None, now_ms: int) -> str:
    if time_ms is None:
        return ""
    side = "behind" if time_ms <= now_ms else "ahead of"
    return f", {_span(abs(now_ms - time_ms))} {side} the clock"


def _holders(cause: Cause, holders: list[Holder], taken_ms: int) -> str:
    names = ", ".join(str(holder.channel) for holder in holders[:_MOST_NAMED])
    more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    since = [holder.since_ms for holder in holders if holder.since_ms is not None]
    when = f", since {_short(min(since))} ({_ago(min(since), taken_ms)})" if since else ""
    return f"held by {names}{more}: {cause.value}{when}"


def _table(
    partitions: Sequence[PartitionPicture], taken_ms: int, rates: Mapping[TopicPartition, float], *, is_wide: bool
) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("partition", no_wrap=True)
    numbers = (*(("position", "log end") if is_wide else ()), "backlog", "behind", *(("rows/s",) if rates else ()))
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("watermark", "idle", *(("last record",) if is_wide else ())):
        table.add_column(name, no_wrap=True)
    for name in ("late", "bad"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in partitions:
        rate = [f"{rates[one.channel]:.0f}" if one.channel in rates else _UNKNOWN] if rates else []
        table.add_row(
            _name(one.channel, _WIDE_NAME if is_wide else _NARROW_NAME),
            *([str(one.position), _or_unknown(one.log_end)] if is_wide else []),
            _or_unknown(one.backlog), _span(one.behind_ms), *rate, _watermarks(one),
            _span(None if one.idle_since_ms is None else max(taken_ms - one.idle_since_ms, 0), none="no"),
            *([_short(one.last_record_ms)] if is_wide else []), str(one.late), str(one.unreadable),
        )  # fmt: skip
    return table


def _name(channel: TopicPartition, width: int) -> str:
    """Show a long name by its end: the number of the partition stands there."""
    name = printable(str(channel))
    return name if len(name) <= width else f"…{name[1 - width :]}"


def _rates(source: SourcePicture, picture: Picture, before: Picture | None) -> dict[TopicPartition, float]:
    """Rows a second that each partition was read by, since the picture before."""
    if before is None or before.taken_ms >= picture.taken_ms:
        return {}
    seconds = (picture.taken_ms - before.taken_ms) / _S
    known = {one.channel: one.position for of in before.sources if of.group == source.group for one in of.partitions}
    return {
        one.channel: (one.position - known[one.channel]) / seconds for one in source.partitions if one.channel in known
    }


def _watermarks(one: PartitionPicture) -> str:
    if set(one.watermarks_ms) <= {0}:
        return _short(one.watermarks_ms.get(0))
    return "\n".join(f"{key}: {_short(ms)}" for key, ms in sorted(one.watermarks_ms.items()))


def _line(text: str) -> Text:
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _time(time_ms: int | None) -> str:
    return "none" if time_ms is None else iso_text(time_ms) or f"{time_ms} ms"


def _short(time_ms: int | None) -> str:
    """Show a time to the second, in 19 characters."""
    return _time(time_ms)[:19].replace("T", " ")


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "time not known" if time_ms is None else f"{_span(max(now_ms - time_ms, 0))} ago"


def _span(span_ms: int | None, none: str = _UNKNOWN) -> str:
    """Show a span in the largest unit of which it has two, in a few characters."""
    if span_ms is None:
        return none
    for unit_ms, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_S, "s")):
        if span_ms >= 2 * unit_ms:
            return f"{span_ms // unit_ms} {name}"
    return f"{span_ms} ms" if span_ms else "0"


def _or_unknown(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)
