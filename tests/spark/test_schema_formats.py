"""Values with a schema through whole queries: what Confluent's serializers write, and faults of the registry."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException

from tests.e2e import avro_rows
from tests.e2e.registry_faults import ANSWERS, PARTITIONS, World, by_place, differing
from tests.formats.serializers import LANGUAGES, orders, produce, windowed, windows, windows_of
from tests.support.fake_registry import FakeRegistry, fake_registry

ORDERS = 400


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.mark.parametrize("form", LANGUAGES)
def test_windows_inside_the_source_are_exact_over_what_confluents_serializers_write(
    form, registry, spark, kafka, run, bucket_conf, seed
):
    some = [*orders(ORDERS, seed)]
    topic = produce(kafka.bootstrap, registry.url, form, some, random.Random(seed))
    result = run(windowed(spark, kafka.bootstrap, registry.url, form, topic, ORDERS // 3))
    assert windows_of(result.rows) == windows(some)


@pytest.mark.parametrize("on_bad", ["null", "reject"])
def test_faults_of_the_registry_end_the_query_and_make_no_row_another_one(
    on_bad, registry, spark, kafka, topic_of, started, seed
):
    world = World(random.Random(seed), registry, kafka.bootstrap, topic_of(PARTITIONS), rejects=on_bad == "reject")
    query = started(avro_rows.rows(spark, kafka.bootstrap, registry.url, world.topic, "none", on_bad))
    for fault in world.chance.sample([*ANSWERS], 2):
        world.newer()
        world.rule = ANSWERS[fault]
        world.write(40)
        with pytest.raises(StreamingQueryException, match="the schema registry"):
            query.give("", [])
        world.rule = None
        query.restart()
        query.give("", [])
    rows, twice = by_place(row for batch in query.rows.values() for row in batch if row["control"] is None)
    assert (differing(world.expected, rows), twice, len(rows)) == ([], 0, len(world.expected))
