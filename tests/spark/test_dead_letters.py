"""Rows that are no results go elsewhere, through real Kafka and Spark: counts add up to the input, restarts or not."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F

from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.core.window_rules import Touching
from keyedwm.spark import (
    Processor,
    Store,
    aggregate,
    count,
    deduplicate,
    events,
    join,
    join_latest,
    late_rows,
    on_time_rows,
    process,
    rejected,
    running,
    session,
    sliding,
    source,
    tumbling,
    window_join,
    with_rejected,
    with_watermark,
)
from keyedwm.spark.hosting.handed_on import handed_on
from tests.sink.conftest import records_of
from tests.spark.started import BASE_MS
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
REJECT = {"eventTime": "json:$.t", "onBadEventTime": "reject", "watermarkLag": "0 seconds", "idleTimeout": "none"}


def timed(ms: int, key: str = "a", partition: int = 0) -> Record:
    return Record(partition, 1, b'{"t": %d}' % (BASE_MS + ms), key.encode())


def bad(text: str, partition: int = 0) -> Record:
    return Record(partition, 7, text.encode(), b"raw", (("own", b"\xfe"),))


ROUNDS = (
    [timed(1_000), bad("no json"), timed(2_000, "b"), timed(500, "b", 1)],
    [bad("{}", 1), timed(12_000), timed(13_000, "b", 1)],
    [timed(3_000), bad('{"t": []}'), timed(40_000), timed(41_000, "b", 1)],
    [timed(100_000, "end"), timed(100_000, "end", 1)],
    [timed(100_001, "end"), timed(100_001, "end", 1)],
)
GIVEN = Counter(record.value for records in ROUNDS for record in records)
UNREADABLE = {b"no json", b"{}", b'{"t": []}'}


def runs(frame, target: dict[str, str], rounds, kafka, topic: str, checkpoint: str) -> None:
    """Give one round after the other, each to a run of its own."""
    for records in rounds:
        produce(kafka.bootstrap, topic, records)
        writer = frame.writeStream.format("keyedwm").options(**target).trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def test_records_that_cannot_be_read_go_to_a_topic_as_they_came_and_the_others_to_the_table_of_results(
    spark, kafka, topic_of, load, tmp_path
):
    topic, results, errors = topic_of(2), topic_of(2), topic_of(1)
    frame = load(topic, REJECT)
    target = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": results, "errorsTo": errors}
    runs(frame, target, ROUNDS[:3], kafka, topic, str(tmp_path / "checkpoint"))
    dead = records_of(kafka.bootstrap, errors)
    assert {(key, value) for _, key, value, _ in dead} == {(b"raw", value) for value in UNREADABLE}
    headers = {value: {one["key"]: one["value"] for one in told} for _, _, value, told in dead}
    assert headers[b"no json"] == {
        "own": b"\xfe", "keyedwm.reason": b"no usable event time in json:$.t (unit ms)",
        "keyedwm.channel": f"{topic}-0".encode(), "keyedwm.offset": b"1", "keyedwm.timestamp": b"7",
    }  # fmt: skip
    written = Counter(value for _, _, value, _ in records_of(kafka.bootstrap, results))
    given = Counter(record.value for records in ROUNDS[:3] for record in records)
    assert written + Counter(value for _, _, value, _ in dead) == given
    # A batch read of the same topic gives the same records back.
    read = spark.read.format("keyedwm").options(
        **{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **REJECT, "idleTimeout": "60 seconds"}
    )
    whole = read.load()
    assert {bytes(row["value"]) for row in rejected(whole).collect()} == UNREADABLE
    assert Counter(bytes(row["value"]) for row in events(whole).collect()) == written


def keyed(rows):
    return rows.selectExpr("*", "cast(key as string) k")


def played(query, topic: str) -> list[dict]:
    """All event rows and rejected records that come out of a query, which is started again on the way."""
    made = query.give(topic, ROUNDS[0])
    query.restart()
    for records in ROUNDS[1:]:
        made += query.give(topic, records)
    return [row.asDict(recursive=True) for row in made if getattr(row, "control", None) is None]


OPERATORS = {
    "aggregate in the reading tasks": lambda _, read: aggregate(
        read, {"k": "key::string"}, tumbling("10 seconds"), {"n": count()}
    ),
    "join": lambda rows, read: join(
        keyed(rows),
        read.option("onBadEventTime", "null"),
        {"offset": "offset", "partition": "partition"},
        within=("0 seconds", "0 seconds"),
    ).selectExpr("k", "CASE WHEN offset IS NOT NULL THEN 1L END n", "rejected", "control"),
}


class Passing(Processor):
    """Emits what it is given."""

    def on_rows(self, _number, rows):
        yield rows


@pytest.mark.parametrize("operator", OPERATORS)
def test_records_that_cannot_be_read_pass_an_operator_and_are_no_part_of_its_results(
    operator, topic_of, load, described, started
):
    topic = topic_of(2)
    made = played(started(OPERATORS[operator](load(topic, REJECT), described(topic, **REJECT))), topic)
    errors = [row["rejected"] for row in made if row["rejected"]]
    assert Counter(bytes(row["value"]) for row in errors) == dict.fromkeys(UNREADABLE, 1)
    assert {row["reason"] for row in errors} == {"no usable event time in json:$.t (unit ms)"}
    results = [row for row in made if not row["rejected"]]
    assert all(row["k"] is not None for row in results)
    given = sum(record.key in (b"a", b"b") for records in ROUNDS for record in records)
    # The row at 3,000 comes when its window is closed.
    assert sum(row["n"] for row in results if row["k"] in ("a", "b")) == given - 1


def test_rows_that_sparks_windows_take_late_ones_and_unreadable_ones_add_up_to_the_input(topic_of, load, started):
    topic, ten = topic_of(2), tumbling("10 seconds")
    frame = load(topic, REJECT)
    windows = on_time_rows(frame, ten).groupBy(F.window("event_time", "10 seconds")).agg(F.count("*").alias("n"))
    both = with_rejected(windows.selectExpr("window.start", "n"), late_rows(frame, ten), rejected(frame))
    query = started(both.selectExpr("*", "CAST(NULL AS INT) control"))
    made = played(query, topic)
    errors = [row["rejected"] for row in made if row["rejected"]]
    late = "late: the watermark has closed every window of 10 seconds that takes it"
    assert [bytes(row["value"]) for row in errors if row["reason"] == late] == [timed(3_000).value]
    assert {bytes(row["value"]) for row in errors if row["reason"] != late} == UNREADABLE
    still_open = sum(record.key == b"end" for records in ROUNDS for record in records)
    assert sum(row["n"] for row in made if not row["rejected"]) + len(errors) + still_open == GIVEN.total()


HOUR, KEPT, N = tumbling("1 hour"), Store(retention="1 day"), {"n": count()}
OF_ROWS = {
    "the source's rows": lambda rows: rows,
    "aggregate": lambda rows: aggregate(rows, "k", HOUR, N),
    "a store": lambda rows: aggregate(rows, "k", HOUR, N, store=KEPT, late="emit"),
    "running": lambda rows: running(rows, "k", N),
    "process": lambda rows: process(rows, "k", Passing, "k string, n bigint"),
    "deduplicate": lambda rows: deduplicate(rows, "k", within="1 day"),
    "join": lambda rows: join(rows, without(rows), "k", within=("0 seconds", "1 hour")),
    "join_latest": lambda rows: join_latest(without(rows), rows, "k"),
    "window_join": lambda rows: window_join(rows, rows, "k", HOUR, store=KEPT),
    "two operators": lambda rows: process(aggregate(rows, "k", HOUR, N), "k", Passing, "k string, n bigint"),
    "a filter and a choice of columns": lambda rows: (
        aggregate(rows, "k", HOUR, N)
        .where("rejected IS NOT NULL OR control IS NOT NULL OR n > 1")
        .select("n", "rejected", "control")
    ),
}


def without(rows):
    """The rows without the records that came back."""
    return rows.where("rejected IS NULL").drop("rejected")


@pytest.mark.parametrize("results", [*OF_ROWS, "aggregate over a read"])
def test_no_record_that_came_back_is_put_together_with_itself(results, load, described):
    rows, ten = keyed(load("any", REJECT)), tumbling("10 seconds")
    read = aggregate(described("any", **REJECT), {"k": "key::string"}, HOUR, N)
    made = OF_ROWS[results](rows) if results in OF_ROWS else read
    twice = r"with_rejected: two frames hand on the unreadable records of topic any .* so remove rejected\(\.\.\.\) of"
    for again in (rejected(rows), rejected(load("any", REJECT)), rejected(aggregate(rows, "k", HOUR, N, name="b"))):
        with pytest.raises(OptionError, match=twice):
            with_rejected(made, again)
    assert "rejected" in with_rejected(made, late_rows(without(rows), ten)).columns
    assert "rejected" in with_rejected(made, rejected(load("another", REJECT))).columns
    assert "rejected" in with_rejected(made.where("rejected IS NULL"), rejected(rows)).columns


def test_two_inputs_of_an_operator_do_not_hand_on_the_records_of_one_topic(load, described):
    rows = keyed(load("any", REJECT))
    other = rows.withColumn("k", F.upper("k"))
    for who, call in (
        ("join", lambda: join(rows, other, "k", within=("0 seconds", "1 hour"))),
        ("join_latest", lambda: join_latest(rows, other, "k")),
        ("window_join", lambda: window_join(rows, other, "k", HOUR, store=KEPT)),
        ("window_join", lambda: window_join(*[described("any", **REJECT)] * 2, "offset", HOUR, store=KEPT)),
        ("process", lambda: process([rows, other], "k", Passing, "k string, n bigint")),
    ):
        with pytest.raises(OptionError, match=f"^{who}: two frames hand on the unreadable records of topic any"):
            call()
    assert "rejected" in window_join(rows, without(other), "k", HOUR, store=KEPT).columns


@pytest.mark.parametrize(("option", "topics"), [("onBadValue=reject", ["any"]), ("onBadValue=null", [])])
def test_values_that_cannot_be_read_come_back_too(option, topics, monkeypatch):
    node = f"StreamingRelationV2 a.B@1, keyedwm, a.C@2, [kafka.bootstrap.servers=h:1, {option}, subscribe=any], [key#0]"
    monkeypatch.setattr("keyedwm.spark.hosting.handed_on.nodes_of", lambda _frame: [(0, node)])
    assert [topic for _, topic in handed_on(object())] == topics


def test_a_frame_that_is_two_inputs_hands_on_its_records_as_one_of_them(load):
    rows = keyed(load("any", REJECT))
    for made in (
        window_join(rows, rows, "k", HOUR, store=KEPT),
        process([rows, rows], "k", Passing, "k string, n bigint"),
    ):
        assert "rejected" in made.columns
        assert [topic for _, topic in handed_on(made)] == ["any"]


MOMENTS = [(t, w) for t in range(-7, 40) for w in (-5, 0, 7, 10, 11, 20, 23)]
RULES = {
    "below the watermark": (None, 0, lambda t, w: t < w),
    "below, lateness": (None, 4, lambda t, w: t < w - 4),
    "tumbling": (tumbling("10 ms"), 0, lambda t, w: t - t % 10 + 10 <= w),
    "tumbling, moved": (tumbling("10 ms", "3 ms"), 2, lambda t, w: t - (t - 3) % 10 + 10 <= w - 2),
    "sliding": (sliding("12 ms", "4 ms"), 0, lambda t, w: t - t % 4 + 12 <= w),
    "session": (session("5 ms"), 1, lambda t, w: t + 5 <= w - 1 - MERGES),
}
MERGES = session("5 ms").touching is Touching.MERGE


@pytest.mark.parametrize("rule", RULES)
def test_a_row_is_late_once_every_window_that_takes_it_is_closed(spark, rule):
    window, lateness, is_late = RULES[rule]
    given = [(t, w, None) for t, w in MOMENTS] + [(None, 5, None), (5, None, None)]
    rows = spark.createDataFrame(given, "t bigint, w bigint, control int").selectExpr(
        "timestamp_millis(t) event_time", "timestamp_millis(w) watermark", "control", "t", "w"
    )
    late, on_time = (
        function(rows, window, lateness=f"{lateness} ms").select("t", "w").collect()
        for function in (late_rows, on_time_rows)
    )
    assert Counter(late) == Counter((t, w) for t, w in MOMENTS if is_late(t, w))
    assert Counter(late) + Counter(on_time) == Counter((t, w) for t, w, _ in given)


def test_what_cannot_be_late_is_refused(spark):
    rows = spark.createDataFrame([], "event_time timestamp, watermark timestamp, reason string")
    for call, why in (
        (lambda: late_rows(source(spark)), "late_rows: df=a keyedwm.*Source: a frame is expected; load.. a reader"),
        (lambda: late_rows(rows.drop("watermark")), "late_rows: the frame has no column 'watermark'"),
        (lambda: late_rows(with_watermark(rows)), "late_rows: the frame has no column 'watermark'"),
        (lambda: late_rows(rows), "late_rows: the frame has a column 'reason' already"),
        (lambda: on_time_rows(rows, tumbling("1 day", zone="Europe/Berlin")), "without a time zone"),
        (lambda: on_time_rows(rows, "1 hour"), "window='1 hour': tumbling"),
        (lambda: on_time_rows(rows, session(gap_column="g")), "session.gap. of keyedwm.spark is expected"),
        (lambda: with_rejected(rows, rows.drop("reason")), "with_rejected: a frame of records has no column 'reason'"),
    ):
        with pytest.raises(KeyedwmError, match=why):
            call()
