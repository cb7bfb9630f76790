"""What the streams of a vector say, in the words that its players share: windows, keys, aggregates, the rows of a step.

Rule: words are exchanged and nothing is computed. A window over everything is a tumbling one that is long enough, and
the end of time is the end of the input. Sessions of Beam that touch stay apart, others merge unless the vector says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.results import PANE, WINDOW

PER_INPUT = "-per-input"
_FOREVER_MS = 1 << 42
_AGGREGATES: Mapping[str, Callable[[str], AggregateSpec]] = {
    "sum": agg.sum, "min": agg.min, "max": agg.max, "list": agg.collect, "avg": agg.avg, "mean": agg.avg,
    "count": agg.count,
}  # fmt: skip


@dataclass(frozen=True)
class StreamConfig:
    """One window of a vector: its words, and those of the whole vector."""

    vector: Mapping
    window_config: Mapping

    @property
    def config(self) -> Mapping:
        """The whole config."""
        return self.vector["config"]

    @property
    def is_beam(self) -> bool:
        """Whether the vector is one of Beam's."""
        return self.vector.get("family", "").startswith("beam.")

    @property
    def is_global(self) -> bool:
        """Whether the window is one over everything."""
        return self.window_config.get("type") == "global"

    @property
    def size_ms(self) -> int:
        """The size of a window; of rows their number."""
        return _FOREVER_MS if self.is_global else self.window_config["size"]

    @property
    def slide_ms(self) -> int:
        """From one window to the next."""
        return (
            self.size_ms
            if self.is_global
            else self.window_config.get("slide", self.window_config.get("advance", self.size_ms))
        )

    @property
    def offset_ms(self) -> int:
        """Where windows stand."""
        offsets_ms = (self.window_config.get(name) for name in ("offset", "align", "align_to"))
        return next((one for one in offsets_ms if one is not None), 0) % self.slide_ms

    @property
    def session(self) -> SessionWindow | None:
        """The window if it is a session."""
        if "gap" not in self.window_config:
            return None
        apart = self.vector.get("family", "").startswith("beam.")
        touch = self.window_config.get("touch", "n/a")
        return SessionWindow(
            self.window_config["gap"], Touching(("separate" if apart else "merge") if touch == "n/a" else touch)
        )

    @property
    def lateness_ms(self) -> int:
        """The allowed lateness."""
        return self.config.get("allowed_lateness", 0)

    @property
    def accumulating(self) -> bool:
        """Whether a pane holds all of its window."""
        return self.config.get("mode") != "discarding"

    @property
    def aggregate(self) -> str | list[str]:
        """The aggregates: one, or several."""
        return self.config.get("agg", "list")

    @property
    def is_per_input(self) -> bool:
        """Whether the aggregate is one of each input."""
        return isinstance(self.aggregate, str) and self.aggregate.endswith(PER_INPUT)

    @property
    def field(self) -> str:
        """Where the vector tells the value of a pane."""
        return "value" if "agg" in self.config else "values"

    @cached_property
    def inputs(self) -> int:
        """How many inputs there are."""
        input_numbers = [step.get("input", 0) for step in self.vector["steps"]]
        return max(2, self.config.get("inputs", 2), *(one + 1 for one in input_numbers))

    @cached_property
    def is_keyed(self) -> bool:
        """Whether there are keys."""
        return any("key" in row for row in self._all_rows)

    @property
    def fields(self) -> list[pa.Field]:
        """Key, event time and a value of each input."""
        keys = [row["key"] for row in self._all_rows if "key" in row]
        texts = any(isinstance(value, str) for row in self._all_rows for name, value in row.items() if name != "key")
        value = pa.string() if texts else pa.int64()
        return [
            pa.field("key", pa.int64() if all(isinstance(key, int) for key in keys) else pa.string()),
            pa.field("event_time", pa.int64()),
            *(pa.field(str(number), value) for number in range(self.inputs)),
        ]

    @property
    def aggregates(self) -> tuple[tuple[str, AggregateSpec], ...]:
        """The aggregates of a plan."""
        if self.is_per_input:
            name = str(self.aggregate).removesuffix(PER_INPUT)
            return tuple((f"a{number}", _of_name(name, str(number))) for number in range(self.inputs))
        names = [self.aggregate] if isinstance(self.aggregate, str) else self.aggregate
        return tuple((f"a{number}", _of_name(one, "0")) for number, one in enumerate(names))

    @cached_property
    def _all_rows(self) -> list[dict]:
        return [row for step in self.vector["steps"] for row in self.rows(step)]

    def rows(self, step: Mapping) -> list[dict]:
        """The rows of a step as key, event time and values."""
        do, events = step["do"], [step]
        if do == "bundle":
            events = [{"ts": ts, "value": ts} for ts in step["ts"]] if "ts" in step else step["events"]
        elif do in {"rows", "input_rule"}:
            events = step["rows"] if "rows" in step else list(_of_rule(self.vector))
        elif do not in {"event", "message"}:
            return []
        return [
            ({"key": one["key"]} if "key" in one else {})
            | {"event_time": one["ts"], str(one.get("input", 0)): one.get("value", one["ts"])}
            for one in events
        ]

    def as_answer(self, row: Mapping) -> dict:
        """A result of a plan in the words of a vector."""
        start, end = (_ms(edge) for edge in row[WINDOW].values())
        end += "last_offset" in row[WINDOW]  # of rows the last one is in the window
        values = [row[name] for name, _ in self.aggregates]
        single = isinstance(self.aggregate, str) and not self.is_per_input
        pane = row[PANE]
        number = pane["index"]
        answer = {"start": start, "end": end, "output_ts": end - 1, self.field: values[0] if single else values}
        answer |= {"timing": pane["timing"].upper(), "index": number, "first": not number, "last": pane["last"]}
        return answer | {"key": row.get("key"), "name": self.window_config.get("name")}


def table_of(rows: Sequence[Mapping], schema: pa.Schema) -> pa.Table:
    """Rows as a table."""
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _ms(edge: Any) -> int:
    return edge if isinstance(edge, int) else round(edge.timestamp() * 1000)


def _of_name(name: str, column: str) -> AggregateSpec:
    if name not in _AGGREGATES:
        raise OptionError(f"an aggregate {name!r} is not known; known are {', '.join(sorted(_AGGREGATES))}")
    return _AGGREGATES[name](column)


def _of_rule(vector: Mapping) -> Iterator[dict]:
    """The rows of an input rule."""
    rule = vector["input_rule"]
    is_keyed = "key" in rule or any("key" in one for step in vector["steps"] for one in step["out"])
    for index in range(rule["n"]):
        row: dict[str, Any] = {"ts": rule["first_ts"] + index * rule["step_ms"], "value": index}
        yield row | ({"key": index if index % 10 else 0} if is_keyed else {})
