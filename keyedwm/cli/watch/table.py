"""A picture for a terminal: some lines about the query and each source, and its partitions, slowest first.

Rule: 80 columns are enough; rows that do not fit in the height are counted, not cut off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyedwm.arrow.instants import time_text
from keyedwm.cli.query.alike import slowest_of, title_of
from keyedwm.cli.query.picture import (
    Holder,
    OperatorPicture,
    PartitionPicture,
    Picture,
    SourcePicture,
    WatermarkPicture,
)
from keyedwm.cli.query.tables import DELTA
from keyedwm.cli.watch.texts import (
    UNKNOWN,
    against_clock,
    ago,
    line,
    name_of,
    or_unknown,
    second_text,
    size,
    span,
    whole,
)
from keyedwm.cli.watch.view import FIRST_VIEW, View
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.holding import Cause


def state_lines(picture: Picture) -> list[Text]:
    """Return lines about the operators' state, if it was requested."""
    state = picture.state
    if state is None:
        return []
    when = ago(state.taken_ms, picture.taken_ms)
    if state.trouble is not None:
        return [line(f"state ({when}): it cannot be read: {state.trouble}")]
    if not state.operators:
        return [line(f"state ({when}): no aggregate, processor or join")]
    return [line(_operator_line(one, when)) for one in state.operators]


def _operator_line(one: OperatorPicture, when: str) -> str:
    slices = "" if one.windows is None else f"{one.windows} open slices of time, "
    oldest = "" if one.oldest_ms is None else f", oldest {second_text(one.oldest_ms)}"
    largest = f"largest of {one.buckets} buckets {size(one.largest_bytes)} (number {one.largest})"
    return f"{one.kind} {one.name} ({when}): {slices}{one.rows} rows, {size(one.state_bytes)}, {largest}{oldest}"


_MOST_NAMED = 3
_WIDE = 120  # from this width on, a row also has the position, the log end and the last record
_WIDE_NAME, _NARROW_NAME = 40, 22
_LEAST_ROWS = 3
_S = 1_000
_SILENT_MS = 60 * _S  # after this time without a batch, though one is possible, the view says so


def layout(picture: Picture, before: Picture | None = None, *, width: int, view: View = FIRST_VIEW) -> RenderableType:
    """Return a picture in as many lines as it needs.

    before: an earlier picture, for rows/s. width: the terminal's columns.
    """
    return _laid_out(picture, before, width=width, view=view, rows=None)


def page(
    picture: Picture, before: Picture | None, *, width: int, height: int, view: View
) -> tuple[RenderableType, int]:
    """Return a picture in `height` lines, the last with the keyboard's keys, and the number of partitions that fit.

    Several sources share the height. Each source shows at least `_LEAST_ROWS` partitions, even in more lines.
    """
    sources = _slowest(picture)
    heads = [_query_lines(picture, width), *(_source_lines(source, picture, width) for source in sources)]
    heads.append(state_lines(picture))
    count = len(sources)
    # Each table has a head, and a line with the part that is shown; the keyboard's keys are the last line.
    lines_used = sum(map(len, heads)) + 2 * count + 1
    row_lines = max((len(one.watermarks) for one in sources), default=1)  # a line for each watermark key
    rows = max(_LEAST_ROWS, (height - lines_used) // (count * row_lines))
    content = _laid_out(picture, before, width=width, view=view, rows=rows)
    return Group(content, line(view.foot())), rows


def _laid_out(
    picture: Picture, before: Picture | None, *, width: int, view: View, rows: int | None
) -> RenderableType:  # fmt: skip
    parts: list[RenderableType] = [*_query_lines(picture, width), *state_lines(picture)]
    for source in _slowest(picture):
        partitions = view.selected(source.partitions)
        window = view.window(len(partitions), len(partitions) if rows is None else rows)
        rates = _rates(source, picture, before)
        parts += _source_lines(source, picture, width)
        parts.append(_table(partitions[window], picture.taken_ms, rates, width))
        if len(partitions[window]) < len(source.partitions):
            total = (
                f"{len(partitions)} of {len(source.partitions)}"
                if len(partitions) < len(source.partitions)
                else len(partitions)
            )
            last = window.start + len(partitions[window])
            parts.append(
                line(f"partitions {min(window.start + 1, last)} to {last} of {total}, {view.sort.value} first")
            )
    return Group(*parts)


def _query_lines(picture: Picture, width: int) -> list[Text]:
    committed = "no batch committed yet"
    if picture.committed_batch is not None:
        committed = f"committed batch {picture.committed_batch}, {ago(picture.committed_ms, picture.taken_ms)}"
    lines = [
        line(f"{time_text(picture.taken_ms)} {picture.checkpoint}"),
        line(f"planned batch {picture.planned_batch}, {committed}"),
        *_stopped(picture),
        *_failed(picture, width),
        *_published(picture, width),
    ]
    if picture.trouble:
        lines += whole(f"the broker does not answer: {picture.trouble}", width)
    return lines


def _stopped(picture: Picture) -> list[Text]:
    """Return a line if no query reads the backlog: a checkpoint does not record the end of a query."""
    if picture.committed_ms is None or picture.committed_batch != picture.planned_batch:
        return []
    silent_ms = picture.taken_ms - picture.committed_ms
    if silent_ms < _SILENT_MS or not any(part.backlog for source in picture.sources for part in source.partitions):
        return []
    return [line(f"no batch for {span(silent_ms)}, and records wait: the query stopped or its trigger waits")]


def _failed(picture: Picture, width: int) -> list[Text]:
    """Return lines about a batch that has run for long, and the last error."""
    error, planned_ms = picture.last_error, max((one.planned_ms for one in picture.sources), default=picture.taken_ms)
    ran_ms = picture.taken_ms - planned_ms
    lines: list[Text] = []
    is_open = picture.committed_batch != picture.planned_batch
    if is_open and ran_ms >= _SILENT_MS and (error is None or planned_ms > error.at_ms):
        runs = f"batch {picture.planned_batch} has run for {span(ran_ms)}, or the query stopped"
        lines += whole(f"{runs}: the checkpoint has no error of this batch, the driver's log may have one", width)
    if error is not None:
        when = ago(error.at_ms, picture.taken_ms)
        lines += whole(f"last error, {when}, before batch {error.batch} was committed: {error.text}", width)
    return lines


def _published(picture: Picture, width: int) -> list[Text]:
    if picture.target_trouble is not None:
        return whole(f"the target cannot be read: {picture.target_trouble}", width)
    one = picture.publication
    if one is None:
        return []
    snapshot = "" if one.snapshot is None else f" with snapshot {one.snapshot}"
    state = f"{'published' if one.is_published else 'decided'} batch {one.batch}{snapshot}"
    word = "version" if one.kind == DELTA else "table snapshot"
    version = "" if one.version is None else f", {word} {one.version}"
    return [line(f"{one.kind}: {state}, {one.rows} rows{version}, {ago(one.at_ms, picture.taken_ms)}")]


def _slowest(picture: Picture) -> list[SourcePicture]:
    """Return the slowest source of each group of alike sources."""
    watermarks_ms = {one.source: one.lowest_ms() for one in picture.sources}
    numbers = {slowest_of(one.alike, watermarks_ms) for one in picture.sources}
    return [one for one in picture.sources if one.source in numbers]


def _source_lines(source: SourcePicture, picture: Picture, width: int) -> list[Text]:
    taken_ms = picture.taken_ms
    idle = sum(one.status is Status.IDLE for one in source.partitions)
    backlogs = [one.backlog for one in source.partitions]
    known = [backlog for backlog in backlogs if backlog is not None]
    backlog = f"backlog {sum(known)}" if known else "backlog not known"
    late, unreadable, future, resets = (
        sum(getattr(one, name) for one in source.partitions) for name in ("late", "unreadable", "future", "resets")
    )
    lines = []
    if len(picture.sources) > 1:
        lines += whole(title_of(source.alike, (one.channel.topic for one in source.partitions), source.source), width)
    lines += [
        line(
            f"source {source.source}: planned {ago(source.planned_ms, taken_ms)}, {len(source.partitions)} partitions,"
            f" {idle} idle, {backlog}"
        ),
        line(f"late {late}, unreadable {unreadable}, future {future}, resets {resets}"),
    ]
    bad_values = sum((Counter(one.bad_values) for one in source.partitions), Counter[str]())
    if bad_values:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(bad_values.items()))
        lines += whole(f"bad values {bad_values.total()}: {reasons}", width)
    stale = sum(not one.is_current for one in source.partitions)
    if stale:
        lines.append(line(f"{stale} partitions show their watermarks and counts as of the start of this batch"))
    if source.coordinator:
        lines += whole(f"the consumer group cannot be read: {source.coordinator}", width)
    for watermark in source.watermarks:
        lines += _watermark_lines(watermark, taken_ms, width)
    return lines


def _watermark_lines(watermark: WatermarkPicture, taken_ms: int, width: int) -> list[Text]:
    """Return a watermark in a line, and a line for each cause with its partitions; the cause is never cut."""
    name = f"watermark {watermark.key}" if watermark.key else "watermark"
    unmoved = f", unmoved for {span(max(taken_ms - watermark.unmoved_since_ms, 0))}"
    lines = [
        line(f"{name}: {time_text(watermark.watermark_ms)}{against_clock(watermark.watermark_ms, taken_ms)}{unmoved}")
    ]
    if not watermark.held_by:
        lines.append(line("  held by nobody: no partition is active"))
    ordered = sorted(watermark.held_by, key=lambda holder: holder.cause.value)
    for cause, same in groupby(ordered, key=lambda holder: holder.cause):
        lines += whole("  " + _holders(cause, list(same), taken_ms, width), width)
    return lines


def _holders(cause: Cause, holders: list[Holder], taken_ms: int, width: int) -> str:
    names = ", ".join(name_of(holder.channel, _name_width(width)) for holder in holders[:_MOST_NAMED])
    more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    since = [holder.since_ms for holder in holders if holder.since_ms is not None]
    when = f", since {second_text(min(since))} ({ago(min(since), taken_ms)})" if since else ""
    return f"held by {names}{more}: {cause.value}{when}"


def _name_width(width: int) -> int:
    return _WIDE_NAME if width >= _WIDE else _NARROW_NAME


def _table(
    partitions: Sequence[PartitionPicture], taken_ms: int, rates: Mapping[TopicPartition, float], width: int
) -> Table:
    is_wide = width >= _WIDE
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
        rate = [f"{rates[one.channel]:.0f}" if one.channel in rates else UNKNOWN] if rates else []
        table.add_row(
            name_of(one.channel, _name_width(width)),
            *([str(one.position), or_unknown(one.log_end)] if is_wide else []),
            or_unknown(one.backlog), span(one.behind_ms), *rate, _watermarks(one),
            span(None if one.idle_since_ms is None else max(taken_ms - one.idle_since_ms, 0), none="no"),
            *([_last_record(one)] if is_wide else []), str(one.late), str(one.unreadable),
        )  # fmt: skip
    return table


def _rates(source: SourcePicture, picture: Picture, before: Picture | None) -> dict[TopicPartition, float]:
    """Return how many offsets per second each partition has advanced since the picture before."""
    if before is None or before.taken_ms >= picture.taken_ms:
        return {}
    seconds = (picture.taken_ms - before.taken_ms) / _S
    known = {one.channel: one.position for old in before.sources if old.group == source.group for one in old.partitions}
    return {  # a position goes back if its states cannot be read any more: then the rate is unknown
        one.channel: (one.position - known[one.channel]) / seconds
        for one in source.partitions
        if one.channel in known and one.position >= known[one.channel]
    }


def _last_record(one: PartitionPicture) -> str:
    """Return the time of the newest record; "none" only if the log was read and never had one."""
    return UNKNOWN if one.last_record_ms is None and one.log_end != 0 else second_text(one.last_record_ms)


def _watermarks(one: PartitionPicture) -> str:
    if set(one.watermarks_ms) <= {0}:
        return second_text(one.watermarks_ms.get(0))
    return "\n".join(f"{key}: {second_text(ms)}" for key, ms in sorted(one.watermarks_ms.items()))
