"""`aggregate` over a source that is not loaded: records of Kafka become partials in the reading task."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa

from keyedwm.arrow.rows import Events, Rejects, RowBuilder
from keyedwm.arrow.schema import HEADERS_TYPE, row_schema
from keyedwm.core.control_row import decode_rows
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.spark.api.source import HIDDEN_ORDER, field_texts, plan_readers, plan_schema
from pyspark_wm_source.options.stage import STAGE, StageSpec
from pyspark_wm_source.task.items import ControlRun, EventRun, Item, run_stage
from tests.messy.drive import Pipeline
from tests.messy.feed import TOPIC, Batch, Column, Feed, Row, random_feed
from tests.messy.kinds import BY_NAME, Kind
from tests.messy.rejected import Rejected
from tests.messy.scalar import Maker
from tests.messy.windows import SessionModel, SlidingModel, compare, random_window, rules_of

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SOURCE = row_schema([""], headers=False, control=False)
_TEXT, _WHOLE = BY_NAME["text"], BY_NAME["small int64"]
_JSON_TEXT = Kind(
    "json text", _TEXT.type, tuple(one for one in _TEXT.values if one.decode("utf-8", "replace").encode() == one)
)
_JSON_FLOAT = Kind(
    "json float",
    pa.float64(),
    tuple(one for one in BY_NAME["float64"].values if np.isfinite(one)),
    frozenset(["number", "sum", "float"]),
)
_COLUMNS = (
    Column("key::string", _TEXT), Column("json:$.v::bigint", _WHOLE), Column("json:$.x::double", _JSON_FLOAT),
    Column("json:$['a b']", _JSON_TEXT), Column("json:$.y::double", BY_NAME["mild float64"]),
)  # fmt: skip


class Pushed(Pipeline):
    """The buckets of a plan whose stage one runs in the reading tasks."""

    def __init__(self, plan: WindowPlan, by: dict[str, str], buckets: int) -> None:
        super().__init__(plan, buckets)
        self.by = by

    def _shipped(self, batches: Sequence[tuple[Feed, Batch]]) -> Iterator[pa.RecordBatch]:
        spec_text = StageSpec(
            fields=field_texts(self.plan, self.by), times={"__time": ""}, number=0, buckets=len(self.layout.ids),
            exchange=self.inputs[0].description(),
        ).as_options()[STAGE]  # fmt: skip
        stage = StageSpec(**json.loads(spec_text)).stage(_SOURCE, [""], {})
        assert tuple(stage.ids) == self.layout.ids
        ((_, batch),) = batches
        for number, (task, texts) in enumerate(zip(batch.tasks, batch.control, strict=True)):
            builder = RowBuilder(stage.columns, {"": batch.before})
            yield from run_stage(items_of(task, texts, self.back), stage, builder, number)


def play(rng: random.Random) -> int:
    feed = random_feed(rng, keys=1, columns=list(_COLUMNS))
    expectations = Maker(rng, feed, where=False, simple=True).drawn(4)
    window = random_window(rng, feed)
    late_rule = rng.choice(rules_of(window))
    by = {"key::string": "key::string"}
    readers = plan_readers(by, [one.spec for one in expectations], _SOURCE, {})
    plan = WindowPlan(
        schema=plan_schema(readers), by=tuple(by), order=HIDDEN_ORDER, window=window, late_rule=late_rule,
        aggregates=tuple((one.name, one.spec) for one in expectations), time="__time",
    ).trimmed()  # fmt: skip
    pipeline = Pushed(plan, by, rng.choice([1, 2, 2, 3]))
    model = (SessionModel if plan.is_session else SlidingModel)(feed, plan)
    compared = 0
    for number, batch in enumerate(feed.batches):
        if number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        compared += compare(
            feed, expectations, pipeline.batch((feed, batch)), model.add_batch(batch), f"batch {number}, {window}"
        )
    return compared


def items_of(task: list[Row], texts: list[str], back: Rejected) -> Iterator[Item]:
    for partition in sorted({row.partition for row in task}):
        events = events_of(partition, [row for row in task if row.partition == partition])
        yield EventRun(events=with_records(events, back))
    yield ControlRun(rows=tuple(row for text in texts for row in decode_rows(f"[{text}]")))


def events_of(partition: int, rows: list[Row]) -> Events:
    times = np.array([row.time or 0 for row in rows], np.int64)
    return Events(
        topic=TOPIC, partition=partition, count=len(rows), headers=pa.nulls(len(rows), HEADERS_TYPE),
        key=pa.array([row.values[0] for row in rows], pa.binary()),
        value=pa.array([value_of(row) for row in rows], pa.binary()),
        offset=np.array([row.offset for row in rows], np.int64), timestamp_ms=times, timestamp_type=0,
        event_ms={"": (times, np.array([row.time is not None for row in rows], bool))},
    )  # fmt: skip


def with_records(events: Events, back: Rejected) -> Events:
    """Records that no axis can read among the events; their partition is that of the run."""
    records = back.records()
    if not records:
        return events
    order: list[int | None] = list(range(events.count))
    for _ in records:
        order.insert(back.place(len(order)), None)
    for record in records:
        record |= {"partition": events.partition, "timestamp": _EPOCH}
    marked = np.array([one is None for one in order])
    at = pa.array(order, pa.int64())
    filled = np.array([0 if one is None else one for one in order])
    values, offsets = events.value.take(at).to_pylist(), np.where(marked, 0, events.offset[filled])
    for place, record in zip(np.flatnonzero(marked).tolist(), records, strict=True):
        values[place], offsets[place] = record["value"], record["offset"]
    ms, valid = events.event_ms[""]
    assert valid is not None
    return replace(
        events, count=len(order), key=events.key.take(at), value=pa.array(values, pa.binary()), offset=offsets,
        headers=events.headers.take(at), timestamp_ms=np.where(marked, 0, ms[filled]),
        event_ms={"": (ms[filled], valid[filled] & ~marked)},
        rejects=Rejects(marked, pa.array(["why"] * len(records))),
    )  # fmt: skip


def value_of(row: Row) -> bytes:
    """The record's JSON; what is null is missing, or null."""
    v, x, text, y = row.values[1:]
    fields = {"v": v, "x": x, "a b": None if text is None else text.decode(), "y": y}
    present_fields = {name: one for name, one in fields.items() if one is not None or row.offset % 2}
    return json.dumps(present_fields, ensure_ascii=bool(row.offset % 3)).encode()
