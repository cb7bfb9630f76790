"""Jet's sliding, session and two-stage windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from conformance.aggregates import AGGREGATES
from conformance.engine import BothSessions, BothSliding, Results
from conformance.jet_coalescing import guarantee_of
from conformance.models.results import Late, WindowResult
from conformance.models.sessions import Session, SessionConfig, Sessions, SessionState
from conformance.models.sliding import SlidingConfig, SlidingState, common_window_end, watermark_before
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import LateRule, Touching


def _as_answers(results: Results) -> list[dict]:
    return [
        {"window": [result.start_ms, result.end_ms], "key": result.key, "value": result.value}
        for result in results
        if isinstance(result, WindowResult)
    ]


def _same(expected: list, actual: list) -> bool:
    """Results of one step in any order, watermarks behind them."""
    watermarks = [[at for at, item in enumerate(items) if "wm" in item] for items in (expected, actual)]
    return sorted(map(repr, expected)) == sorted(map(repr, actual)) and watermarks[0] == watermarks[1]


def _config(config: Mapping) -> SlidingConfig:
    size_ms = config["slide_by"] if config.get("stage") == "first" else config["window_size"]
    return SlidingConfig(size_ms, config["slide_by"], config.get("offset", 0), late_rule=LateRule.FRAME)


def _aggregate(config: Mapping) -> AccumulatorFunctions:
    whole = AGGREGATES[config["aggregate"]]
    return replace(whole, finish=lambda accumulator: accumulator) if config.get("stage") == "first" else whole


class SlidingPlayer:
    """One operator, replaced by a new one at a restore."""

    def __init__(self, config: Mapping) -> None:
        self._config = config
        self.windows = BothSliding(_config(config), config["aggregate"], _aggregate(config))

    def play(self, step: dict) -> tuple[list, bool]:
        """What a step gives, and whether its event was late."""
        op = step["op"]
        if op == "wm":
            if step.get("key", 0) != self._config.get("wm_key", 0):
                return [], False
            key = {"key": step["key"]} if "key" in step else {}
            return [*_as_answers(self.windows.watermark(step["value"])), {"wm": step["value"], **key}], False
        if op == "restore":
            self._restore(step)
            return [], False
        if op == "snapshot":
            return (_as_answers(self.windows.flush()) if self._config.get("stage") == "first" else []), False
        results = {
            "event": lambda: self.windows.event(step["ts"], step["key"], step["value"]),
            "frame": lambda: self.windows.frame(step["end"], step["key"], step["value"]),
            "complete": self.windows.complete,
        }[op]()
        return _as_answers(results), Late() in results

    def next_window_end(self) -> int | None:
        """The end of the next window to close."""
        watermark_ms = self.windows.snapshot().watermark_ms
        if watermark_ms is None:
            return None
        config = _config(self._config)
        return watermark_before(watermark_ms + 1, config) + config.slide_ms

    def state(self) -> dict | None:
        """What a snapshot step shows; a first stage saves nothing."""
        if self._config.get("stage") == "first":
            return None
        frames = self.windows.snapshot().frames
        entries = [[end, key, frames[end][key]] for end in sorted(frames) for key in sorted(frames[end], key=repr)]
        return {"entries": entries, "next_window_end": self.next_window_end()}

    def _restore(self, step: dict) -> None:
        guarantee = guarantee_of(step.get("guarantee", "exactly_once"))
        self._config = {**self._config, **step.get("config", {})}
        config = _config(self._config)
        ends = [end_ms for end_ms in step["next_window_ends"] if end_ms is not None]
        watermark_ms = watermark_before(common_window_end(ends, guarantee), config) if ends else None
        frames: dict[int, dict] = {}
        for frame_end, key, accumulator in step["entries"]:
            frames.setdefault(frame_end, {})[key] = accumulator
        state = SlidingState(frames, watermark_ms)
        self.windows = BothSliding(config, self._config["aggregate"], _aggregate(self._config), state)


def _sliding(vector: dict) -> Verdict:
    try:
        player = SlidingPlayer(vector["config"])
    except OptionError as error:
        return MATCH if "error" in vector else fail(str(error))
    for index, step in enumerate(vector["steps"]):
        try:
            answers, late = player.play(step)
        except InputError as error:
            return MATCH if step.get("error") == "different_watermarks" else fail(str(error), index)
        if "error" in step:
            return fail("nothing was refused", index, step["error"], answers)
        checks: dict[str, tuple] = {
            "emit": (step.get("emit", []), answers),
            "late": (step.get("late", False), late),
            "held": (step.get("held"), len(player.windows.snapshot().frames)),
            "state": (step.get("state"), player.state()),
            "next_window_end": (step.get("next_window_end"), player.next_window_end()),
        }
        for name, (expected, actual) in checks.items():
            is_checked = name in step or name in ("emit", "late")
            if is_checked and not (_same(expected, actual) if name == "emit" else expected == actual):
                return fail(f"{name} differs", index, expected, actual)
    return MATCH


def _two_stages(vector: dict) -> Verdict:
    config = {**vector["config"]}
    first = {number: SlidingPlayer({**config, "stage": "first"}) for number in (0, 1)}
    second = SlidingPlayer({**config, "stage": "second"})
    on_the_way: list[dict] = []
    for index, step in enumerate(vector["steps"]):
        op = step["op"]
        actual: list = []
        if op == "deliver":
            for one in on_the_way:
                second.play({"op": "frame", "end": one["window"][1], "key": one["key"], "value": one["value"]})
            on_the_way.clear()
        elif op == "new":
            first[step["proc"]] = SlidingPlayer({**config, "stage": "first"})
        elif op == "wm2":
            actual, _ = second.play({"op": "wm", "value": step["value"]})
        else:
            renamed = {**step, "op": {"wm1": "wm"}.get(op, op), "key": 77} if op == "event" else {**step}
            renamed["op"] = "wm" if op == "wm1" else op
            actual, _ = first[step["proc"]].play(renamed)
            on_the_way += [item for item in actual if "window" in item]
        if "emit" in step and not _same(step["emit"], actual):
            return fail("emit differs", index, step["emit"], actual)
    return MATCH


def _sessions(vector: dict) -> Verdict:
    """Under both readings of touching sessions: one of them must give Jet's answers, or Jet's mixture of both does."""
    verdicts = [_sessions_with(vector, touching, shift_ms=0) for touching in Touching]
    if MATCH in verdicts:
        return MATCH
    if _sessions_with(vector, Touching.SEPARATE, shift_ms=1) is MATCH:
        return otherwise("rule 11: sessions that touch merge and close above their end, or neither", verdicts[0].step)
    return verdicts[1]


def _sessions_with(vector: dict, touching: Touching, shift_ms: int) -> Verdict:
    """`shift_ms` 1: sessions kept apart, but closed a millisecond later, which is what Jet does."""
    settings = vector["config"]
    config = SessionConfig(settings["timeout"], touching, late_rule=LateRule.EVENT)
    sessions: Sessions = BothSessions(config, "count", AGGREGATES["count"])
    for index, step in enumerate(vector["steps"]):
        op, actual, late = step["op"], [], False
        if op == "restore":
            try:
                sessions = _restored(config, step, shift_ms)
            except InputError as error:
                return MATCH if step.get("error") == "different_watermarks" else fail(str(error), index)
            if "error" in step:
                return fail("nothing was refused", index, step["error"])
            continue
        if op == "event":
            results = _event(sessions, config, step, shift_ms)
            late = Late() in results
        elif op == "complete":
            actual = _as_answers(sessions.complete())
        elif step.get("key", 0) == settings.get("wm_key", 0):
            key = {"key": step["key"]} if "key" in step else {}
            actual = [*_as_answers(sessions.watermark(step["value"] - shift_ms)), {"wm": step["value"], **key}]
        key_sessions = sessions.snapshot().sessions.get(step.get("key"), ())
        open_now = [[one.start_ms, one.end_ms, one.accumulator] for one in key_sessions]
        if not _same(step.get("emit", []), actual) or step.get("late", False) != late:
            return fail("the answers differ", index, step.get("emit", step.get("late")), actual or late)
        if "open" in step and step["open"] != open_now:
            return fail("the open sessions differ", index, step["open"], open_now)
    return MATCH


def _event(sessions: Sessions, config: SessionConfig, step: dict, shift_ms: int) -> Results:
    """A shifted watermark must not make an event on time that is late."""
    watermark_ms = sessions.snapshot().watermark_ms
    if shift_ms and watermark_ms is not None and step["ts"] < watermark_ms + shift_ms:
        return [Late()]
    return sessions.event(step["ts"], step["key"], config.gap_ms)


def _restored(config: SessionConfig, step: dict, shift_ms: int) -> Sessions:
    watermark_ms = common_window_end(step["watermarks"], guarantee_of(step["guarantee"])) - shift_ms
    sessions = {key: tuple(Session(*numbers) for numbers in windows) for key, windows in step["windows"].items()}
    return BothSessions(config, "count", AGGREGATES["count"], SessionState(sessions, watermark_ms))


WINDOWS: Mapping[str, Callable[[dict], Verdict]] = {
    "sliding / tumbling window aggregation by frames": _sliding,
    "two-stage sliding window with a snapshot in between": _two_stages,
    "session window aggregation": _sessions,
}
