"""Players for the oracles of window operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from conformance.aggregates import AGGREGATES
from conformance.engine import BothSessions, BothSliding, Results
from conformance.models.results import Late, WindowResult
from conformance.models.sessions import SessionConfig
from conformance.models.sliding import SlidingConfig
from conformance.players import Maker, Player
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.window_rules import LateRule, Touching


def _same(accumulator: object) -> object:
    return accumulator


class _Windows(Protocol):
    def event(self, event_ms: int, key: object, value: object) -> Results: ...

    def watermark(self, time_ms: int) -> Results: ...

    def complete(self) -> Results: ...


class TwoStages:
    """A first stage that combines events into frames, and a second one that combines frames into windows."""

    def __init__(self, config: SlidingConfig, name: str, aggregate: AccumulatorFunctions) -> None:
        frames = SlidingConfig(config.slide_ms, config.slide_ms, config.offset_ms, late_rule=config.late_rule)
        self._first = BothSliding(frames, name, replace(aggregate, finish=_same))
        self._second = BothSliding(config, name, aggregate)

    def event(self, event_ms: int, key: object, value: object) -> Results:
        """Into the first stage."""
        return self._first.event(event_ms, key, value)

    def watermark(self, time_ms: int) -> Results:
        """Through both stages."""
        self._pass_on(self._first.watermark(time_ms))
        return self._second.watermark(time_ms)

    def complete(self) -> Results:
        """Through both stages."""
        self._pass_on(self._first.complete())
        return self._second.complete()

    def _pass_on(self, results: Iterable[WindowResult | Late]) -> None:
        for result in results:
            if isinstance(result, WindowResult):
                self._second.frame(result.end_ms, result.key, result.value)


def shown_results(results: Results) -> list[list]:
    """Results as the oracle files write them."""
    return [
        ["late"] if isinstance(result, Late) else ["win", result.start_ms, result.end_ms, result.key, result.value]
        for result in results
    ]


def _player(windows: _Windows) -> Player:
    def play(op: str, arguments: list) -> list:
        if op == "event":
            return shown_results(windows.event(*arguments))
        if op == "wm":
            return [*shown_results(windows.watermark(arguments[0])), ["wm", arguments[0]]]
        return shown_results({"complete": windows.complete}[op]())

    return play


def _sliding(default_rule: LateRule) -> Maker:
    def make(config: Mapping) -> Player:
        settings = SlidingConfig(
            size_ms=config["size"],
            slide_ms=config["slide"],
            offset_ms=config["offset"],
            lateness_ms=config.get("lateness", 0),
            late_rule=LateRule(config.get("late_rule", default_rule.value)),
        )
        name = config["aggregate"]
        aggregate = AGGREGATES[name]
        two_stages = config.get("stages", 1) == 2 and settings.late_rule is LateRule.FRAME
        return _player(TwoStages(settings, name, aggregate) if two_stages else BothSliding(settings, name, aggregate))

    return make


def _sessions(late_rule: LateRule) -> Maker:
    def make(config: Mapping) -> Player:
        settings = SessionConfig(
            gap_ms=config["gap"],
            touching=Touching(config["touching"]),
            lateness_ms=config.get("lateness", 0),
            late_rule=late_rule,
        )
        return _player(BothSessions(settings, config["aggregate"], AGGREGATES[config["aggregate"]]))

    return make


WINDOWS: Mapping[str, Maker] = {
    "jet-sliding": _sliding(LateRule.FRAME),
    "flink-windows": _sliding(LateRule.WINDOW),
    "jet-session": _sessions(LateRule.EVENT),
    "flink-sessions": _sessions(LateRule.WINDOW),
}
