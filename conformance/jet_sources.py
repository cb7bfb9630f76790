"""Jet's mapper, policies, throttles, frames and timestamp history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.axis_runs import AxisPolicy, AxisThrottle
from conformance.jet_coalescing import flat
from conformance.models.frames import higher_frame
from conformance.models.mapper import MapperConfig
from conformance.models.peers import Ring, RingDelay
from conformance.oracle_sources import MapperPlayer
from conformance.verdict import MATCH, Verdict, compare, fail, otherwise
from keyedwm.core.errors import InputError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import FixedLag, LagAndDelay, LagAndLull, Policy, PolicyRun, RealTimeLag
from keyedwm.core.policy import TimestampAndWallClockLag as TimestampAndWallClock
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleByFrame, ThrottleByStep, floor_frame
from keyedwm.core.watermark import History


@dataclass(frozen=True, slots=True)
class Constant:
    """A policy of the vectors: always the same watermark, whatever comes."""

    value_ms: int
    event_lag_ms: int | None = None

    def build(self, _resume_from: object = None) -> PolicyRun:
        """It has no state."""
        return _ConstantRun(self.value_ms)

    def concatenate(self, _first: object, _then: object) -> tuple[int, ...]:
        """Nothing."""
        return ()


class _ConstantRun:
    def __init__(self, value_ms: int) -> None:
        self._value_ms = value_ms

    def observe(self, _event_ms: int, _now_ms: int) -> None:
        pass

    def current(self, _now_ms: int) -> int | None:
        return self._value_ms

    def snapshot(self) -> tuple[int, ...]:
        return ()


def _policy_of(config: Mapping) -> Policy:
    return AxisPolicy(_scalar_policy_of(config))


def _scalar_policy_of(config: Mapping) -> Policy:
    kind = config["type"]
    if kind == "limiting_lag":
        return FixedLag(config["lag"])
    if kind == "limiting_real_time_lag":
        return RealTimeLag(config["lag"])
    if kind == "limiting_lag_and_delay":
        return LagAndDelay(config["lag"], config["max_delay_ms"])
    if kind == "limiting_lag_and_lull":
        return LagAndLull(config["lag"], config["max_lull_ms"])
    if kind == "limiting_timestamp_and_wall_clock_lag":
        return TimestampAndWallClock(config["timestamp_lag"], config["wall_clock_lag"])
    return {"constant": Constant}[kind](config["value"])


def _mapper(vector: dict) -> Verdict:
    config = vector["config"]
    settings = MapperConfig(
        policy=_policy_of(config["policy"]),
        throttle=AxisThrottle(ThrottleByFrame(config["throttle_frame"], config.get("throttle_offset", 0))),
        idleness=Idleness(config["idle_timeout_ms"] or None),
        key=config.get("wm_key", 0),
    )
    mapper = MapperPlayer(settings, own_clock=False)
    for index, step in enumerate(vector["steps"]):
        try:
            actual = _mapper_step(mapper, step, settings.key)
        except InputError as error:
            return MATCH if step.get("error") == "missing_timestamp" else fail(str(error), index, step.get("emit"))
        if "error" in step:
            return fail("nothing was refused", index, step["error"], actual)
        expected = step["expect"] if step["op"] == "get" else _emitted(step)
        if actual != expected:
            return fail("the answers differ", index, expected, actual)
    return MATCH


def _mapper_step(mapper: MapperPlayer, step: dict, key: int) -> object:
    op, now_ms = step["op"], step.get("now", 0)
    if op == "get":
        return mapper.watermark_ms(step["partition"])
    if op == "restore":
        mapper.restore(step["partition"], step["wm"])
        return []
    if op == "restore_min":
        mapper.restore(0, min(step["values"]))
        return []
    wall_ms = step.get("wall", now_ms)
    arguments = {
        "add_partitions": ["add", now_ms, step.get("count")],
        "tick": ["tick", now_ms, wall_ms],
        "event": ["event", now_ms, step.get("partition"), step.get("ts"), wall_ms],
        "remove_partition": ["remove", now_ms, step.get("partition"), wall_ms],
    }[op]
    answers = mapper(arguments[0], arguments[1:])
    return [("wm", key, item[1]) if item[0] == "wm" else tuple(item) for item in answers]


def _emitted(step: dict) -> list[tuple]:
    return [("event", item["event"]) if "event" in item else flat(item) for item in step.get("emit", [])]


def _frames_or_throttle(vector: dict) -> Verdict:
    return _frames(vector) if vector["kind"] == "frames" else _throttle(vector)


def _frames(vector: dict) -> Verdict:
    size_ms, offset_ms = vector["config"]["frame_size"], vector["config"]["frame_offset"]
    expected, actual = [], []
    for step in vector["steps"]:
        answers = {
            "floor": floor_frame(step["ts"], size_ms, offset_ms),
            "higher": higher_frame(step["ts"], size_ms, offset_ms),
        }
        expected.append({name: step[name] for name in answers if name in step})
        actual.append({name: answers[name] for name in answers if name in step})
    return compare(expected, actual)


def _throttle(vector: dict) -> Verdict:
    config = vector["config"]["policy"]
    throttles: dict[str, Callable[[], Throttle]] = {
        "by_frame": lambda: ThrottleByFrame(config["frame_size"], config.get("frame_offset", 0)),
        "by_min_step": lambda: ThrottleByStep(config["min_step"]),
        "none": NoThrottle,
        "suppress": lambda: ThrottleByFrame(0),
    }
    run = AxisThrottle(throttles[config["type"]]()).build()
    expected, actual = [], []
    for step in vector["steps"]:
        sent_ms = None if step["ideal"] is None else run.admit(step["ideal"])
        last = run.snapshot()
        expected.append((step["last"], step["emitted"]))
        actual.append((last[0] if last else None, sent_ms is not None))
    return compare(expected, actual)


def _policy(vector: dict) -> Verdict:
    config = vector["config"]["policy"]
    verdict = compare(_policy_expected(vector), _policy_run(vector, _policy_of(config).build()))
    if verdict is MATCH or config["type"] != "limiting_lag_and_delay":
        return verdict
    ring = RingDelay(config["lag"], config["max_delay_ms"], config["samples"])
    if compare(_policy_expected(vector), _policy_run(vector, ring)) is MATCH:
        return otherwise("rule 7: the delay is exact, not a slot early", verdict.step)
    return verdict


def _policy_expected(vector: dict) -> list:
    return [step["expect"] for step in vector["steps"]]


def _policy_run(vector: dict, run: PolicyRun) -> list:
    now_ms = 0
    watermarks = []
    for step in vector["steps"]:
        now_ms = step.get("now", now_ms)
        if step["op"] == "report":
            run.observe(step["ts"], now_ms)
        watermarks.append(run.current(now_ms))
    return watermarks


def _history(vector: dict) -> Verdict:
    config = vector["config"]
    expected = [step["expect"] for step in vector["steps"]]
    history = History()
    ring = Ring(config["max_delay"], config["samples"])
    exact, slotted = [], []
    for step in vector["steps"]:
        if step["value"] is not None:
            history.note(step["now"], step["value"])
        exact.append(history.known_at(step["now"] - config["max_delay"]))
        slotted.append(ring.sample(step["now"], step["value"]))
    verdict = compare(expected, exact)
    if verdict is MATCH or compare(expected, slotted) is not MATCH:
        return verdict
    return otherwise("rules 6 and 7: what was known is exact, not a slot early", verdict.step)


SOURCES: Mapping[str, Callable[[dict], Verdict]] = {
    "event time mapper of a source processor": _mapper,
    "frame arithmetic and watermark throttling": _frames_or_throttle,
    "watermark policy": _policy,
    "timestamp history": _history,
}
