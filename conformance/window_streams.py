"""Streams through the product's windows alone: panes, several aggregates and inputs, lateness, count windows.

Rule: what the vectorised windows have a setting for runs there; what only the operators that keep messages have (a step
that does not divide the size, late panes together, windows of rows) runs there. A difference must be one that a rule of
the design makes (`pane_rules.py`). Fields without a counterpart are not compared: where output waits, and of the
runner's vectors another time of a result than its window's end.
"""

from __future__ import annotations

from conformance.decided import CLOCK_DUE, LAST
from conformance.dropped import DroppedRows
from conformance.late_rows import LateRows
from conformance.pane_match import Matcher
from conformance.pane_rules import Rules
from conformance.store_player import StorePlayer, is_counted
from conformance.stream_words import StreamConfig
from conformance.trigger_plans import Panes, panes_of
from conformance.verdict import MATCH, Outcome, Verdict, fail, otherwise
from conformance.window_player import Player, WindowPlayer


def streams(vector: dict) -> Verdict:
    """Replay a vector of steps; Beam runs timers only when their time is over, so its panes may be that much later."""
    panes = panes_of(vector["config"])
    panes = panes.with_late_first() if _speaks_late_first(vector) else panes
    verdict, later = _played(vector, panes), panes.a_millisecond_later()
    if verdict.outcome is not Outcome.FAIL or later is None or not vector["family"].startswith("beam."):
        return verdict
    again = _played(vector, later)
    return verdict if again.outcome is Outcome.FAIL else otherwise(CLOCK_DUE, verdict.step)


def _played(vector: dict, panes: Panes) -> Verdict:
    config = vector["config"]
    stream_configs = [StreamConfig(vector, window) for window in config.get("windows", [config.get("window", config)])]
    in_store = [_needs_store(one, panes) for one in stream_configs]
    players = [_player(one, panes, in_store=stored) for one, stored in zip(stream_configs, in_store, strict=True)]
    times = [row["event_time"] for step in vector["steps"] for row in stream_configs[0].rows(step)]
    late = LateRows(stream_configs[0])
    rules = Rules(stream_configs[0], panes, in_store=any(in_store), times=frozenset(times), late=late)
    is_ordered = vector.get("compare", {}).get("order") == "exact" and len(stream_configs) == 1
    matcher = Matcher(rules, _skipped(vector, stream_configs[0]), is_ordered=is_ordered)
    dropped_rows = (
        DroppedRows(stream_configs[0], panes) if any("dropped_total" in step for step in vector["steps"]) else None
    )
    only_counts = "metric" in config and not any(step["out"] for step in vector["steps"])
    first = None
    for index, step in enumerate(vector["steps"]):
        answers = [answer for player in players for answer in player.step(step)]
        if dropped_rows is not None:
            dropped_rows.step(step)
            if step.get("dropped_total", dropped_rows.total) != dropped_rows.total:
                return fail("the count of dropped rows differs", index, step["dropped_total"], dropped_rows.total)
        if not late.agrees(step, players[0].late_rows):
            return fail("late differs", index, step.get("dropped", False), players[0].late_rows)
        if only_counts:
            matcher.ignore(answers)
            continue
        if not matcher.step(step, answers) or (step["do"] == "watermark" and not matcher.is_answered()):
            return fail("the answers differ", index, step["out"], answers)
        first = index if first is None and matcher.reasons else first
    return MATCH if first is None else otherwise(_main(matcher.reasons), first)


def _speaks_late_first(vector: dict) -> bool:
    """Whether the first that the vector tells of a window is a late pane."""
    panes: list[dict] = []
    window = vector["config"].get("window", vector["config"])
    for one in (one for step in vector["steps"] for one in step["out"]):
        if one.get("timing") == "LATE" and not any(
            _overlaps(one, other, is_session="gap" in window) for other in panes
        ):
            return True
        panes.append(one)
    return False


def _overlaps(one: dict, other: dict, *, is_session: bool) -> bool:
    """Whether two panes may be of one window."""
    if one.get("key") != other.get("key") or not {"start", "end"} <= one.keys() & other.keys():
        return one.get("key") == other.get("key")
    if not is_session:
        return (one["start"], one["end"]) == (other["start"], other["end"])
    return one["start"] < other["end"] and other["start"] < one["end"]


def _main(reasons: list[str]) -> str:
    """What differs: that a pane is the last one goes without saying where another rule is at work."""
    return next((one for one in reasons if one != LAST), LAST)


def _needs_store(stream: StreamConfig, panes: Panes) -> bool:
    if is_counted(stream.window_config):
        return True
    if stream.session is not None:
        return panes.is_late_together and stream.accumulating
    return panes.is_late_together or stream.size_ms % stream.slide_ms != 0


def _player(stream: StreamConfig, panes: Panes, *, in_store: bool) -> Player:
    return StorePlayer(stream, panes) if in_store else WindowPlayer(stream, panes)


def _skipped(vector: dict, stream: StreamConfig) -> frozenset[str]:
    """Fields that are not compared."""
    runs_elsewhere = vector["family"] == "beam.runner" and vector["config"].get("output_time", "eow") != "eow"
    return frozenset({"output_ts"} if runs_elsewhere or stream.is_global else ())
