"""Players for the oracles of policies, throttles, frames and source mappers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from conformance.axis_runs import AxisPolicy, AxisThrottle
from conformance.models.frames import higher_frame
from conformance.models.mapper import Mapper, MapperConfig
from conformance.oracle_coalescing import as_lists
from conformance.planned import mapper_of
from conformance.players import Maker, Player
from keyedwm.core.coalescer import CoalescerState, CommonState
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import FixedLag, LagAndDelay, LagAndLull, Policy, RealTimeLag, TimestampAndWallClockLag
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleByFrame, ThrottleByStep, floor_frame
from keyedwm.core.watermark import Status


def _policy_of(config: Mapping) -> Policy:
    return AxisPolicy(_scalar_policy_of(config))


def _scalar_policy_of(config: Mapping) -> Policy:
    kind, lag_ms = config["policy"], config["lag"]
    if kind == "lag":
        return FixedLag(lag_ms)
    if kind == "wall":
        return RealTimeLag(lag_ms)
    if kind == "lag_delay":
        return LagAndDelay(lag_ms, config["max_delay"])
    if kind == "lag_lull":
        return LagAndLull(lag_ms, config["max_lull"])
    return {"ts_wall": TimestampAndWallClockLag}[kind](lag_ms, config["wall_lag"])


def _throttle_of(config: Mapping) -> Throttle:
    return AxisThrottle(_scalar_throttle_of(config))


def _scalar_throttle_of(config: Mapping) -> Throttle:
    kind = config.get("throttle", "frame" if "frame" in config else "none")
    if kind == "frame":
        return ThrottleByFrame(config["frame"] if "frame" in config else config["size"], config["offset"])
    return ThrottleByStep(config["step"]) if kind == "step" else {"none": NoThrottle}[kind]()


def _frames(config: Mapping) -> Player:
    def play(_op: str, arguments: list) -> list:
        settings = (arguments[0], config["slide"], config["offset"])
        return [["frame", floor_frame(*settings), higher_frame(*settings)]]

    return play


def _throttle(config: Mapping) -> Player:
    run = _throttle_of(config).build()

    def play(_op: str, arguments: list) -> list:
        sent_ms = run.admit(arguments[0])
        return [] if sent_ms is None else [["wm", sent_ms]]

    return play


def _policy(config: Mapping) -> Player:
    """With a clock as the first argument (0.7.2) or without one (limitingLag)."""
    run = _policy_of(config).build()

    def play(op: str, arguments: list) -> list:
        now_ms = arguments[0] if len(arguments) > (op == "report") else 0
        if op == "report":
            run.observe(arguments[-1], now_ms)
        return [["wm", run.current(now_ms)]]

    return play


class MapperPlayer:
    """Partitions by index, as the mappers of both versions number them."""

    def __init__(self, config: MapperConfig, *, own_clock: bool) -> None:
        self._config = config
        self._own_clock = own_clock
        self._mapper = mapper_of(config)
        self._names: list[str] = []
        self._channel_count = 0
        self._unseen: dict[str, int] = {}

    def __call__(self, op: str, arguments: list) -> list:
        """Play one operation of the oracle files."""
        now_ms, *rest = arguments
        if op == "add":
            return as_lists(self.add(now_ms, rest[0]), keyed=False)
        if op == "get":
            return [["get", self.watermark_ms(rest[0])]]
        if op == "restore":
            self.restore(rest[0], rest[1])
            return []
        wall_ms = now_ms if self._own_clock else rest[-1]
        self._see_restored(now_ms, self._names[rest[0]] if op == "event" else None)
        if op == "event":
            outputs = self._mapper.event(self._names[rest[0]], rest[1], now_ms, wall_ms)
            return [*as_lists(outputs, keyed=False), ["event", rest[1]]]
        if op == "remove":
            return as_lists(self._mapper.remove(self._names.pop(rest[0]), now_ms, wall_ms), keyed=False)
        return as_lists({"tick": self._mapper.tick}[op](now_ms, wall_ms), keyed=False)

    def add(self, now_ms: int, count: int) -> list:
        """Append partitions."""
        new = [f"c-{self._channel_count + number:04d}" for number in range(count)]
        self._channel_count += count
        self._names += new
        return self._mapper.add(new, now_ms)

    def watermark_ms(self, index: int) -> int | None:
        """A partition's own watermark."""
        return self._mapper.watermark_ms(self._names[index])

    def restore(self, index: int, watermark_ms: int) -> None:
        """Give a partition its watermark back; the minimum over all of them is a floor for the output."""
        name, key = self._names[index], self._config.key
        state = self._mapper.snapshot()
        channels = {**state.coalescer.channels, name: (Status.ACTIVE, {key: watermark_ms})}
        known = [watermarks[key] for _, watermarks in channels.values() if key in watermarks]
        floor = (min(known),) if len(known) == len(channels) else ()
        common = CommonState(emitted={key: floor[0]} if floor else {}, top=state.coalescer.common.top)
        self._mapper = Mapper(
            self._config, replace(state, coalescer=CoalescerState(channels, common), throttle_state=floor)
        )
        self._unseen[name] = watermark_ms

    def _see_restored(self, now_ms: int, waking: str | None) -> None:
        """A restored watermark counts as seen when its partition is first looked at while it is not idle."""
        if not self._unseen:
            return
        state = self._mapper.snapshot()
        top = dict(state.coalescer.common.top)
        for name, watermark_ms in list(self._unseen.items()):
            quiet_since_ms = state.quiet_since_ms.get(name, now_ms)
            if name == waking or not self._config.idleness.is_idle(
                quiet_since_ms=quiet_since_ms, now_ms=now_ms, caught_up=True
            ):
                del self._unseen[name]
                top[self._config.key] = max(watermark_ms, top.get(self._config.key, watermark_ms))
        coalescer = replace(state.coalescer, common=replace(state.coalescer.common, top=top))
        self._mapper = Mapper(self._config, replace(state, coalescer=coalescer))


def _mapper(config: Mapping) -> Player:
    settings = MapperConfig(_policy_of(config), _throttle_of(config), Idleness(config["timeout"] or None))
    return MapperPlayer(settings, own_clock=config["policy"] == "lag_lull")


SOURCES: Mapping[str, Maker] = {
    "jet-frames": _frames,
    "jet-lag-policy": _policy,
    "jet-legacy-policy": _policy,
    "jet-legacy-throttle": _throttle,
    "jet-mapper": _mapper,
    "jet-legacy-mapper": _mapper,
}
