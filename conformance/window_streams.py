"""Streams through the vectorised windows alone: panes, several aggregates and inputs, lateness, count windows.

Rule: where a rule of the design decides otherwise, `decided.py` holds the answers it gives at those steps, and they
must come. A count window is a tumbling window on another time axis, the number of arrival. Fields without a counterpart
are not compared: `nonspec_index`, and `output_ts` unless it is the window's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from conformance.decided import DECIDED, DIVIDES, ROW_TIME
from conformance.driver import DrivenOperator
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.errors import OptionError
from keyedwm.core.touching import Touching
from keyedwm.windows.aggregates import functions as agg
from keyedwm.windows.partials import combine_rows
from keyedwm.windows.plan import PANE, WINDOW, Early, LatePolicy, SessionWindow, SlidingWindow, WindowPlan

_AGGREGATES: Mapping[str, Callable[[str], agg.AggregateSpec]] = {
    "sum": agg.sum,
    "min": agg.min,
    "max": agg.max,
    "list": agg.collect,
    "count": lambda _: agg.count(),
}
_BY_CLOCK = (
    "each(repeat(5 ms after first element of pane) or-finally watermark, repeat(25 ms after first element of pane))"
)
_EARLY: Mapping[str, Early | None] = {
    "watermark(early=count(1), late=count(1))": Early(rows=1),
    "watermark(early=count(2))": Early(rows=2),
    "watermark(early=count(2), late=count(1))": Early(rows=2),
    "watermark(early=count(2), late=count(3))": Early(rows=2),
    "repeat(any(count(2), watermark))": Early(rows=2),
    "repeat(any(count(3), watermark))": Early(rows=3),
    "repeat(count(2))": Early(rows=2),
    "repeat(count(3))": Early(rows=3),
    "count(2)": Early(rows=2),
    "any(count(2), since_first(500))": Early(rows=2, every_ms=500),
    _BY_CLOCK: Early(every_ms=5),
    "watermark(late=count(2))": None,
    "watermark": None,
    "default": None,
}


def streams(vector: dict) -> Verdict:
    """Replay a vector of steps."""
    config = vector["config"]
    reason, ours = DECIDED.get(vector["id"], ("", {}))
    try:
        players = [_Player(words, config, vector) for words in config.get("windows", [config.get("window", config)])]
    except OptionError as error:
        size, slide = _size_and_slide(config.get("window", config))
        return otherwise(DIVIDES, 0) if size % slide else fail(str(error))
    first = None
    for index, step in enumerate(vector["steps"]):
        made = [shown for player in players for shown in player.step(step)]
        if index in ours or not _same(step["out"], made, config):
            first = index if first is None else first
            if index not in ours or not _same(ours[index], made, config) or _same(step["out"], made, config):
                return fail("the answers differ", index, ours.get(index, step["out"]), made)
    if reason == ROW_TIME:
        return _by_row_time(vector)
    return MATCH if first is None else otherwise(reason, first)


def _by_row_time(vector: dict) -> Verdict:
    """All else was alike: where another output time shows first."""
    for index, step in enumerate(vector["steps"]):
        if any(one["output_ts"] != one["end"] - 1 for one in step["out"]):
            return otherwise(ROW_TIME, index)
    return fail("the output times are the windows' ends, nothing is decided otherwise")


class _Player:
    """One operator, built anew from its blobs before each step."""

    def __init__(self, window: Mapping, config: Mapping, vector: dict) -> None:
        self._name = window.get("name")
        self._rows = list(_input_of(vector))
        self._arrival = count() if config.get("type") == "count-tumbling" else None
        held = [row for step in vector["steps"] for row in step.get("rows", [step])]
        keys = [row["key"] for row in [*held, *self._rows] if "key" in row]
        value = pa.string() if config.get("agg") == "list-per-input" else pa.int64()
        self._plan = WindowPlan(
            schema=pa.schema(
                {
                    "key": pa.int64() if all(isinstance(key, int) for key in keys) else pa.string(),
                    "event_time": pa.int64(),
                    "0": value,
                    "1": value,
                }
            ),
            by=("key",) if keys else (),
            window=_window(window),
            aggregates=tuple(_aggregates(config.get("agg", "list"))),
            lateness_ms=config.get("allowed_lateness", 0),
            early=_EARLY[config.get("trigger", "default")],
            accumulating=config.get("mode") != "discarding",
            late=LatePolicy(config.get("late_policy", "drop")),
        )
        self._single = not isinstance(config.get("agg"), list) and config.get("agg") != "list-per-input"
        self._field = "value" if "agg" in config else "values"
        self._state: dict[str, bytes] = {}
        self._now_ms, self._top = 0, 0

    def step(self, step: dict) -> list[dict]:
        """What a step gives."""
        operator = DrivenOperator(self._plan, self._state)
        do = step["do"]
        if do == "event":
            made = operator.take(self._combined([step]), self._now_ms)
        elif do == "bundle":
            made = operator.take(self._combined([{"ts": ts, "value": ts} for ts in step["ts"]]), self._now_ms)
        elif do in {"input_rule", "rows"}:
            made = operator.take(self._combined(step.get("rows", self._rows)), self._now_ms)
        elif do == "clock":
            self._now_ms = step["ms"]
            made = operator.clock(self._now_ms)
        elif do == "timers":
            made = pa.concat_tables([operator.clock(step["ms"]), operator.advance(step["ms"])])
        elif do == "message":
            self._now_ms, self._top = step["ms"] or 0, max(self._top, step["ts"])
            taken = operator.take(self._combined([step]), self._now_ms)
            made = pa.concat_tables([taken, operator.advance(self._top)])
        elif do == "watermark":
            made = operator.advance(step["ts"] if self._arrival is None else next(self._arrival))
        else:
            made = {"end": operator.complete, "nothing": self._plan.result_schema.empty_table}[do]()
        self._state = operator.snapshot()
        return [self._shown(row) for row in made.to_pylist()]

    def _combined(self, events: list[dict]) -> pa.Table:
        rows = [
            {
                "key": event.get("key"),
                "event_time": event["ts"] if self._arrival is None else next(self._arrival),
                str(event.get("input", 0)): event["value"],
            }
            for event in events
        ]
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in self._plan.schema]
        return combine_rows(self._plan, pa.table(columns, schema=self._plan.schema))

    def _shown(self, row: dict) -> dict:
        start, end = (round(row[WINDOW][edge].timestamp() * 1000) for edge in ("start", "end"))
        values = [row[name] for name, _ in self._plan.aggregates]
        pane = row[PANE]
        shown = {"start": start, "end": end, "output_ts": end - 1, self._field: values[0] if self._single else values}
        shown |= {"timing": pane["timing"].upper(), "index": pane["index"], "first": not pane["index"]}
        return shown | {"last": pane["last"], "key": row.get("key"), "name": self._name}


def _input_of(vector: dict) -> Iterator[dict]:
    """The rows of an input rule."""
    rule = vector.get("input_rule")
    if rule is None:
        return
    for index in range(rule["n"]):
        row: dict[str, Any] = {"ts": rule["first_ts"] + index * rule["step_ms"], "value": index}
        yield row | ({"key": index if index % 10 else 0} if "key" in vector["steps"][-1]["out"][0] else {})


def _size_and_slide(words: Mapping) -> tuple[int, int]:
    return words["size"], words.get("slide", words["size"])


def _window(words: Mapping) -> SlidingWindow | SessionWindow:
    if "gap" in words:
        touch = words.get("touch", "merge")
        return SessionWindow(words["gap"], Touching("merge" if touch == "n/a" else touch))
    return SlidingWindow(*_size_and_slide(words))


def _aggregates(name: str | list[str]) -> Iterator[tuple[str, agg.AggregateSpec]]:
    if name == "list-per-input":
        yield from (("a0", agg.collect("0")), ("a1", agg.collect("1")))
        return
    for number, one in enumerate([name] if isinstance(name, str) else name):
        yield f"a{number}", _AGGREGATES[one]("0")


def _same(expected: list[dict], made: list[dict], config: Mapping) -> bool:
    """The fields that the expected answers tell, in any order."""
    left = list(made)
    skipped = {"nonspec_index"} | ({"output_ts"} if config.get("output_time") == "earliest" else set())
    for wanted in expected:
        told = {name: value for name, value in wanted.items() if name not in skipped}
        found = next((got for got in left if all(got.get(name) == value for name, value in told.items())), None)
        if found is None:
            return False
        left.remove(found)
    return not left
