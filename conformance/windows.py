"""The window files: one JSON object each, by `family`. The families that the pure algebra alone decides.

Rule: with `compare.partial` only fields that the expected output lists are compared; with order `any` the outputs of a
step are a multiset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.aggregates import AGGREGATES
from conformance.axis_runs import AxisPolicy, is_late
from conformance.clock_joins import clock_join
from conformance.decided import CLOSES, NO_GLOBAL
from conformance.disagreement import DisagreementError
from conformance.engine import BothSessions, BothSliding, windows_of
from conformance.golden_windows import flights
from conformance.keyed_data import keyed_data
from conformance.message_stores import message_store
from conformance.models.results import Late, WindowResult
from conformance.models.sessions import SessionConfig, Sessions
from conformance.models.sliding import Sliding, SlidingConfig
from conformance.nexmark import nexmark
from conformance.retold import samza
from conformance.session_close import Closing
from conformance.session_runs import merged
from conformance.store_player import windows_with
from conformance.stored import aggregator
from conformance.stored_sessions import sessions
from conformance.stream_words import StreamConfig
from conformance.verdict import MATCH, Verdict, compare, fail, otherwise
from conformance.window_joins import session_join, window_join
from conformance.window_streams import streams
from keyedwm.core.policy import FixedLag, PolicyRun
from keyedwm.core.window_rules import LateRule, Touching

SCHEMA = "keyedwm.windows.vector/1"


def is_windows(value: object) -> bool:
    """Whether a JSON value is a window file."""
    return isinstance(value, dict) and value.get("schema") == SCHEMA


def replay(vector: dict) -> Verdict:
    """Replay one file."""
    play = FAMILIES.get(vector["family"])
    if play is None:
        return fail(f"window family {vector['family']!r} is not known; known are {', '.join(sorted(FAMILIES))}")
    return play(vector)


def _assign(vector: dict) -> Verdict:
    """The windows that an event alone comes out in: of the vectorised operator, and of the one that keeps messages."""
    stream = StreamConfig(vector | {"steps": []}, vector["config"])
    expected, actual = [], []
    for case in vector["cases"]:
        if stream.is_global:
            return otherwise(NO_GLOBAL, 0) if case["windows"] == [["min", "max"]] else fail("no window over everything")
        windows = windows_with(case["ts"], stream)
        divides = stream.session is None and stream.size_ms % stream.slide_ms == 0
        if divides:
            own = windows_of(case["ts"], SlidingConfig(stream.size_ms, stream.slide_ms, stream.offset_ms))
            if own != windows:
                raise DisagreementError(f"an event at {case['ts']} ms comes out in {own}, and if kept in {windows}")
        actual.append(windows)
        expected.append(sorted(case["windows"]))
    return compare(expected, actual)


def _merge(vector: dict) -> Verdict:
    gap_ms, touching = vector["config"]["gap"], _touching(vector)
    expected, actual = [], []
    for case in vector["cases"]:
        groups = merged([(time_ms, time_ms + gap_ms) for time_ms in case["input"]], touching)
        actual.append(
            [
                {"start": start, "end": end, "values": sorted(one for one in case["input"] if start <= one < end)}
                for (start, end), _ in groups
            ]
        )
        expected.append(sorted(case["windows"], key=lambda window: window["start"]))
    return compare(expected, actual)


def _operator(config: Mapping, touching: Touching) -> Sliding | Sessions:
    name, aggregate = config["agg"], AGGREGATES[config["agg"]]
    if "gap" in config:
        rule = LateRule.EVENT if config.get("late") == "ts<wm" else LateRule.WINDOW
        return BothSessions(SessionConfig(config["gap"], touching, late_rule=rule), name, aggregate)
    slide_ms = config.get("slide", config["size"])
    size_ms = slide_ms if config.get("stage") == "accumulate-by-frame" else config["size"]
    return BothSliding(
        SlidingConfig(size_ms, slide_ms, config.get("offset", 0), late_rule=LateRule.FRAME), name, aggregate
    )


def _windows(vector: dict) -> Verdict:
    config = vector["config"]
    touching, first = _touching(vector), None
    operator, closing = _operator(config, touching), Closing(config, touching)
    for index, step in enumerate(vector["steps"]):
        results = _step(operator, config, step)
        actual = [_as_answer(result) for result in results if isinstance(result, WindowResult)]
        if step["do"] == "watermark" and config.get("emits_wm"):
            actual.append({"wm": step["ts"]})
        late = Late() in results
        both = closing.moved_to(step, actual)
        if late != step.get("dropped", False) or both is None or not _same(*both, vector["compare"]):
            return fail("the answers differ", index, step["out"], "late" if late else actual)
        first = index if first is None and closing.has_moved else first
    if first is None:
        return MATCH
    left = [_as_answer(result) for result in operator.complete() if isinstance(result, WindowResult)]
    return otherwise(CLOSES, first) if closing.is_kept(left) else fail("a session has not come", first, "", left)


def _touching(vector: dict) -> Touching:
    """Sessions of Jet that touch stay apart, others merge, unless the vector says."""
    default = "separate" if vector["family"].startswith("jet.") else "merge"
    touch = vector["config"].get("touch", "n/a")
    return Touching(default if touch == "n/a" else touch)


def _step(operator: Sliding | Sessions, config: Mapping, step: dict) -> list[WindowResult | Late]:
    kind, key = step["do"], step.get("key", "")
    if kind == "event":
        return operator.event(step["ts"], key, step["value"])
    if kind == "watermark":
        return operator.watermark(step["ts"])
    if kind == "frame" and isinstance(operator, Sliding):
        return operator.frame(step["end"], key, frozenset(step["value"]) if config["agg"] == "set" else step["value"])
    return {"end": operator.complete}[kind]()


def _as_answer(result: WindowResult) -> dict:
    return {"start": result.start_ms, "end": result.end_ms, "key": result.key, "value": result.value}


def _same(expected: list[dict], actual: list[dict], how: Mapping) -> bool:
    if len(expected) != len(actual):
        return False
    if how["order"] == "any":
        expected, actual = sorted(expected, key=_place), sorted(actual, key=_place)
    if not how.get("partial"):
        return expected == actual
    return all(
        expected_row.items() <= actual_row.items() for expected_row, actual_row in zip(expected, actual, strict=True)
    )


def _place(item: dict) -> tuple:
    return (item.get("wm", float("-inf")), item.get("end", 0), item.get("start", 0), repr(item.get("key", "")))


def _keyed_watermark(vector: dict) -> Verdict:
    """One watermark for all keys against one for each: highest event less the bound."""
    bound_ms = vector["config"]["bound"]
    whole = AxisPolicy(FixedLag(bound_ms)).build()
    keyed: dict[str, PolicyRun] = {}
    for index, step in enumerate(vector["steps"]):
        if step["do"] == "emit":
            watermarks = {"global_wm": whole.current(0), "keyed": {key: run.current(0) for key, run in keyed.items()}}
            if watermarks != {"global_wm": step["global_wm"], "keyed": step["keyed"]}:
                return fail("the watermarks differ", index, step, watermarks)
            continue
        key_policy = keyed.setdefault(str(step["key"]), AxisPolicy(FixedLag(bound_ms)).build())
        is_late_flags = (is_late(step["ts"], whole.current(0)), is_late(step["ts"], key_policy.current(0)))
        if is_late_flags != (step.get("late_global", False), step.get("late_keyed", False)):
            return fail("late differs", index, step, is_late_flags)
        whole.observe(step["ts"], 0)
        key_policy.observe(step["ts"], 0)
    return MATCH


def _has_panes(vector: dict) -> bool:
    """Whether a stream of sessions has panes, lateness, or its rows by a rule."""
    return "input_rule" in vector or bool({"trigger", "allowed_lateness", "mode"} & vector["config"].keys())


def _is_join(vector: dict) -> bool:
    return vector["config"].get("operator") == "join-window"


FAMILIES: Mapping[str, Callable[[dict], Verdict]] = {
    "assign": _assign,
    "session.merge": _merge,
    "jet.sliding": _windows,
    "jet.session": _windows,
    "jet.frames": _windows,
    "session.stream": lambda vector: (streams if _has_panes(vector) else _windows)(vector),
    "session.lateness": streams,
    "sliding.stream": streams,
    "multi.window": streams,
    "count.window": streams,
    "jet.cogroup": streams,
    "beam.trigger": streams,
    "beam.runner": streams,
    "samza.window": samza,
    "samza.join": clock_join,
    "seed.aggregate": aggregator,
    "seed.replay": aggregator,
    "seed.backpressure": aggregator,
    "seed.standalone": lambda vector: (window_join if _is_join(vector) else aggregator)(vector),
    "seed.store": message_store,
    "seed.join": window_join,
    "join.window.rows": session_join,
    "seed.session": sessions,
    "data.golden": flights,
    "nexmark": nexmark,
    "keyed.watermark": _keyed_watermark,
    "keyed.watermark.data": keyed_data,
}
