"""Columns that are never null for Spark, nested, no text, or offsets of the input: through operators into sinks."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from keyedwm.spark import (
    Processor,
    Store,
    aggregate,
    async_map,
    count,
    join,
    join_latest,
    process,
    running,
    tumbling,
    window_join,
)  # fmt: skip
from keyedwm.spark import first as first_of
from keyedwm.spark import max as highest
from tests.spark.started import BASE_MS
from tests.tools import Record, Stream, events, produce, wait_for_markers

pytestmark = pytest.mark.usefixtures("bucket_conf")
HOUR = tumbling("1 hour")
NEVER_NULL = (
    "7 seven", "'eu' region", "coalesce(cast(key as string), '') named", "named_struct('a', 1, 'b', value) pair",
    "array(1, 2) some", "map('x', struct(1)) known",
)  # fmt: skip
PLACES = ("topic", "partition", "offset")
TIMES = ("event_time", "watermark", "control")
NOT_NULL = "k string NOT NULL, n int NOT NULL, pair struct<a: int NOT NULL> NOT NULL"


class Pass(Processor):
    def on_rows(self, input_number, rows):
        raise NotImplementedError


async def look_up(rows):
    raise NotImplementedError


@pytest.fixture
def messy(topic_of, load):
    """A topic with keys that are no text and a NaN of either sign, and its rows with columns that are never null."""
    topic = topic_of(1)

    def rows():
        return load(topic, idleTimeout="none").selectExpr(
            "cast(key as string) k",
            "if(offset % 2 = 0, double('NaN'), sqrt(double(-1))) x",
            *NEVER_NULL,
            *PLACES,
            *TIMES,
        )

    def give(bootstrap):
        ahead = Record(0, BASE_MS + 7_200_000, b"", b"end")
        records = [Record(0, BASE_MS + ms, b"v", key) for ms, key in enumerate([b"\xff", b"a", b"\xfe\xff", b"a"])]
        produce(bootstrap, topic, [*records, ahead])

    return rows, give


def test_every_column_of_an_operator_can_be_null_as_control_rows_have_nothing_there(messy):
    rows = messy[0]
    frame, other = rows(), rows().withColumnRenamed("x", "y")
    kept = Store(retention="1 hour")
    with_offsets = {"n": count(), "f": first_of("seven")}
    made = {
        "aggregate": aggregate(
            frame, ["seven", "region"], HOUR, {"n": count(), "f": first_of("pair"), "h": highest("seven")}
        ),
        "store": aggregate(frame, ["seven"], HOUR, with_offsets, store=kept, late="emit"),
        "running": running(frame, ["seven"], with_offsets),
        "process": process(frame, "seven", Pass, NOT_NULL),
        "async_map": async_map(frame, look_up, NOT_NULL),
        "join": join(frame, other, "region", within=("0 seconds", "1 second"), how="inner"),
        "join_latest": join_latest(frame, other, "region"),
        "window_join": window_join(frame, other, "region", HOUR, store=kept),
    }
    never = {called: [of.name for of in one.schema if not of.nullable] for called, one in made.items()}
    assert never == {called: [] for called in made}


def test_messy_rows_go_through_operators_straight_into_both_sinks(messy, kafka, topic_of, tmp_path):
    rows, give = messy

    class Tell(Processor):  # here, so that Spark's workers get it by value
        def on_rows(self, input_number, rows):  # noqa: ARG002
            yield rows.select(["region", "k", *PLACES, "event_time"]).rename_columns(
                ["region", "value", *PLACES, "event_time"]
            )

    async def same(rows):
        return rows

    def drain(frame, **to):
        where = str(tmp_path / f"checkpoint-{len(list(tmp_path.iterdir()))}")
        query = frame.writeStream.format("keyedwm").options(**to).option("checkpointLocation", where)
        query = query.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    give(kafka.bootstrap)
    so_far = running(rows(), "x", {"n": count(), "f": first_of("pair"), "k_first": first_of("k")}, buckets=3)
    drain(so_far, path=str(tmp_path / "running"))
    there = DeltaTable(tmp_path / "running").to_pyarrow_table().sort_by("offset")
    assert there["n"].to_pylist() == [1, 2, 3, 4]
    assert there["k"].to_pylist() == ["\ufffd", "a", "\ufffd\ufffd", "a"]
    assert there["partition"].to_pylist() == [0] * 4
    assert there["pair"].to_pylist() == [{"a": 1, "b": b"v"}] * 4
    assert set(there["some"].to_pylist()[0]) == {1, 2}

    target = topic_of(1)
    columns = (
        "region string NOT NULL, value string NOT NULL, topic string, partition int NOT NULL, offset long NOT NULL"
    )
    mapped = async_map(process(rows(), "x", Tell, columns, buckets=2), same, columns)
    drain(mapped, **{"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "ledger": str(tmp_path / "ledger")})
    wait_for_markers(kafka.bootstrap, target)
    read = Stream(**{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": target, "startingOffsets": "earliest"})
    values = [row["value"].decode() for batch in read.drain() for row in events(batch)]
    assert sorted(values) == ["a", "a", "end", "\ufffd", "\ufffd\ufffd"]
