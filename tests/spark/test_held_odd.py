"""What a store holds, of keys with names that listings have too, of checkpoints that lack parts, and at odd places."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from keyedwm.core.errors import FormatError, InputError, KeyedwmError, OptionError
from keyedwm.spark import (
    Store,
    aggregate,
    count,
    held_messages,
    held_windows,
    oldest_offsets,
    savepoint,
    session,
    tumbling,
    tumbling_rows,
    window_join,
)
from tests.spark.started import AHEAD, event, keyed, steer
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
KEPT = Store(retention="20 seconds")
SETTINGS = {"idleTimeout": "none", "watermarkLag": "0 seconds"}
ODD = ("bytes", "a.b", "sessions", "at")


def odd(rows):
    """Rows whose keys are called as columns of listings and marks of plans are; one has a type without a zone."""
    at = "timestamp_ntz '2024-03-10 02:30:00' at"
    return keyed(rows).selectExpr("*", "k bytes", "k `a.b`", "k sessions", at)


def test_sessions_of_a_join_and_windows_by_key_are_listed_whatever_their_keys_are_called(
    spark, topic_of, load, started
):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    topics = topic_of(2), topic_of(2)
    sides = [odd(load(topic, **SETTINGS)) for topic in topics]
    of_sessions = window_join(*sides, [*ODD, "topic"], session("5 seconds"), store=KEPT, name="visits", buckets=2)
    of_time = aggregate(sides[0], [*ODD, "partition"], tumbling("10 seconds"), {"n": count()}, store=KEPT, name="w")
    alone = aggregate(sides[0], [*ODD, "topic"], session("5 seconds"), {"n": count()}, store=KEPT, buckets=1, name="s")
    try:
        queries = started(of_sessions), started(of_time), started(alone)
        for topic in topics:
            produce(queries[0].bootstrap, topic, [AHEAD, steer(0), event(1_000, "a", 5)])
        for query in queries:
            query.give(topics[0], [])
            query.stop()
        begins = [json.loads(oldest_offsets(spark, query._checkpoint)) for query in queries]
        assert begins == [{topic: {"0": 1, "1": 1} for topic in asked} for asked in (topics, topics[:1], topics[:1])]
        (row,) = held_windows(spark, queries[2]._checkpoint).collect()
        assert (row["key_bytes"], row["sessions"], row["topic"], row["messages"]) == ("a", "a", topics[0], 1)
        visits = held_windows(spark, queries[0]._checkpoint, side="left")
        others = ["window", "topic", "partition", "first_offset", "last_offset", "messages", "bytes", "is_complete"]
        shown = ["key_bytes", "a.b", "sessions", "at"]
        assert visits.columns == [*shown, *others]
        assert (visits.schema["at"].dataType.typeName(), visits.schema["key_bytes"].dataType.typeName()) == (
            "timestamp_ntz", "string"
        )  # fmt: skip
        (row,) = visits.collect()
        assert (row["key_bytes"], row["a.b"], str(row["at"]), row["topic"], row["first_offset"]) == (
            "a", "a", "2024-03-10 02:30:00", topics[0], 1
        )  # fmt: skip
        by_key = held_windows(spark, queries[1]._checkpoint, by_key=True)
        assert by_key.columns == [*shown, *others]
        assert {(row["key_bytes"], row["partition"], row["messages"]) for row in by_key.collect()} == {("a", 0, 1)}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_store_by_a_column_called_sessions_holds_windows(spark, topic_of, load, started):
    topic = topic_of(2)
    rows = odd(load(topic, **SETTINGS))
    query = started(aggregate(rows, "sessions", tumbling("10 seconds"), {"n": count()}, store=KEPT, buckets=1))
    query.give(topic, [AHEAD, steer(0), event(1_000, "a"), event(2_000, "b")])
    query.stop()
    assert [row["messages"] for row in held_windows(spark, query._checkpoint).collect()] == [2]
    assert held_messages(spark, query._checkpoint).count() == 2
    assert json.loads(oldest_offsets(spark, query._checkpoint))[topic]["0"] == 1
    with pytest.raises(OptionError, match=r"name=\['w'\]: the name of an operator is expected, as text"):
        held_windows(spark, query._checkpoint, ["w"])
    with pytest.raises(OptionError, match=r"side=\['left'\]: the name of a side is expected, as text"):
        held_windows(spark, query._checkpoint, side=["left"])
    with pytest.raises(OptionError, match=r"the operators with a store are called store-\w+ \(aggregate\): give one"):
        held_windows(spark, query._checkpoint, "w")


def test_sides_that_count_the_rows_of_one_topic_from_different_offsets_are_asked_for_one_by_one(
    spark, topic_of, load, started
):
    topic = topic_of(1)
    later = {"startingOffsets": json.dumps({topic: {"0": 3}})}
    rows = [load(topic, idleTimeout="none"), load(topic, later, idleTimeout="none")]
    sides = [one.selectExpr("cast(key as string) k", "*").drop("key", "value", "timestamp") for one in rows]
    query = started(window_join(*sides, "k", tumbling_rows(2), store=Store(max_windows=9), buckets=1))
    query.give(topic, [Record(0, at, b"", b"a") for at in range(7)])
    query.stop()
    wholes = [
        [(*row["window"], row["is_complete"]) for row in found.orderBy("first_offset").collect()]
        for found in (held_windows(spark, query._checkpoint, side=side) for side in ("left", "right"))
    ]
    assert wholes == [
        [(0, 1, True), (2, 3, True), (4, 5, True), (6, 7, False)], [(3, 4, True), (5, 6, True)],
    ]  # fmt: skip
    with pytest.raises(OptionError, match=rf"both sides count the rows of {topic}-0, one from offset 0 and the other "):
        oldest_offsets(spark, query._checkpoint)
    begins = [json.loads(oldest_offsets(spark, query._checkpoint, side=side)) for side in ("left", "right")]
    assert begins == [{topic: {"0": 0}}, {topic: {"0": 3}}]


@pytest.fixture
def checkpoint(topic_of, load, started) -> Path:
    topic = topic_of(2)
    rows = keyed(load(topic, **SETTINGS))
    query = started(aggregate(rows, "k", tumbling("10 seconds"), {"n": count()}, store=KEPT, buckets=1, name="w"))
    query.give(topic, [AHEAD, steer(0), event(1_000, "a")])
    query.stop()
    return Path(query._checkpoint)


def test_a_checkpoint_that_lacks_parts_or_lies_at_an_odd_place_is_told_of_in_one_sentence(spark, checkpoint, tmp_path):
    def without(name: str) -> str:
        copy = tmp_path / f"without-{name.replace('/', '-')}"
        shutil.copytree(checkpoint, copy)
        shutil.rmtree(copy / name)
        return str(copy)

    spaced = tmp_path / "a b"
    shutil.copytree(checkpoint, spaced)
    asked = {
        without("commits"): (InputError, "has no batch that is committed, so there is nothing to look at"),
        without("state/0"): (InputError, "has no state of an operator: its query has none, or parts of it are missing"),
        without("state/0/0"): (FormatError, "cannot be read, so files of it may be missing or damaged: take a whole"),
        str(spaced): (OptionError, "Spark's state reader cannot read .* since its path has ' ': copy the checkpoint"),
    }
    for place, (kind, words) in asked.items():
        for look in (held_windows, held_messages):
            with pytest.raises(kind, match=words) as told:
                look(spark, place)
            assert "\n" not in str(told.value)
    with pytest.raises(KeyedwmError, match="since its path has ' '"):
        savepoint(spark, str(spaced), str(tmp_path / "saved"))
    (tmp_path / "link").symlink_to(spaced)
    link = str(tmp_path / "link")
    assert held_windows(spark, link).count() == 1
