"""The channels of a bucket, and the coalesced watermark of their control rows, batch by batch.

Rule: the result depends only on the rows, and not on the order in which they arrive. Every batch has the barriers of
all channels of its source, so the barriers also list the channels (docs/design/rows.md).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keyedwm.core.barriers import BarrierCut, collect_cuts, delivered_twice, first_incomplete
from keyedwm.core.channel_encoding import decode_channels, encode_channels
from keyedwm.core.channel_names import pack_names, unpack_names
from keyedwm.core.coalescer import (
    Change,
    ChannelAdded,
    ChannelRemoved,
    ChannelReset,
    ChannelWentIdle,
    ChannelWoken,
    Coalescer,
    Output,
    WatermarkAdvanced,
)
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FormatError, InputError, RegressionError
from keyedwm.core.parsing import whole_number_or_none
from keyedwm.core.rows import ORDER, ControlKind
from keyedwm.core.text import error_text, listed
from keyedwm.core.watermark import Status, Watermark

_KEEP_THEM = (
    'keep them, for example with .where("control IS NOT NULL OR (...)"), and in the place of dropDuplicates take '
    "keyedwm.spark.deduplicate"
)
_LOAD_ONCE = (
    "if two reads of one topic were united, load it once and unite frames of that; topics of one name in two clusters "
    "cannot be united, as a partition is known by its topic and number: read each in a query of its own, or mirror one "
    "under another name"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchWatermarks:
    """The watermarks of a batch: batch_watermark_ms decides which rows are late, the others are after the rows."""

    batch_watermark_ms: int | None
    watermark_ms: int | None
    went_idle: bool
    woke: bool


class ChannelTracker:
    """The channels of one bucket on one time axis, and their coalesced watermark. owner: its name in errors."""

    def __init__(self, owner: str, key: int) -> None:
        self._owner = owner
        self._key = key
        self._coalescer = Coalescer()
        # Channel -> its source. Rows of version 1 name no source: channel -> its group, which is one source, or several
        # with the same number of channels. Group -> its number of sources, if more than one.
        self._source: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        # Source -> the watermark that its planner coalesced, which can be above its slowest channel (rule 6).
        self._planned: dict[str, int] = {}
        self._watermark_ms: int | None = None

    @property
    def watermark_ms(self) -> int | None:
        """The watermark as of the last batch."""
        return self._watermark_ms

    @property
    def idle(self) -> bool:
        """Whether all channels were idle at the end of the last batch."""
        return self._coalescer.common().idle_spell

    def apply(self, rows: Iterable[ControlRow]) -> BatchWatermarks:
        """Apply all control rows of a batch. Raises InputError if barriers are missing.

        A frame that is united with itself has every row twice; the second one has no effect.
        """
        rows = sorted(dict.fromkeys(rows), key=_turn)
        was_idle = self.idle
        changes = self._membership(rows)
        self._rise(self._planned_watermark(rows))
        batch_watermark_ms = self._watermark_ms
        changes += [change for row in rows if (change := self._change(row)) is not None]
        for output in self._stepped(changes):
            if isinstance(output, Watermark) and output.key == self._key:
                self._rise(output.time_ms)
        self._rise(self._united_watermark())
        return BatchWatermarks(
            batch_watermark_ms=batch_watermark_ms,
            watermark_ms=self._watermark_ms,
            went_idle=self.idle and not was_idle,
            woke=was_idle and not self.idle,
        )

    def _stepped(self, changes: Sequence[Change]) -> Sequence[Output]:
        try:
            return self._coalescer.step(changes, 0)
        except RegressionError as error:
            raise InputError(f"{self._owner}: {error.message}: {_LOAD_ONCE}") from error

    def _membership(self, rows: Iterable[ControlRow]) -> list[Change]:
        """Return the channels that the barriers add and remove."""
        changes: list[Change] = []
        cuts = collect_cuts(rows)
        if not cuts:
            raise InputError(
                f"{self._owner}: a batch came without barrier rows, which list the channels: the source has "
                f"barriers=false, or rows where control is not null were filtered before this operator; {_KEEP_THEM}"
            )
        incomplete = first_incomplete(cuts)
        if incomplete is not None:
            raise InputError(
                f"{self._owner}: {incomplete.delivered} of {incomplete.expected} barrier rows of snapshot "
                f"{incomplete.snapshot} arrived ({listed(incomplete.arrived)}): rows where control is not "
                f"null were filtered before this operator; {_KEEP_THEM}"
            )
        twice = delivered_twice(cuts)
        if twice is not None:
            raise InputError(f"{self._owner}: channel {twice} comes from two sources: {_LOAD_ONCE}")
        for barrier in cuts:
            changes += self._follow(barrier)
        return changes

    def _follow(self, barrier: BarrierCut) -> list[Change]:
        """Apply a cut to the channels: those of its source that the cut lacks are removed.

        A cut that names no source may combine several sources that have the same number of channels. It may hold only
        some sources of a known group. These then become a group of their own. When all sources of a group have
        delivered, a channel that none of them delivered is removed. The cut of a source without channels removes all
        channels that the source had.
        """
        if not barrier.expected:
            return self._without([channel for channel, group in self._source.items() if group == barrier.source])
        count = len(barrier.arrived) // barrier.expected
        groups = {self._source[channel] for channel in barrier.arrived if channel in self._source}
        if barrier.source is not None and barrier.source in self._source.values():
            groups.add(barrier.source)
        name = barrier.source or min(groups, default=barrier.arrived[0])
        absent: list[str] = []
        largest = max((self._counts.get(group, 1) for group in groups), default=0)
        if largest > count:
            for group in groups:
                self._counts[group] = max(1, self._counts.get(group, 1) - count)
            name = barrier.source or f"{barrier.arrived[0]} since {barrier.snapshot}"
        else:
            arrived = set(barrier.arrived)
            absent = [c for c, group in self._source.items() if group in groups and c not in arrived]
        changes = self._without(absent)
        new = [channel for channel in barrier.arrived if channel not in self._source]
        self._source.update(dict.fromkeys(barrier.arrived, name))
        self._counts[name] = count
        groups_in_use = set(self._source.values())
        self._counts = {
            group: sources for group, sources in self._counts.items() if group in groups_in_use and sources > 1
        }
        return [*changes, *map(ChannelAdded, new)]

    def _without(self, channels: Sequence[str]) -> list[Change]:
        for channel in channels:
            del self._source[channel]
        return [ChannelRemoved(channel) for channel in sorted(channels)]

    def _planned_watermark(self, rows: Sequence[ControlRow]) -> int | None:
        """Return the watermark that the driver coalesced when it planned the batch.

        None with several sources: a watermark planned for one source holds for no other source.
        """
        from_planner = [row for row in rows if row.channel is None]
        # The watermark that a source flushes while all its channels are idle (rule 4) holds only until one is active.
        flushed = {row.source for row in from_planner if row.kind is ControlKind.IDLE}
        planned = [(row.source, row.watermark_ms) for row in from_planner if row.key == self._key]
        for source, ms in planned:
            if source is not None and ms is not None and source not in flushed:
                self._planned[source] = max(ms, self._planned.get(source, ms))
        if self._is_united:
            return None
        # A source whose last channel is gone flushes, too; its watermark does not hold for a source that continues.
        sources = {None, *self._source.values()} if self._source else {source for source, _ in planned}
        return max((ms for source, ms in planned if ms is not None and source in sources), default=None)

    @property
    def _is_united(self) -> bool:
        return len(set(self._source.values())) > 1 or bool(self._counts)

    def _united_watermark(self) -> int | None:
        """Return the lowest watermark of several sources' active channels, each at least its planner's; or None."""
        if not self._is_united or not self._planned:
            return None
        bounds = [
            (watermarks.get(self._key), self._planned.get(self._source.get(channel, "")))
            for channel, (status, watermarks) in self._coalescer.snapshot().channels.items()
            if status is Status.ACTIVE
        ]
        promised = [max((ms for ms in both if ms is not None), default=None) for both in bounds]
        return None if None in promised else min((ms for ms in promised if ms is not None), default=None)

    def _change(self, row: ControlRow) -> Change | None:
        if row.channel is None or row.kind is ControlKind.BARRIER:
            return None
        if row.kind is ControlKind.IDLE:
            return ChannelWentIdle(row.channel)
        if row.kind is ControlKind.RESET:
            return ChannelReset(row.channel)
        if row.kind is ControlKind.WATERMARK and row.key == self._key and row.watermark_ms is not None:
            return WatermarkAdvanced(row.channel, self._key, row.watermark_ms)
        return ChannelWoken(row.channel)  # an active row, or the watermark of another time axis

    def _rise(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None and (self._watermark_ms is None or watermark_ms > self._watermark_ms):
            self._watermark_ms = watermark_ms

    def _by_source(self) -> dict[str, list[str]]:
        channels: dict[str, list[str]] = {}
        for channel, source in self._source.items():
            channels.setdefault(source, []).append(channel)
        return channels

    def state(self) -> dict:
        """Return the state that the next batch needs, ready for JSON."""
        return {
            "channels": b64encode(encode_channels(self._coalescer.snapshot())).decode(),
            "of_source": {source: pack_names(channels) for source, channels in sorted(self._by_source().items())},
            "counts": dict(sorted(self._counts.items())),
            "planned": dict(sorted(self._planned.items())),
            "watermark": self._watermark_ms,
        }

    @classmethod
    def restore(cls, owner: str, key: int, state: Mapping) -> ChannelTracker:
        """Return a tracker in a state that `state` returned. Raises FormatError for a damaged state."""
        it = cls(owner, key)
        try:
            coalesced = decode_channels(b64decode(state["channels"], validate=True))
            it._coalescer = Coalescer.restore(coalesced)
            it._source = _sources(state, len(coalesced.channels))
            it._counts = dict(state.get("counts", {}))  # state of 0.2.0 has no counts and no planned
            it._planned = dict(state.get("planned", {}))
            it._watermark_ms = whole_number_or_none(state["watermark"], "its watermark")
        except (ValueError, TypeError, KeyError, AttributeError, InputError) as error:
            why = error.message if isinstance(error, InputError) else error_text(error)
            raise FormatError(f"{owner}: the saved state of its channels is damaged: {why}") from error
        return it


def newest_snapshot(rows: Iterable[ControlRow]) -> int | None:
    """Return the highest snapshot id among the barriers, None without one."""
    return max(
        (row.snapshot for row in rows if row.kind is ControlKind.BARRIER and row.snapshot is not None), default=None
    )


def _sources(state: Mapping, channels: int) -> dict[str, str]:
    """Return channel -> its source. channels: their number.

    State before 0.3.0 has this mapping itself, under `sources`.
    """
    if "sources" in state:
        return dict(state["sources"])
    return {name: source for source, names in state["of_source"].items() for name in unpack_names(names, channels)}


def _turn(row: ControlRow) -> tuple:
    """Return the sort key: the order within a channel (docs/design/rows.md), then the watermark."""
    offset = -1 if row.offset is None else row.offset
    return (row.channel or "", offset, ORDER[row.kind], row.key or 0, row.watermark_ms or 0)
