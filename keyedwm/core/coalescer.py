"""Many channels' watermarks become one per key (rules 1 to 6).

Rule: every step returns its outputs in order: watermarks by key, then the idle marker. The output never goes back. A
channel without a watermark blocks its key; idle and done channels block nothing. A regression is an error here as soon
as it arrives; the sink, which gets a batch's rows out of order, sorts them first (pyspark_wm_sink/batch/monotone.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from keyedwm.core.errors import InputError, OutOfTurnError, RegressionError
from keyedwm.core.parsing import whole_number
from keyedwm.core.watermark import MAX_MS, Guarantee, History, IdleMarker, Status, Watermark, check_key, check_time

Output = Watermark | IdleMarker
ChannelState = tuple[Status, Mapping[int, int]]
_NOTHING: Mapping = MappingProxyType({})


class ChannelAdded(NamedTuple):
    """A new channel: active and without a watermark, so it blocks (rule 5)."""

    channel: str


class ChannelRemoved(NamedTuple):
    """A channel stops counting at once; its top watermark still counts in a flush (rule 5)."""

    channel: str


class WatermarkAdvanced(NamedTuple):
    """A watermark arrived: it wakes the channel (rules 1 and 3)."""

    channel: str
    key: int
    time_ms: int


class ChannelWoken(NamedTuple):
    """An event arrived: it wakes the channel for every key (rule 3); on a done channel it has no effect."""

    channel: str


class ChannelWentIdle(NamedTuple):
    """Ignore the channel for every key until it becomes active (rule 3)."""

    channel: str


class ChannelReset(NamedTuple):
    """The channel's state was lost: its next watermark may be lower than its last one (rule 1)."""

    channel: str


class ChannelFinished(NamedTuple):
    """The channel is done: it counts as infinity from now on (rule 2)."""

    channel: str


Change = (
    ChannelAdded | ChannelRemoved | WatermarkAdvanced | ChannelWoken | ChannelWentIdle | ChannelReset | ChannelFinished
)


@dataclass(frozen=True, slots=True)
class CommonState:
    """The state of a coalescer beyond its channels: per key emitted and top, the idle spell, the retention history.

    `top` is the highest watermark of a key so far, including removed channels; a key without one is not known yet.
    """

    emitted: Mapping[int, int] = field(default_factory=dict)
    top: Mapping[int, int] = field(default_factory=dict)
    idle_spell: bool = False
    history: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    ignored: int = 0

    def as_json(self) -> dict:
        """Plain lists and numbers, the same for equal states."""
        return {
            "emitted": [[key, self.emitted[key]] for key in sorted(self.emitted)],
            "top": [[key, self.top[key]] for key in sorted(self.top)],
            "idleSpell": self.idle_spell,
            "history": [[key, [list(point) for point in self.history[key]]] for key in sorted(self.history)],
            "ignored": self.ignored,
        }

    @classmethod
    def from_json(cls, value: Mapping) -> CommonState:
        """The inverse of `as_json`."""
        return cls(
            emitted=_numbers(value["emitted"]),
            top=_numbers(value["top"]),
            idle_spell=value["idleSpell"],
            history={key: tuple((at, top) for at, top in points) for key, points in value["history"]},
            ignored=value["ignored"],
        )


def _numbers(pairs: Iterable[tuple[object, object]]) -> dict[int, int]:
    """Read watermarks by key. Raises ValueError."""
    return {whole_number(key, "the key of a watermark"): whole_number(ms, "a watermark") for key, ms in pairs}


@dataclass(frozen=True, slots=True)
class CoalescerState:
    """The stored state of a coalescer: its channels (status and watermark per key) and the common part."""

    channels: Mapping[str, ChannelState] = field(default_factory=dict)
    common: CommonState = field(default_factory=CommonState)


class Coalescer:
    """The coalesced watermark of each key over a changing set of channels.

    After an error in a step of one change the coalescer is unchanged; a step of many may have applied the changes
    before the wrong one. Raises RegressionError for a watermark that does not increase (exactly-once only),
    OutOfTurnError for a change that the channel's status does not allow.
    """

    def __init__(self, *, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, retention_ms: int | None = None) -> None:
        if retention_ms is not None and retention_ms < 0:
            raise InputError(f"the maximum watermark retention is {retention_ms} ms, it must be 0 or more")
        self._guarantee = guarantee
        self._retention_ms = retention_ms
        self._status: dict[str, Status] = {}
        self._inactive = 0
        self._watermarks: dict[int, dict[str, int]] = {}
        self._emitted: dict[int, int] = {}
        self._top: dict[int, int] = {}
        self._idle_spell = False
        self._history: dict[int, History] = {}
        self._ignored = 0

    def step(self, changes: Iterable[Change], now_ms: int) -> list[Output]:
        """Apply the changes in order, then evaluate once."""
        apply, statuses, watermarks, top = self._apply, self._status, self._watermarks, self._top
        for change in changes:
            if type(change) is WatermarkAdvanced:
                # Nearly every change of a planning step: an active channel advances. Other changes need the full check.
                channel, key, time_ms = change
                of_key = watermarks.get(key, _NOTHING)
                known = of_key.get(channel, MAX_MS) < time_ms <= MAX_MS and key in top
                if known and statuses[channel] is Status.ACTIVE:
                    of_key[channel] = time_ms  # type: ignore[index]
                    if time_ms > top[key]:  # noqa: PLR1730  a call of max costs a tenth of the whole step
                        top[key] = time_ms
                    continue
            apply[type(change)](self, *change)
        return self._evaluate(now_ms)

    def _added(self, channel: str) -> None:
        if channel in self._status:
            raise OutOfTurnError(f"channel {channel} was added twice")
        self._status[channel] = Status.ACTIVE
        self._idle_spell = False

    def _removed(self, channel: str) -> None:
        if self._known(channel) is not Status.ACTIVE:
            self._inactive -= 1
        self._reset(channel)
        del self._status[channel]

    def _advanced(self, channel: str, key: int, time_ms: int) -> None:
        status = self._known(channel)
        if status is Status.DONE:
            raise OutOfTurnError(f"channel {channel} is done, but a watermark of key {key} came: {time_ms} ms")
        of_key = self._watermarks.get(key)
        if of_key is None:
            check_key(key)
            of_key = self._watermarks[key] = {}
        before = of_key.get(channel)
        if before is not None and time_ms <= before:
            if self._guarantee is Guarantee.EXACTLY_ONCE:
                raise RegressionError(
                    f"the watermark of channel {channel}, key {key} went from {before} ms to {time_ms} ms, "
                    f"it must increase"
                )
            self._ignored += 1
        else:
            check_time(time_ms)
            of_key[channel] = time_ms
            top = self._top.get(key)
            if top is None or time_ms > top:
                self._top[key] = time_ms
        if status is Status.IDLE:
            self._wake(channel)
        self._idle_spell = False

    def _woken(self, channel: str) -> None:
        status = self._known(channel)
        if status is Status.DONE:
            return
        if status is Status.IDLE:
            self._wake(channel)
        self._idle_spell = False

    def _went_idle(self, channel: str) -> None:
        status = self._known(channel)
        if status is Status.DONE:
            raise OutOfTurnError(f"channel {channel} is done, but an idle marker came")
        if status is Status.ACTIVE:
            self._status[channel] = Status.IDLE
            self._inactive += 1

    def _reset(self, channel: str) -> None:
        self._known(channel)
        for of_key in self._watermarks.values():
            of_key.pop(channel, None)

    def _finished(self, channel: str) -> None:
        status = self._known(channel)
        if status is Status.DONE:
            raise OutOfTurnError(f"channel {channel} is done, but its end arrived a second time")
        if status is Status.ACTIVE:
            self._inactive += 1
        self._status[channel] = Status.DONE

    _apply: Mapping[type, Callable[..., None]] = MappingProxyType(
        {
            ChannelAdded: _added,
            ChannelRemoved: _removed,
            WatermarkAdvanced: _advanced,
            ChannelWoken: _woken,
            ChannelWentIdle: _went_idle,
            ChannelReset: _reset,
            ChannelFinished: _finished,
        }
    )

    def _known(self, channel: str) -> Status:
        status = self._status.get(channel)
        if status is None:
            raise OutOfTurnError(f"channel {channel} is not known, it must be added first")
        return status

    def _wake(self, channel: str) -> None:
        self._status[channel] = Status.ACTIVE
        self._inactive -= 1

    # -- evaluation

    def _evaluate(self, now_ms: int) -> list[Output]:
        if self._inactive == len(self._status):
            return self._flush(now_ms)
        output: list[Output] = []
        for key in sorted(self._top):
            self._emit(key, self._lowest_active(key), output)
            self._emit(key, self._retained(key, now_ms), output)
        return output

    def _flush(self, now_ms: int) -> list[Output]:
        """No channel is active: the highest watermark seen, once, then one idle marker (rules 4 and 5)."""
        output: list[Output] = []
        if self._idle_spell:
            return output
        self._idle_spell = True
        for key in sorted(self._top):
            self._retained(key, now_ms)
            self._emit(key, self._top[key], output)
        statuses = self._status.values()
        if not statuses or Status.IDLE in statuses:
            output.append(IdleMarker())
        return output

    def _emit(self, key: int, time_ms: int | None, output: list[Output]) -> None:
        before = self._emitted.get(key)
        if time_ms is not None and (before is None or time_ms > before):
            self._emitted[key] = time_ms
            output.append(Watermark(key, time_ms))

    def _lowest_active(self, key: int) -> int | None:
        """The minimum over active channels, None while one of them has no watermark."""
        of_key = self._watermarks.get(key, _NOTHING)
        if not self._inactive:
            return min(of_key.values()) if len(of_key) == len(self._status) else None
        lowest = None
        for channel, status in self._status.items():
            if status is Status.ACTIVE:
                time_ms = of_key.get(channel)
                if time_ms is None:
                    return None
                if lowest is None or time_ms < lowest:
                    lowest = time_ms
        return lowest

    def _retained(self, key: int, now_ms: int) -> int | None:
        """The top watermark as it was `retention` ago (rule 6)."""
        if self._retention_ms is None:
            return None
        history = self._history.setdefault(key, History())
        history.note(now_ms, self._top[key])
        return history.known_at(now_ms - self._retention_ms)

    # -- what there is to see

    def emitted_ms(self, key: int = 0) -> int | None:
        """The coalesced watermark of a key, None if there is none yet."""
        return self._emitted.get(key)

    def status(self, channel: str) -> Status:
        """The status of a channel."""
        return self._known(channel)

    @property
    def ignored(self) -> int:
        """The number of regressions that were ignored (at-least-once only)."""
        return self._ignored

    def snapshot(self) -> CoalescerState:
        """Everything the next step depends on."""
        of_channel: dict[str, dict[int, int]] = {channel: {} for channel in self._status}
        for key in sorted(self._watermarks):
            for channel, time_ms in self._watermarks[key].items():
                of_channel[channel][key] = time_ms
        return CoalescerState(
            channels={channel: (status, of_channel[channel]) for channel, status in self._status.items()},
            common=self.common(),
        )

    def common(self) -> CommonState:
        """The part of a snapshot that is not about single channels."""
        return CommonState(
            emitted=dict(self._emitted),
            top=dict(self._top),
            idle_spell=self._idle_spell,
            history={key: self._history[key].points() for key in sorted(self._history)},
            ignored=self._ignored,
        )

    @classmethod
    def restore(
        cls,
        state: CoalescerState,
        *,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        retention_ms: int | None = None,
    ) -> Coalescer:
        """Return a coalescer that continues from a snapshot; it emits nothing again."""
        it = cls(guarantee=guarantee, retention_ms=retention_ms)
        for channel, (status, watermarks) in state.channels.items():
            it._status[channel] = status
            if status is not Status.ACTIVE:
                it._inactive += 1
            for key, time_ms in watermarks.items():
                it._watermarks.setdefault(key, {})[channel] = time_ms
        common = state.common
        it._emitted.update(common.emitted)
        it._top.update(common.top)
        it._idle_spell = common.idle_spell
        it._history.update((key, History(points)) for key, points in common.history.items())
        it._ignored = common.ignored
        return it
