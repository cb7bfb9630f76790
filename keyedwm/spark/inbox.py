"""What the control rows of one micro-batch tell a bucket: the channels' changes, and the one watermark they add up to.

Rule: values in, values out; the order in which rows arrived means nothing. Every batch carries the barriers of all the
channels of its source, so they also tell which channels there are (DESIGN sections 4 and 12).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keyedwm.core.channel_encoding import decode_channels, encode_channels
from keyedwm.core.coalescer import Added, Advanced, Change, Coalescer, Output, Removed, WentIdle, Woken
from keyedwm.core.errors import InputError, RegressionError
from keyedwm.core.rows import ORDER, Kind
from keyedwm.core.watermark import Watermark

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """One control row as it travels to the buckets; fields that do not apply are None."""

    kind: Kind
    key: int | None = None
    watermark_ms: int | None = None
    channel: str | None = None
    snapshot: int | None = None
    channels: int | None = None
    offset: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a batch told. `promised_ms`: the watermark its rows are judged by; the rest is true once they are taken."""

    promised_ms: int | None
    watermark_ms: int | None
    went_idle: bool
    woke: bool


class Inbox:
    """The channels of one bucket on one time axis, and the watermark they add up to."""

    def __init__(self, owner: str, key: int) -> None:
        self._owner = owner
        self._key = key
        self._coalescer = Coalescer()
        # Channel → the name of its source: a source's channels come and go together, told by its barriers.
        self._source: dict[str, str] = {}
        self._watermark_ms: int | None = None

    @property
    def watermark_ms(self) -> int | None:
        """The watermark as of the last batch."""
        return self._watermark_ms

    @property
    def idle(self) -> bool:
        """Whether all channels were idle at the end of the last batch."""
        return self._coalescer.snapshot().common.idle_spell

    def take(self, rows: Iterable[Control]) -> Told:
        """Take all control rows of a batch. Raises InputError if its barriers are not whole.

        A frame united with itself brings every row twice, which tells nothing new.
        """
        rows = sorted(dict.fromkeys(rows), key=_turn)
        was_idle = self.idle
        changes = self._membership(rows)
        self._rise(self._promise(rows))
        promised_ms = self._watermark_ms
        changes += [change for row in rows if (change := self._change(row)) is not None]
        for output in self._stepped(changes):
            if isinstance(output, Watermark) and output.key == self._key:
                self._rise(output.time_ms)
        return Told(
            promised_ms=promised_ms,
            watermark_ms=self._watermark_ms,
            went_idle=self.idle and not was_idle,
            woke=was_idle and not self.idle,
        )

    def _stepped(self, changes: Sequence[Change]) -> Sequence[Output]:
        try:
            return self._coalescer.step(changes, 0)
        except RegressionError as error:
            raise InputError(
                f"{self._owner}: {error.message}: if two reads of one topic were united, load it once and unite "
                f"frames of that"
            ) from error

    def _membership(self, rows: Iterable[Control]) -> list[Change]:
        """Which channels came and which left, by the barriers."""
        changes: list[Change] = []
        cuts = _cuts(rows)
        if not cuts:
            raise InputError(
                f"{self._owner}: a batch came without barrier rows, which tell the channels: the source has "
                f"barriers=false, or rows where control is not null were filtered before the aggregate; keep them, "
                f'for example with .where("control IS NOT NULL OR (...)")'
            )
        for (snapshot, count), arrived in sorted(cuts.items()):
            if len(arrived) % count:
                raise InputError(
                    f"{self._owner}: {len(arrived) % count} of {count} barrier rows of snapshot {snapshot} arrived "
                    f"({', '.join(sorted(arrived)[:_SHOWN])}): rows where control is not null were filtered before "
                    f'the aggregate; keep them, for example with .where("control IS NOT NULL OR (...)")'
                )
            known = {self._source[channel] for channel in arrived if channel in self._source}
            if len(arrived) == count:
                # The whole of one source: what it had before and has no more is gone.
                source = min(known, default=min(arrived))
                gone = sorted(c for c, of in self._source.items() if of in known and c not in arrived)
                changes += [Removed(channel) for channel in gone]
                for channel in gone:
                    del self._source[channel]
                new = dict.fromkeys(sorted(arrived), source)
            else:
                new = {channel: channel for channel in sorted(arrived) if channel not in self._source}
            changes += [Added(channel) for channel in new if channel not in self._source]
            self._source.update(new)
        return changes

    def _promise(self, rows: Iterable[Control]) -> int | None:
        """What the driver coalesced when it planned the batch; of two sources neither speaks for both."""
        if len(set(self._source.values())) > 1:
            return None
        promises = (row.watermark_ms for row in rows if row.channel is None and row.key == self._key)
        return max((ms for ms in promises if ms is not None), default=None)

    def _change(self, row: Control) -> Change | None:
        if row.channel is None or row.kind is Kind.BARRIER:
            return None
        if row.kind is Kind.IDLE:
            return WentIdle(row.channel)
        if row.kind is Kind.WATERMARK and row.key == self._key and row.watermark_ms is not None:
            return Advanced(row.channel, self._key, row.watermark_ms)
        return Woken(row.channel)  # an active row, or the watermark of another time axis

    def _rise(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None and (self._watermark_ms is None or watermark_ms > self._watermark_ms):
            self._watermark_ms = watermark_ms

    def snapshot(self) -> dict:
        """Return everything the next batch depends on, ready for JSON."""
        return {
            "channels": b64encode(encode_channels(self._coalescer.snapshot())).decode(),
            "sources": dict(sorted(self._source.items())),
            "watermark": self._watermark_ms,
        }

    @classmethod
    def restore(cls, owner: str, key: int, state: Mapping) -> Inbox:
        """Go on from a snapshot."""
        it = cls(owner, key)
        it._coalescer = Coalescer.restore(decode_channels(b64decode(state["channels"])))
        it._source = dict(state["sources"])
        it._watermark_ms = state["watermark"]
        return it


def barriers_of(rows: Iterable[Control]) -> int | None:
    """Return the highest snapshot id among the barriers, None without one."""
    return max((row.snapshot for row in rows if row.kind is Kind.BARRIER and row.snapshot is not None), default=None)


def _cuts(rows: Iterable[Control]) -> dict[tuple[int, int], set[str]]:
    """Each cut's channels. Two sources in one query make two cuts, or one that a multiple of the channels delivers."""
    cuts: dict[tuple[int, int], set[str]] = {}
    for row in rows:
        if row.kind is Kind.BARRIER and row.channel is not None and row.snapshot is not None and row.channels:
            cuts.setdefault((row.snapshot, row.channels), set()).add(row.channel)
    return cuts


def _turn(row: Control) -> tuple:
    """The order inside a channel (DESIGN section 12); rows of one place rise by their watermark."""
    offset = -1 if row.offset is None else row.offset
    return (row.channel or "", offset, ORDER[row.kind], row.key or 0, row.watermark_ms or 0)
