"""Operators over a read with the option where: the results are those over a frame with the same filter."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.spark import Store, aggregate, count, join, median, session, sum, tumbling  # noqa: A004
from tests.spark.random_records import shown
from tests.spark.started import BASE_MS
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("one_bucket")
TEN = tumbling("10 seconds")
COLUMNS = "*, key::string AS kind, json:$.k, json:$.v::bigint"
WHERE = "kind = 'bid' AND v BETWEEN -5 AND 5"
WANTED = {"n": count(), "total": sum("v")}
OPERATORS = {
    "windows": lambda read: aggregate(read, "k", TEN, WANTED),
    "sessions": lambda read: aggregate(read, "k", session("300 milliseconds"), WANTED),
    "a store": lambda read: aggregate(read, "k", TEN, {"m": median("v")}, store=Store(retention="1 minute")),
    "a join": lambda read: join(read, read, "k", within=("-1 second", "1 second"), how="left"),
}


def records(chance: random.Random) -> list[Record]:
    """Events of 40 seconds of two kinds, and at last one for each partition that closes every window."""
    made = []
    for n in range(200):
        value = {"k": chance.choice(["a", "b", None]), "v": chance.randrange(-9, 9)}
        kind = chance.choice([b"bid", b"bid", b"auction", None])
        made.append(Record(n % 2, BASE_MS + chance.randrange(40_000), json.dumps(value).encode(), kind))
    # What closes the windows is dropped itself: watermarks are those of all records.
    return made + [Record(partition, BASE_MS + 10_000_000, None, None) for partition in range(2)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_sees_what_a_filter_lets_pass_before_and_after_the_rows_are_loaded(
    operator, topic_of, described, run, seed, kafka
):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(random.Random(f"{seed} {operator}")))
    read = described(topic, watermarkLag="1 minute", columns=COLUMNS)
    filtered = read.option("where", WHERE)
    expected = shown(run(OPERATORS[operator](read.load().where(f"({WHERE}) OR control IS NOT NULL"))).rows)
    # Loaded rows are a frame like any other: one operator over them proves it for all.
    for one in (filtered, filtered.load()) if operator == "windows" else (filtered,):
        assert shown(run(OPERATORS[operator](one)).rows) == expected
    assert expected.total() > 5
