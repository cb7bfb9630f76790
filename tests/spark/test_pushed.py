"""Stage one inside the source: the results are those of the plan over loaded rows, whatever the window or aggregate."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from keyedwm.core.errors import KeyedwmError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import shared
from keyedwm.kafka.requests.produce import send
from keyedwm.spark import (
    Aggregate,
    aggregate,
    approx_count_distinct,
    avg,
    collect,
    count,
    early,
    first,
    last,
    max,  # noqa: A004
    min,  # noqa: A004
    per_key,
    session,
    sliding,
    sum,  # noqa: A004
    tumbling,
)
from tests.spark.random_records import random_record, shown
from tests.spark.started import AHEAD, BASE_MS, FAR_MS, event, in_one_batch, panes, steer
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
TEN = tumbling("10 seconds")
KEY = {"k": "key::string"}
V, X, S = "json:$.v::bigint", "json:$.x::double", "json:$['s']"
COLUMNS = {V: "v", X: "x", S: "s"}


def test_a_window_leaves_in_the_batch_that_carried_its_watermark(topic_of, described, started):
    topic = topic_of(2)
    query = started(aggregate(described(topic), KEY, TEN, {"n": count()}))
    query.give(topic, [AHEAD, event(1_000, "a"), event(2_000, "b"), event(3_000, "a")])
    before = query.last_batch
    made = query.give(topic, [steer(10_000)])
    assert sorted(panes(made)) == [(0, 10_000, "a", 2), (0, 10_000, "b", 1)]
    assert query.batches == {before + 1}


@pytest.mark.parametrize(("options", "tasks"), [({}, 2), ({"maxPartitions": "1"}, 1), ({"minPartitions": "3"}, 3)])
def test_a_described_read_has_as_many_tasks_as_the_session_has_after_a_shuffle(
    topic_of, kafka, described, run, options, tasks
):
    topic = topic_of(3)
    rows = pa.table({"key": pa.nulls(50_000, pa.binary()), "value": pa.nulls(50_000, pa.binary())})
    config = ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap})
    send(shared(config), topic, dict.fromkeys(range(3), rows))
    frame = described(topic, emitControl="false", **options).load()
    numbers = run(frame.selectExpr("spark_partition_id() task", "offset").where("offset = 7")).rows
    assert len(numbers) == 3
    assert len({row.task for row in numbers}) == tasks


def every_aggregate(v: str, x: str, s: str) -> dict:
    return {
        "rows": count(), "values": count(v), "total": sum(v), "exact": sum(x), "mean": avg(v), "mean_x": avg(x),
        "low": min(v), "high": max(x), "low_s": min(s), "high_s": max(s), "opening": first(s), "closing": last(v),
        "all": collect(x), "texts": collect(s), "kinds": approx_count_distinct(s), "last_offset": max("offset"),
    }  # fmt: skip


def loaded(read, key: str = "cast(key as string) k"):
    """The rows of a description, with the columns that its fields stand for."""
    taken = [f"get_json_object(cast(value as string), '$.{name}')" for name in COLUMNS.values()]
    types = ("bigint", "double", "string")
    columns = [f"cast({one} as {kind}) {name}" for one, kind, name in zip(taken, types, COLUMNS.values(), strict=True)]
    kept = ("topic", "partition", "offset", "event_time", "watermark", "control")
    return read.load().selectExpr(*kept, key, *columns)


WINDOWS = {
    "tumbling": (TEN, {}, {"lateness": "5 seconds", "early": early(rows=20)}),
    "tumbling, late rows shown": (TEN, {"watermarkThrottle": "none"}, {"late": "emit", "late_rule": "frame"}),
    "tumbling, late by their own time": (TEN, {"watermarkThrottle": "none"}, {"late": "emit", "late_rule": "event"}),
    "sliding": (sliding("12 seconds", "3 seconds"), {"eventTime": "json:$.at"}, {"lateness": "4 seconds"}),
    "watermarks of keys": (TEN, {}, {"late": "emit", "key_watermark": per_key("3 seconds", behind="20 seconds")}),
    "keys row by row": (
        sliding("12 seconds", "3 seconds"),
        {},
        {"late_rule": "event", "key_watermark": per_key("0 seconds", behind="20 seconds", idle="9 seconds")},
    ),
    "session": (session("2 seconds"), {"watermarkThrottle": "step", "watermarkStep": "1 second"}, {"late": "emit"}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_every_aggregate_is_what_it_is_over_loaded_rows(case, topic_of, described, started, seed, request):
    topic = topic_of(2)
    if case != "tumbling":
        request.getfixturevalue("one_bucket")
    window, options, how = WINDOWS[case]
    chance = random.Random(f"{seed} {case}")
    read = described(topic, **options)
    ahead = AHEAD._replace(value=json.dumps({"at": FAR_MS}).encode())
    pushed = started(aggregate(read, KEY, window, every_aggregate(V, X, S), name="w", **how), later=True)
    plain = aggregate(loaded(read), "k", window, every_aggregate(*COLUMNS.values()), name="w", **how)
    plain = started(plain, later=True)
    made = []
    for step in range(4):
        now_ms = step * 9_000
        steering = steer(now_ms)._replace(value=json.dumps({"at": BASE_MS + now_ms}).encode())
        events = [random_record(chance, now_ms + chance.randrange(-26_000, 9_000)) for _ in range(70)]
        if step == 2:
            pushed.stop()
        both = [shown(rows) for rows in in_one_batch([pushed, plain], [(topic, [ahead, *events, steering])])]
        assert both[0] == both[1]
        made += both[0]
    assert len(made) > 40
    both = [query.metrics() for query in (pushed, plain)]
    assert all(metrics["late_rows"] > 0 for metrics in both)
    sizes = {name: value for name, value in both[0].items() if name.endswith("_bytes") or name == "largest_bucket"}
    assert both[0] == both[1] | sizes
    assert ("timeless_rows" in both[0] and both[0]["timeless_rows"] > 0) == ("eventTime" in options)


def test_tasks_partitions_and_batches_cannot_be_seen(topic_of, described, run, kafka, seed):
    topic = topic_of(4)
    chance = random.Random(f"{seed} tasks")
    records = [random_record(chance, at * 100 + chance.randrange(900), at % 4) for at in range(800)]
    ends = [Record(partition, BASE_MS + 10_000_000, None, None) for partition in range(4)]
    produce(kafka.bootstrap, topic, [*records, *ends])
    given = {"watermarkLag": "20 seconds"}
    wanted = every_aggregate(*COLUMNS.values())
    whole = shown(
        row for row in run(aggregate(loaded(described(topic, **given)), "k", TEN, wanted)).rows if not row["control"]
    )
    assert len(whole) > 30
    cuts = [{"maxOffsetsPerTrigger": "150"}, {"minPartitions": "7", "maxOffsetsPerTrigger": "400"}]
    for cut in cuts:
        read = described(topic, **given, **cut)
        made = run(aggregate(read, KEY, TEN, every_aggregate(V, X, S)))
        assert made.batches > 2
        assert shown(made.rows) == whole


def test_all_keys_together(topic_of, described, started):
    topic = topic_of(2)
    query = started(aggregate(described(topic), (), TEN, {"n": count(), "total": sum("value::bigint")}))
    query.give(topic, [AHEAD, *(event(1_000 + at, f"key {at}", at) for at in range(50))])
    (row,) = [row for row in query.give(topic, [steer(10_000)]) if not row["control"]]
    assert (row["n"], row["total"]) == (50, 49 * 25)


def test_each_time_axis_has_windows_of_its_own(topic_of, described, started):
    topic = topic_of(1)
    axes = '{"made": {"key": 3, "eventTime": "json:$.made"}, "sent": {"key": 5, "eventTime": "json:$.sent"}}'
    read = described(topic, watermarks=axes)
    query = started(aggregate(read, "key::string", TEN, {"n": count(), "oldest": min("event_time_made")}, axis="sent"))
    query.give(topic, [Record(0, 1, b'{"made": 1000, "sent": 2000}', b"a")])
    made = query.give(topic, [Record(0, 2, b'{"made": 99000, "sent": 9999}', b"a")])
    assert all(row["control"] for row in made)
    made = query.give(topic, [Record(0, 3, b'{"made": 99000, "sent": 10000}', b"a")])
    (row,) = [row for row in made if not row["control"]]
    assert (row["key"], row["n"], row["oldest"].timestamp()) == ("a", 2, 1.0)


PRODUCT = Aggregate(column="v", result=pa.int64(), create=int, accumulate=max, combine=max)
N = {"n": count()}
CALLS = {
    "option by: the source has no column 'kee'; did you mean 'key'": lambda r: aggregate(r, "kee", TEN, N),
    "option aggregates: the source has no column 'amount'": lambda r: aggregate(r, "key", TEN, {"n": sum("amount")}),
    "option aggregates: 'json:amount' is wrong; a path such as": lambda r: aggregate(
        r, "key", TEN, {"n": sum("json:amount")}
    ),
    "is wrong; one of the types string, bigint, double is expected; did you mean bigint": lambda r: aggregate(
        r, "key", TEN, {"n": sum("json:$.v::int")}
    ),
    "only key, value and values out of JSON take a type": lambda r: aggregate(r, "offset::bigint", TEN, N),
    "sum(json:$.v) needs numbers": lambda r: aggregate(r, "key", TEN, {"n": sum("json:$.v")}),
    "needs a name for its result column: by={'name': 'json:$.k'}": lambda r: aggregate(r, "json:$.k", TEN, N),
    "cannot be called 'offset', which is a column of the source": lambda r: aggregate(
        r, {"offset": "key"}, TEN, {"n": max("offset")}
    ),
    "cannot be called 'watermark'": lambda r: aggregate(r, {"watermark": "key"}, TEN, N),
    "'n' is an Aggregate of your own, it runs over rows: load() the source": lambda r: aggregate(
        r, "key", TEN, {"n": PRODUCT}
    ),
    "no time axis 'made'; leave it out": lambda r: aggregate(r, "key", TEN, N, axis="made"),
    "names fields of a source, this is a frame": lambda r: aggregate(r.load(), {"k": "key"}, TEN, N),
    "option columns has no effect on windows": lambda r: aggregate(r.option("columns", "key"), "key", TEN, N),
    "option emitControl: false contradicts": lambda r: aggregate(r.option("emitControl", False), "key", TEN, N),  # noqa: FBT003
    "option barriers: false contradicts": lambda r: aggregate(r.option("BARRIERS", "false"), "key", TEN, N),
    "option subscribed is unknown": lambda r: aggregate(r.option("subscribed", 7), "key", TEN, N),
    "a stream has no end": lambda r: aggregate(r.option("endingOffsets", "latest"), "key", TEN, N),
    "option subscribe: a text, number or boolean is expected, not NoneType": lambda r: r.option("subscribe", None),
    "at least one aggregate": lambda r: aggregate(r, "key", TEN, {}),
}


@pytest.mark.parametrize("words", CALLS)
def test_a_wrong_call_is_refused(words, described):
    with pytest.raises(KeyedwmError) as refused:
        CALLS[words](described("orders"))
    assert words in str(refused.value)


def test_a_description_shows_no_option(described):
    assert "broker-secret" not in repr(described("orders").option("kafka.ssl.key.password", "broker-secret"))
