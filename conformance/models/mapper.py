"""A source that reads several channels: one policy each, one cap for all, coalesced, then throttled.

Rule: the scalar model of a source task (rules 2 to 5, 7, 8, 10). Events are never dropped here. What a step
answers stands before the event that made it true. The cap of rule 7 is the observed event's time and holds for every
channel looked at in that step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keyedwm.core.coalescer import (
    Change,
    ChannelAdded,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    Coalescer,
    CoalescerState,
    Output,
    WatermarkAdvanced,
)
from keyedwm.core.errors import InputError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import Policy, PolicyRun
from keyedwm.core.throttle import Throttle
from keyedwm.core.watermark import MAX_MS, IdleMarker, Status, Watermark


@dataclass(frozen=True, slots=True)
class MapperConfig:
    """One time axis of a source."""

    policy: Policy
    throttle: Throttle
    idleness: Idleness
    key: int = 0


@dataclass(frozen=True, slots=True)
class MapperState:
    """A mapper at rest; `policies` and `quiet_since_ms` are by channel."""

    coalescer: CoalescerState = field(default_factory=CoalescerState)
    policies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    quiet_since_ms: Mapping[str, int] = field(default_factory=dict)
    throttle_state: tuple[int, ...] = ()


class Mapper:
    """Event times of several channels in, watermarks and idle markers out."""

    def __init__(self, config: MapperConfig, state: MapperState | None = None) -> None:
        state = state or MapperState()
        self._config = config
        self._coalescer = Coalescer.restore(state.coalescer)
        self._throttle = config.throttle.build(state.throttle_state)
        self._policies: dict[str, PolicyRun] = {
            channel: config.policy.build(numbers) for channel, numbers in state.policies.items()
        }
        self._quiet_since_ms = dict(state.quiet_since_ms)
        self._watermark_ms: dict[str, int] = {
            channel: watermarks[config.key]
            for channel, (_, watermarks) in state.coalescer.channels.items()
            if config.key in watermarks
        }

    def add(self, channels: Iterable[str], now_ms: int) -> list[Output]:
        """Channels appear: active, without a watermark, so they block; they never move the output back."""
        changes = []
        for channel in channels:
            changes.append(ChannelAdded(channel))
            self._policies[channel] = self._config.policy.build()
            self._quiet_since_ms[channel] = now_ms
        return self._send(self._coalescer.step(changes, now_ms))

    def remove(self, channel: str, now_ms: int, wall_ms: int | None = None) -> list[Output]:
        """A channel disappears; that may release a watermark or leave everything idle."""
        self._coalescer.status(channel)
        del self._policies[channel]
        del self._quiet_since_ms[channel]
        self._watermark_ms.pop(channel, None)
        return self._evaluate([ChannelRemoved(channel)], now_ms, wall_ms)

    def event(self, channel: str, event_ms: int | None, now_ms: int, wall_ms: int | None = None) -> list[Output]:
        """Take one event; the answer stands before it. `wall_ms`: the policy's clock where it is another one."""
        self._coalescer.status(channel)
        if event_ms is None:
            raise InputError(f"an event of channel {channel} has no event time, and nothing else gives it one")
        self._policies[channel].observe(event_ms, now_ms if wall_ms is None else wall_ms)
        self._quiet_since_ms[channel] = now_ms
        return self._evaluate([ChannelWoken(channel)], now_ms, wall_ms, cap_ms=event_ms)

    def tick(self, now_ms: int, wall_ms: int | None = None, *, behind: frozenset[str] = frozenset()) -> list[Output]:
        """Nothing came. `behind`: channels with a backlog, which are not idle however long nothing came."""
        return self._evaluate([], now_ms, wall_ms, behind=behind)

    def watermark_ms(self, channel: str) -> int | None:
        """A channel's own watermark, not throttled."""
        self._coalescer.status(channel)
        return self._watermark_ms.get(channel)

    def snapshot(self) -> MapperState:
        """Everything the next step depends on."""
        return MapperState(
            coalescer=self._coalescer.snapshot(),
            policies={channel: policy.snapshot() for channel, policy in self._policies.items()},
            quiet_since_ms=dict(self._quiet_since_ms),
            throttle_state=self._throttle.snapshot(),
        )

    def _evaluate(
        self,
        changes: list[Change],
        now_ms: int,
        wall_ms: int | None,
        *,
        cap_ms: int = MAX_MS,
        behind: frozenset[str] = frozenset(),
    ) -> list[Output]:
        clock_ms = now_ms if wall_ms is None else wall_ms
        for channel, policy in self._policies.items():
            idle = self._config.idleness.is_idle(
                quiet_since_ms=self._quiet_since_ms[channel], now_ms=now_ms, caught_up=channel not in behind
            )
            if idle:
                if self._coalescer.status(channel) is Status.ACTIVE:
                    changes.append(ChannelWentIdle(channel))
                continue
            watermark_ms = policy.current(clock_ms)
            if watermark_ms is None:
                continue
            watermark_ms = min(watermark_ms, cap_ms)
            before_ms = self._watermark_ms.get(channel)
            if before_ms is None or watermark_ms > before_ms:
                self._watermark_ms[channel] = watermark_ms
                changes.append(WatermarkAdvanced(channel, self._config.key, watermark_ms))
        return self._send(self._coalescer.step(changes, now_ms))

    def _send(self, coalesced: list[Output]) -> list[Output]:
        outputs: list[Output] = []
        for output in coalesced:
            if isinstance(output, IdleMarker):
                outputs.append(output)
                continue
            time_ms = self._throttle.end_of_batch(output.time_ms)
            if time_ms is not None:
                outputs.append(Watermark(output.key, time_ms))
        return outputs
