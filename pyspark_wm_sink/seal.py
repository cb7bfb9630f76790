"""Seal a batch: check everything it brought against the last record, then say what its own record will be.

Rule: values in, values out. Either every requirement holds and a Record comes back, or one error does and nothing has
changed. Requirements: the barriers form whole cuts and ids go up by one (snapshot=barrier), no event stands behind its
channel's barrier, watermarks increase (exactly-once).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.rows import ORDER, Kind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.monotone import Rise, rise
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.record import ChannelRecord, Record

_SHOWN_CHANNELS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Brought:
    """What the tasks of one batch brought; `event_tops`: channel to the highest offset of its event rows."""

    query: str | None
    run: str | None
    batch: int | None
    attempt: str
    rows: int
    control: tuple[ControlRow, ...]
    event_tops: Mapping[str, int]

    @property
    def barriers(self) -> tuple[ControlRow, ...]:
        """The barrier rows."""
        return tuple(row for row in self.control if row.kind is Kind.BARRIER)

    def delivered(self) -> dict[str, tuple[int | None, int | None]]:
        """Each channel's (snapshot, next offset) by its barrier; of several barriers the furthest."""
        rows = sorted(self.barriers, key=lambda row: (row.snapshot or 0, row.offset or 0))
        return {row.channel: (row.snapshot, row.offset) for row in rows if row.channel is not None}


def seal(last: Record | None, brought: Brought, mode: SnapshotMode, guarantee: Guarantee) -> Record:
    """Return the record of the batch, building on the last one.

    Raises InputError (barriers missing, out of turn, or overtaken) and RegressionError.
    """
    channels = {} if last is None else last.channels
    # A batch without any row (a stateful operator's empty round) cuts nothing and needs no barrier.
    if mode is SnapshotMode.BARRIER and (brought.rows or brought.control):
        cuts = _cuts(brought.barriers)
        _check_whole(cuts, channels)
        _check_turn(cuts, channels)
        if guarantee is Guarantee.EXACTLY_ONCE:
            _check_cut(brought)
    watermarks = {(name, key): ms for name, c in channels.items() for key, ms in c.watermarks.items()}
    risen = rise(watermarks, brought.control, guarantee)
    return _apply(last, brought, risen)


def last_status(rows: Iterable[ControlRow]) -> dict[str, Kind]:
    """Each channel's last row that says whether it is idle: an idle marker, or what wakes it."""
    telling = [row for row in rows if row.channel is not None and row.kind is not Kind.BARRIER]
    telling.sort(key=lambda row: (-1 if row.offset is None else row.offset, ORDER[row.kind]))
    return {row.channel: row.kind for row in telling if row.channel is not None}


def check_replay(record: Record, brought: Brought, where: str) -> None:
    """Hold a batch that comes again against the record of its publication in `where`.

    Raises FencedError when the published batch ended at other offsets: another query goes by the same id.
    """
    for channel, (snapshot, offset) in sorted(brought.delivered().items()):
        there = record.channels.get(channel)
        if there is None or (there.snapshot, there.offset) != (snapshot, offset):
            found = "no barrier" if there is None else f"snapshot {there.snapshot} at next offset {there.offset}"
            raise FencedError(
                f"batch {brought.batch} of query {brought.query} is in {where} with {found} for channel "
                f"{channel}, now it comes with snapshot {snapshot} at next offset {offset}: two queries run from "
                f"copies of one checkpoint; give this one a checkpoint of its own"
            )


def _cuts(barriers: Iterable[ControlRow]) -> list[tuple[int, int, list[str]]]:
    """Each cut's snapshot id, number of channels that must deliver it, and channels that did.

    Two sources in one query make two cuts, or one that a multiple of the channels delivers.
    """
    cuts: dict[tuple[int, int], set[str]] = {}
    for row in barriers:
        if row.channel is None or row.snapshot is None or not row.channels:
            raise InputError(f"a barrier row lacks its channel, its snapshot or the number of channels: {row}")
        cuts.setdefault((row.snapshot, row.channels), set()).add(row.channel)
    return [(snapshot, count, sorted(arrived)) for (snapshot, count), arrived in sorted(cuts.items())]


def _check_whole(cuts: Sequence[tuple[int, int, list[str]]], known: Mapping[str, ChannelRecord]) -> None:
    """Every cut must be whole."""
    if not cuts:
        if not known:
            raise _incomplete("none of the barrier rows of the first snapshot arrived")
        following = max((c.snapshot for c in known.values() if c.snapshot is not None), default=-1) + 1
        raise _incomplete(f"0 of {len(known)} barrier rows of snapshot {following} arrived")
    for snapshot, count, arrived in cuts:
        if len(arrived) % count:
            raise _incomplete(
                f"{len(arrived) % count} of {count} barrier rows of snapshot {snapshot} arrived ({_some(arrived)})"
            )


def _incomplete(seen: str) -> InputError:
    return InputError(
        f"{seen} and nothing of this batch was published: the pipeline before the sink filtered or dropped control "
        f"rows (or the source has barriers=false); keep the rows where control is not null, for example with "
        f'.where("control IS NOT NULL OR (...)"), or set snapshot=batch'
    )


def _check_turn(cuts: Sequence[tuple[int, int, list[str]]], known: Mapping[str, ChannelRecord]) -> None:
    """Snapshot ids go up by one; a channel that was away rejoins at its source's id."""
    for snapshot, _, arrived in cuts:
        seen = [known[name].snapshot for name in arrived if name in known]
        before = max((at for at in seen if at is not None), default=None)
        if before is not None and snapshot != before + 1:
            raise InputError(
                f"snapshot {snapshot} of channels {_some(arrived)} follows snapshot {before} of the last batch, where "
                f"{before + 1} was to come: target, ledger or checkpoint is not the one that this query left, or other "
                f"batches were written at-least-once (see the runbook in docs/delivery.md)"
            )


def _some(channels: Sequence[str]) -> str:
    return ", ".join(channels[:_SHOWN_CHANNELS]) + (", ..." if len(channels) > _SHOWN_CHANNELS else "")


def _check_cut(brought: Brought) -> None:
    """No event stands at or behind its channel's barrier, which carries the next offset."""
    for channel, (snapshot, offset) in sorted(brought.delivered().items()):
        top = brought.event_tops.get(channel)
        if top is not None and offset is not None and top >= offset:
            raise InputError(
                f"channel {channel} has an event at offset {top}, behind the barrier of snapshot {snapshot} at offset "
                f"{offset}: rows must not cross a barrier under exactly-once"
            )


def _apply(last: Record | None, brought: Brought, risen: Rise) -> Record:
    channels = {} if last is None else dict(last.channels)
    for name, (snapshot, offset) in brought.delivered().items():
        channels[name] = replace(channels.get(name, ChannelRecord()), snapshot=snapshot, offset=offset)
    for (name, key), ms in risen.reached.items():
        before = channels.get(name, ChannelRecord())
        channels[name] = replace(before, watermarks={**before.watermarks, key: ms})
    for name, kind in last_status(brought.control).items():
        channels[name] = replace(channels.get(name, ChannelRecord()), idle=kind is Kind.IDLE)
    coalesced = {} if last is None else dict(last.coalesced)
    for row in brought.control:
        if row.kind is Kind.WATERMARK and row.channel is None and row.key is not None and row.watermark_ms is not None:
            coalesced[row.key] = max(row.watermark_ms, coalesced.get(row.key, row.watermark_ms))
    closed = [row.snapshot for row in brought.barriers if row.snapshot is not None]
    return Record(
        query=brought.query,
        run=brought.run,
        batch=brought.batch,
        attempt=brought.attempt,
        snapshot=max(closed, default=None),
        rows=brought.rows,
        swallowed=risen.swallowed,
        channels=channels,
        coalesced=coalesced,
    )
