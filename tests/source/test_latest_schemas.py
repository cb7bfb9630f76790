"""Paths that the latest schema of a topic does not have are named when a query starts; nothing else depends on it."""

from __future__ import annotations

import pytest

from keyedwm.testing.local import free_ports
from pyspark_wm_source.driver.latest_schemas import warn_of_paths
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.reader import StreamReader
from tests.source.test_avro_values import ORDER, parse, registry  # noqa: F401
from tests.source.test_heads import KEY, PROTO
from tests.support.fake_registry import reply


def warnings_of(options: SourceOptions, caplog: pytest.LogCaptureFixture) -> list[str]:
    thread = warn_of_paths(options)
    if thread is not None:
        thread.join()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_misspelt_path_is_named_with_the_one_that_the_latest_schema_has(registry, caplog):  # noqa: F811
    registry.add("orders-value", ORDER.replace("shop", "older"))
    registry.add("orders-value", ORDER)
    registry.add("orders-key", KEY)
    options = parse(
        registry, **{"key.format": "avro-confluent"}, eventTime="avro:$.tss", where="key.avro:$.shp = 'x'",
        columns="avro:$.shop, avro:$.amounts::double, avro:$.nothing_like_it, schema_id, event_time",
    )  # fmt: skip
    assert warnings_of(options, caplog) == [
        "the latest schema of subject orders-value has no avro:$.amounts; did you mean avro:$.amount?",
        "the latest schema of subject orders-value has no avro:$.tss; did you mean avro:$.ts?",
        "the latest schema of subject orders-key has no key.avro:$.shp; did you mean key.avro:$.shop?",
    ]


def test_of_protobuf_one_message_that_has_the_path_is_enough(registry, caplog):  # noqa: F811
    registry.add("orders-value", PROTO.replace("a = 1", "att = 1"), "PROTOBUF")
    options = parse(registry, value_format="protobuf-confluent", columns="proto:$.shop, proto:$.at AS x, proto:$.atx")
    assert warnings_of(options, caplog) == [
        "the latest schema of subject orders-value has no proto:$.atx; did you mean proto:$.att?"
    ]


def test_a_registry_that_is_away_or_has_no_such_subject_is_no_error_and_says_nothing(registry, caplog):  # noqa: F811
    options = parse(registry, columns="avro:$.shp", schemaRegistry_timeout="50 ms")
    assert warnings_of(options, caplog) == []
    for answer in (reply(401, {}), reply(503, b""), reply(200, {"schema": "{", "id": 1, "version": 1})):
        registry.rule = lambda _method, _path, answer=answer: answer
        assert warnings_of(options, caplog) == []
    away = parse(registry, columns="avro:$.shp", schemaRegistry_timeout="50 ms",
                 schemaRegistry_url=f"http://127.0.0.1:{free_ports(1)[0]}")  # fmt: skip
    assert warnings_of(away, caplog) == []
    assert warn_of_paths(parse(None, value_format="json-confluent", columns="json:$.a")) is None


def test_a_query_asks_when_it_begins_to_plan(registry, monkeypatch):  # noqa: F811
    from pyspark_wm_source.driver import latest_schemas

    threads = []
    monkeypatch.setattr(latest_schemas, "warn_of_paths", lambda options: threads.append(warn_of_paths(options)))
    reader = StreamReader(parse(registry, columns="avro:$.shop"))
    assert reader._planner is reader._planner
    threads[0].join()
    assert registry.requests == ["GET /subjects/orders-value/versions/latest"]
    assert len(threads) == 1
