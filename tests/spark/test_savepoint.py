"""A stopped query moves to other buckets: a savepoint, real Kafka and Spark, and the results of one that stayed."""

from __future__ import annotations

import re
from collections import Counter
from itertools import starmap
from types import SimpleNamespace

import pytest

from keyedwm.cli.main import main
from keyedwm.core.errors import InputError, OptionError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.spark import Processor, Store, aggregate, count, join, process, savepoint, sum, tumbling  # noqa: A004
from keyedwm.spark.api.savepoint import check_places
from tests.tools import Record, produce

pytestmark = [pytest.mark.usefixtures("bucket_conf"), pytest.mark.starts]
TEN = tumbling("10 seconds")
AGGREGATES = {"n": count(), "total": sum("v")}
BASE_MS = 1_000_000 * 27_720


def records(part: int) -> list[Record]:
    """Eight keys in two partitions; windows stay open over the end of a part."""
    return [
        Record(number % 2, BASE_MS + part * 20_000 + number * 500, b"%d" % number, b"key %d" % (number % 8))
        for number in range(48)
    ]


@pytest.fixture
def query(spark, kafka, tmp_path):
    """Run the windows over all there is in a checkpoint, and return the rows of each batch."""

    def run(topic, checkpoint, *, fail=False, table=None, savepoint=None, **how):
        begin = {"startingOffsets": "earliest"} if savepoint is None else {"continueFrom": savepoint}
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "idleTimeout": "none", **begin}
        rows = spark.readStream.format("keyedwm").options(**given).load()
        keyed = rows.selectExpr("*", "cast(key as string) k", "cast(cast(value as string) as bigint) v")
        made = {}

        def collect(batch, number):
            if fail:
                raise RuntimeError("killed on the way")
            made[number] = batch.collect()

        frame = aggregate(keyed, "k", TEN, AGGREGATES, continue_from=savepoint, **how)
        writer = frame.writeStream.foreachBatch(collect)
        if table is not None:
            writer = frame.writeStream.format("keyedwm").option("path", table)
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return made

    return run


def results(made, *names) -> Counter:
    rows = [row for of_batch in made.values() for row in of_batch if row["control"] is None]
    return Counter((row["k"], row["window"]["start"].timestamp(), *(row[name] for name in names)) for row in rows)


def rows_of(table: str) -> list[dict]:
    from deltalake import DeltaTable

    return [row | {"control": None} for row in DeltaTable(table).to_pyarrow_table().to_pylist()]


def barriers(made) -> list[int]:
    rows = [row["control"] for number in sorted(made) for row in made[number] if row["control"] is not None]
    return sorted({row["snapshot"] for row in rows if row["kind"] == "barrier"})


def test_a_moved_query_gives_what_it_would_have_given(spark, kafka, topic_of, query, tmp_path, capsys):
    topic, target = topic_of(2), str(tmp_path / "target")
    produce(kafka.bootstrap, topic, records(0))
    before = query(topic, "old", buckets=2, name="tens")
    assert main(["savepoint", str(tmp_path / "old"), target]) == 0
    assert "aggregate tens: 2 buckets" in capsys.readouterr().out
    produce(kafka.bootstrap, topic, records(1))
    stayed = query(topic, "old", buckets=2, name="tens")
    assert results(stayed, "n", "total")
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "old"), "--state"]) == 0
    told = re.sub(r"[ │┃]+", " ", capsys.readouterr().out)
    assert "Aggregate tens, plan" in told
    assert re.search(r"0 \d+ ms \(\S+\) [1-9] [1-9]\d* \d+ \d+ ms", told), told
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    moving = {"savepoint": target, "buckets": 3, "name": "other"}
    with pytest.raises(Exception, match="killed on the way"):
        query(topic, "new", fail=True, **moving)
    moved = query(topic, "new", **moving)
    assert results(moved, "n", "total") == results(stayed, "n", "total")
    assert not results(before, "n") & results(moved, "n")
    assert barriers(moved) == barriers(stayed)
    assert barriers(moved)[0] == barriers(before)[-1] + 1
    table = str(tmp_path / "table")
    query(topic, "exact", table=table, savepoint=target, buckets=1, name="exact")
    assert results({0: [row | {"control": None} for row in rows_of(table)]}, "n", "total") == results(
        moved, "n", "total"
    )
    produce(kafka.bootstrap, topic, records(2))
    later = query(topic, "new", buckets=3, name="other")  # the savepoint is not needed any more
    assert results(later, "n", "total") == results(query(topic, "old", buckets=2, name="tens"), "n", "total")
    check_refusals(spark, topic, query, tmp_path)


def test_a_moved_store_shows_the_windows_of_one_that_stayed(spark, kafka, topic_of, query, tmp_path):
    topic, target = topic_of(2), str(tmp_path / "target")
    produce(kafka.bootstrap, topic, records(0))
    store = {"store": Store(retention="1 day"), "buckets": 2, "name": "tens"}
    before = query(topic, "old", **store)
    savepoint(spark, str(tmp_path / "old"), target)
    produce(kafka.bootstrap, topic, records(1))
    stayed, moved = query(topic, "old", **store), query(topic, "new", savepoint=target, **store)
    assert results(moved, "n", "total") == results(stayed, "n", "total") != Counter()
    assert not results(before, "n") & results(moved, "n")
    with pytest.raises(OptionError, match="goes to as many buckets only: give buckets=2"):
        query(topic, "other", savepoint=target, **store | {"buckets": 3})


def test_a_moved_processor_holds_what_it_held(spark, kafka, topic_of, tmp_path):
    class Deduplicate(Processor):  # here, so that Spark's workers get it by value
        def on_rows(self, input_number, rows):  # noqa: ARG002
            import pyarrow.compute as pc

            held = self.state.read("seen")
            if held is not None:
                rows = rows.filter(pc.invert(pc.is_in(rows["k"], value_set=held["k"])))
            self.state.append("seen", rows.select(["k"]))
            yield rows.select(["k", "event_time"])

    def run(checkpoint, place, buckets) -> Counter:
        begin = {"startingOffsets": "earliest"} if place is None else {"continueFrom": place}
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "idleTimeout": "none", **begin}
        rows = spark.readStream.format("keyedwm").options(**given).load().selectExpr("*", "cast(key as string) k")
        made = process(rows, "k", Deduplicate, "k string", buckets=buckets, name="once", continue_from=place)
        found = {}
        writer = made.writeStream.foreachBatch(lambda batch, number: found.update({number: batch.collect()}))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return Counter(row["k"] for of_batch in found.values() for row in of_batch if row["control"] is None)

    topic, target = topic_of(2), str(tmp_path / "target")
    produce(kafka.bootstrap, topic, [Record(n % 2, BASE_MS + n, b"", b"key %d" % n) for n in range(12)])
    assert run("old", None, 2).keys() == {f"key {n}" for n in range(12)}
    assert savepoint(spark, str(tmp_path / "old"), target).operators["once"].kind == "process"
    produce(kafka.bootstrap, topic, [Record(n % 2, BASE_MS + n, b"", b"key %d" % n) for n in range(4, 16)])
    assert run("new", target, 3).keys() == {f"key {n}" for n in range(12, 16)}


def test_a_moved_join_pairs_what_it_would_have_paired(spark, kafka, topic_of, tmp_path):
    topics = topic_of(1), topic_of(1)

    def run(checkpoint, place, buckets, name) -> Counter:
        begin = {"startingOffsets": "earliest"} if place is None else {"continueFrom": place}
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "idleTimeout": "none", **begin}
        left, right = (
            spark.readStream.format("keyedwm").options(**given, subscribe=topic).load()
            .selectExpr("cast(key as string) k", "event_time", "watermark", "control") for topic in topics
        )  # fmt: skip
        within = ("0 seconds", "10 seconds")
        pairs = join(left, right, "k", within=within, how="full", buckets=buckets, name=name, continue_from=place)
        found = {}
        writer = pairs.writeStream.foreachBatch(lambda batch, number: found.update({number: batch.collect()}))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        rows = [row for of_batch in found.values() for row in of_batch if row["control"] is None]
        return Counter((row["k"], row["event_time_left"], row["event_time_right"]) for row in rows)

    def give(times, *keys_of):
        for topic, keys, after_ms in zip(topics, keys_of, (0, 1_000), strict=True):
            rows = zip(keys, times, strict=True)
            produce(kafka.bootstrap, topic, [Record(0, BASE_MS + after_ms + ms, b"", b"key %d" % k) for k, ms in rows])

    target = str(tmp_path / "target")
    give(range(8), range(8), [1, 2, *range(20, 26)])
    assert run("old", None, 2, "pairs").total() == 2
    assert main(["savepoint", str(tmp_path / "old"), target]) == 0
    give([8, 9, 10, 90_000], [2, 20, 8, 99], [3, 4, 5, 99])
    stayed = run("old", None, 2, "pairs")
    # Three pairs with rows of before, left rows that end alone but for those that were matched, and right ones.
    assert stayed.total() > 10
    assert run("new", target, 3, "others") == stayed


def check_refusals(spark, topic, query, tmp_path):
    """In the same test, since a savepoint takes seconds to make."""
    old, target = str(tmp_path / "old"), str(tmp_path / "target")
    with pytest.raises(OptionError, match="is a savepoint already"):
        savepoint(spark, old, target)
    for inside in (old, f"{old}/sub"):
        with pytest.raises(OptionError, match="lies in the checkpoint"):
            savepoint(spark, old, inside)
    with pytest.raises(OptionError, match="is not empty"):
        savepoint(spark, old, str(tmp_path))
    newest = max(int(path.name) for path in (tmp_path / "old" / "commits").iterdir() if path.name.isdigit())
    (tmp_path / "old" / "commits" / str(newest)).unlink()
    with pytest.raises(InputError, match=f"has batch {newest} planned and not committed: start its query once more"):
        savepoint(spark, old, str(tmp_path / "another"))
    with pytest.raises(InputError, match="is no checkpoint of a query that has run"):
        savepoint(spark, str(tmp_path), str(tmp_path / "another"))
    with pytest.raises(OptionError, match=r"there is no savepoint at .*another: make one with keyedwm savepoint"):
        query(topic, "third", savepoint=str(tmp_path / "another"))


def test_sources_of_the_same_topics_are_rejected_before_spark_starts(tmp_path, monkeypatch):
    def reading(*channels: tuple[str, int]) -> SimpleNamespace:
        return SimpleNamespace(channels=dict.fromkeys(starmap(TopicPartition, channels)))

    def check(*sources: SimpleNamespace) -> None:
        monkeypatch.setattr("keyedwm.spark.api.savepoint.offsets_of", lambda _: (0, list(sources)))
        check_places("old", str(tmp_path / "savepoint"))

    both = reading(("a", 0), ("b", 0))
    for other in (both, reading(("a", 0))):
        with pytest.raises(OptionError, match=r"of the checkpoint old reads only .*\(topics: a.*\), and"):
            check(both, other)
    check(both, reading(("a", 1)), reading(("b", 0), ("c", 0)))


def test_a_savepoint_names_the_operators_whose_name_occurs_twice_and_no_other(spark, tmp_path, monkeypatch):
    operators = [SimpleNamespace(name=name) for name in ("once", "long", "once")]
    monkeypatch.setattr("keyedwm.spark.api.savepoint.offsets_of", lambda _: (0, []))
    monkeypatch.setattr("keyedwm.spark.api.savepoint.read_operators", lambda *_: [(one, None) for one in operators])
    with pytest.raises(OptionError, match=r"several operators of one name \(once\); a result that is used twice"):
        savepoint(spark, str(tmp_path / "checkpoint"), str(tmp_path / "savepoint"))
