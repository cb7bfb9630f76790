"""Histories from a checkpoint (Spark's logs and the ledger in it) or from the commits of a table.

Rule: it only reads. A batch in the offset log has the states at its start, so its watermarks belong to the time of its
planning. The next batch shows the rows that it read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from keyedwm.cli.plot.history import Bars, Column, Histories, History, Track, Unit, bounds_of
from keyedwm.cli.query.alike import alike, slowest_of, title_of
from keyedwm.cli.query.log import COMMITS, OFFSETS, is_checkpoint, planned_before, planned_numbers
from keyedwm.cli.query.reader import planned_of
from keyedwm.cli.query.tables import Reach, require_records, table_at
from keyedwm.cli.query.target import in_order, ledger_of, lowest_of_channels
from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError
from keyedwm.core.watermark import Status
from keyedwm.savepoint_files import Files
from pyspark_wm_sink.batch.record import Published, Record
from pyspark_wm_sink.places.ledger_files import is_address
from pyspark_wm_sink.places.paths import local_directory
from pyspark_wm_source.values.holding import emitted_ms, keys_of
from pyspark_wm_source.values.offsets import QueryOffset

# A file written longer than this before or after its batch's planning was copied, or has the time of another clock.
_COPIED_MS = 60_000
_PUBLISHED = "Rows published by each batch"


def histories_of(path: str, reach: Reach, most: int) -> Histories:
    """Read the newest batches, at most `most`. Raises InputError for a place that is neither checkpoint nor table."""
    directory = local_directory(path)
    if not reach.is_given:  # a checkpoint is reached without
        if directory is not None and not Files(path).exists():
            raise InputError(
                f"{path} does not exist: the checkpoint of a query, or a Delta table is expected, or the name of an "
                f"Iceberg table and its --catalog"
            )
        if (directory is not None or is_address(path)) and is_checkpoint(Files(path)):
            return _of_checkpoint(Files(path), most)
    table = table_at(path, reach, most)
    if table is None:
        problem = "no table of that catalog" if reach.catalog else "neither the checkpoint of a query nor a Delta table"
        raise InputError(f"{path} is {problem}")
    require_records(path, reach, table)
    histories = tuple(_of_records([one for one in table.records if one.at_ms is not None]))
    if not histories:
        raise InputError(f"the {reach.kind} {path} holds records of batch writes only: that of a query is expected")
    about = "Each point is a commit of the table, at its time; watermarks are those of its snapshot."
    return Histories(title=path, about=about, each=histories)


def _of_checkpoint(files: Files, most: int) -> Histories:
    planned_of(files)  # it says what the checkpoint lacks
    numbered = [(number, planned_before(files, number)) for number in planned_numbers(files)[-most:]]
    batches = {number: sources for number, sources in numbered if sources is not None}
    planned_ms, committed_ms = files.times_ms(OFFSETS), files.times_ms(COMMITS)
    published = _published(files)
    histories = []
    newest: dict[int, QueryOffset] = {}
    for sources in batches.values():
        newest |= sources
    watermarks_ms = {
        number: [planned.watermark_ms(key) for key in keys_of(planned.channels)] for number, planned in newest.items()
    }
    for numbers in alike(newest):
        source = slowest_of(numbers, watermarks_ms)
        name = f"source {source}"
        if len(newest) > 1:
            name = title_of(numbers, (tp.topic for tp in newest[source].channels), source)
        offsets = {
            number: sources[source]
            for number, sources in batches.items()
            if source in sources and sources[source].channels
        }
        if not offsets:
            continue
        durations = tuple(
            _duration_ms(one.now_ms, planned_ms.get(str(number)), committed_ms.get(str(number)))
            for number, one in offsets.items()
        )
        bars = [
            *_bars(list(offsets.values())),
            *([_rows_of(published, offsets)] if published else []),
            Bars(title="Duration of each batch", unit=Unit.MS, values=durations),
        ]
        keys = sorted({key for one in offsets.values() for key in keys_of(one.channels)})
        histories += [_of_source(name, key, offsets, bars) for key in keys]
    if not histories:
        raise InputError(
            f"the query of {files.place} has planned no batch of any partition yet: there is nothing to see"
        )
    return Histories(
        title=files.place,
        about="Each point is a batch in the offset log, at the time when it was planned; watermarks are those at its "
        "start.",
        each=tuple(histories),
    )


def _of_source(name: str, key: int, offsets: Mapping[int, QueryOffset], bars: Sequence[Bars]) -> History:
    planned = list(offsets.values())
    tracks = tuple(
        Track(
            name=str(tp),
            watermarks_ms=tuple(emitted_ms(one.channels[tp], key) if tp in one.channels else None for one in planned),
            idle=tuple(tp in one.channels and one.channels[tp].status is Status.IDLE for one in planned),
        )
        for tp in sorted({tp for one in planned for tp in one.channels})
    )
    lowest, highest = bounds_of(tracks, len(planned))
    return History(
        name=name + (f", watermark {key}" if key else ""),
        batches=tuple(offsets), at_ms=tuple(one.now_ms for one in planned), tracks=tracks,
        coalesced_ms=tuple(one.watermark_ms(key) for one in planned), lowest_ms=lowest, highest_ms=highest,
        bars=tuple(bars),
    )  # fmt: skip


_LATE = "Late rows"
_COUNTS: Mapping[str, Callable[[Counts], int]] = {
    _LATE: lambda counts: counts.late,
    "Unreadable event times": lambda counts: counts.bad,
    "Event times too far ahead": lambda counts: counts.future,
    "Bad values": lambda counts: sum(count for _, count in counts.bad_values),
}


def _bars(planned: Sequence[QueryOffset]) -> Iterator[Bars]:
    """Yield the offsets that each batch read, and the late events; other counts if there are any."""
    read = tuple(sum(channel.read for channel in one.channels.values()) for one in planned)
    yield Bars(title="Offsets read by each batch", unit=Unit.OFFSETS, values=read)
    for title, count in _COUNTS.items():
        values = _grown(planned, count)
        if title == _LATE or any(values):
            yield Bars(title=f"{title} of each batch", unit=Unit.ROWS, values=values)


def _grown(planned: Sequence[QueryOffset], count: Callable[[Counts], int]) -> Column:
    """Return the growth of a count up to the planning of the next batch; None for the last batch."""
    grown = [
        sum(
            max(count(channel.counts) - count(one.channels[tp].counts), 0)
            for tp, channel in then.channels.items()
            if tp in one.channels
        )
        for one, then in pairwise(planned)
    ]
    return (*grown, None)


def _duration_ms(now_ms: int, planned_ms: int | None, committed_ms: int | None) -> int | None:
    """Return the time from a batch's planning to its commit, by the file system's clock."""
    if planned_ms is None or committed_ms is None or abs(planned_ms - now_ms) > _COPIED_MS or committed_ms < planned_ms:
        return None
    return committed_ms - planned_ms


def _published(files: Files) -> dict[int, Record]:
    ledger = ledger_of(files)
    entries = [] if ledger is None else ledger.entries(1_000)
    return {entry.batch: entry.record for entry in entries if entry.published}


def _rows_of(published: Mapping[int, Record], batches: Mapping[int, QueryOffset]) -> Bars:
    values = tuple(published[number].rows if number in published else None for number in batches)
    return Bars(title=_PUBLISHED, unit=Unit.ROWS, values=values)


def _of_records(records: Sequence[Published]) -> Iterator[History]:
    """Yield a history for each query and watermark key in the table's records."""
    for query in sorted({one.record.query for one in records if one.record.query is not None}):
        own = [one for one in records if one.record.query == query and one.record.batch is not None]
        keys = {
            key
            for one in own
            for watermarks in (one.record.coalesced, *(channel.watermarks for channel in one.record.channels.values()))
            for key in watermarks
        }
        for key in sorted(keys or {0}):
            yield _of_query(query, key, own)


def _of_query(query: str, key: int, own: Sequence[Published]) -> History:
    records = [one.record for one in own]
    tracks = tuple(
        Track(
            name=name,
            watermarks_ms=tuple(
                record.channels[name].watermarks.get(key) if name in record.channels else None for record in records
            ),
            idle=tuple(name in record.channels and record.channels[name].idle for record in records),
        )
        for name in sorted({name for record in records for name in record.channels}, key=in_order)
    )
    lowest, highest = bounds_of(tracks, len(own))
    published = Bars(title=_PUBLISHED, unit=Unit.ROWS, values=tuple(record.rows for record in records))
    return History(
        name=f"query {query}" + (f", watermark {key}" if key else ""),
        batches=tuple(record.batch for record in records if record.batch is not None),
        at_ms=tuple(one.at_ms or 0 for one in own), tracks=tracks,
        coalesced_ms=tuple((record.coalesced or lowest_of_channels(record)).get(key) for record in records),
        lowest_ms=lowest, highest_ms=highest, bars=(published,),
    )  # fmt: skip
