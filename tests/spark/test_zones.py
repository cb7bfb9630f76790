"""Windows by a zone's clock beside Spark's `date_trunc`, and through real Kafka and Spark; stores refuse them."""

from __future__ import annotations

import random
from datetime import datetime, timezone

import numpy as np
import pytest
from pyspark.sql import functions as F

from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.zoned import zone_rules
from keyedwm.spark import Store, aggregate, count, sliding, tumbling, window_join
from tests.spark.started import keyed
from tests.tools import Record

BERLIN = "Europe/Berlin"
DAY_MS = 86_400_000
# `date_trunc` of a day tells the second midnight of Havana from the first one.
TRUNCATED = [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Apia"]


def test_windows_begin_where_spark_truncates_dates_in_the_time_zone_of_the_session(spark, seed):
    rng = random.Random(seed)
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in TRUNCATED:
            near = [at for at, _ in zone_rules(zone) if 0 < at < 2 * 10**12][-12:]
            times = [at + rng.randrange(-2 * DAY_MS, 2 * DAY_MS) for at in near for _ in range(6)]
            spark.conf.set("spark.sql.session.timeZone", zone)
            rows = spark.createDataFrame([(ms,) for ms in times], "ms long")
            units = ("hour", "day", "week", "month", "quarter", "year")
            moment = F.timestamp_millis("ms")
            told = rows.select(*(F.unix_millis(F.date_trunc(unit, moment)).alias(unit) for unit in units)).toPandas()
            for unit in units:
                window = tumbling(f"1 {unit}", zone=zone)
                starts = window.starts_of(window.frames_of(np.array(times)))
                assert starts.tolist() == told[unit].tolist(), (zone, unit)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("bucket_conf")
def test_days_of_a_zone_are_counted_over_rows_and_in_the_source_also_after_a_restart(
    topic_of, load, described, started
):
    def at(*moment: int) -> int:
        return round(datetime(*moment, tzinfo=timezone.utc).timestamp() * 1_000)

    topic = topic_of(1)
    rows = aggregate(
        keyed(load(topic, idleTimeout="none")), "k", tumbling("1 day", zone=BERLIN), {"n": count()}, buckets=1
    )
    pushed = aggregate(
        described(topic), {"k": "key::string"}, sliding("2 days", "1 day", zone=BERLIN), {"n": count()}, buckets=1
    )
    queries = [started(rows), started(pushed)]
    before = [at(2026, 3, 27, 23), at(2026, 3, 28, 22, 59), at(2026, 3, 28, 23), at(2026, 3, 29, 1, 30)]
    after = [at(2026, 3, 29, 21, 59), at(2026, 3, 29, 22), at(2026, 4, 2, 12)]
    made = []
    for query in queries:
        made.append(query.give(topic if query is queries[0] else "", _records(before if query is queries[0] else [])))
        query.restart()
    for number, query in enumerate(queries):
        made[number] += query.give(topic, _records(after if not number else []))
    told = [
        sorted((_utc(row, "start"), _utc(row, "end"), row["n"]) for row in of if row["control"] is None) for of in made
    ]
    assert told[0] == [
        ("2026-03-27T23", "2026-03-28T23", 2), ("2026-03-28T23", "2026-03-29T22", 3),
        ("2026-03-29T22", "2026-03-30T22", 1),
    ]  # fmt: skip
    assert told[1] == [
        ("2026-03-26T23", "2026-03-28T23", 2), ("2026-03-27T23", "2026-03-29T22", 5),
        ("2026-03-28T23", "2026-03-30T22", 4),
        ("2026-03-29T22", "2026-03-31T22", 1),
    ]  # fmt: skip


def test_stores_refuse_a_zone_in_one_sentence(topic_of, load):
    with pytest.raises(OptionError, match="aggregate: windows that keep their messages have one length"):
        aggregate(
            load(topic_of(1)), "key", tumbling("1 day", zone=BERLIN), {"n": count()}, store=Store(retention="1 hour")
        )
    with pytest.raises(OptionError, match="window_join: windows that keep their messages have one length"):
        window_join(load("a"), load("b"), "key", tumbling("1 month"), store=Store(retention="1 hour"))


def _records(times: list[int]) -> list[Record]:
    return [Record(0, ms, b"1", b"a") for ms in times]


def _utc(row, edge: str) -> str:
    return datetime.fromtimestamp(row["window"][edge].timestamp(), timezone.utc).strftime("%Y-%m-%dT%H")
