"""`keyedwm advise` reads event times and keys of values that have a schema, as the source reads them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.places import FieldReader
from keyedwm.cli.advise import options_to_set
from keyedwm.cli.advise.read import _COLUMNS, TimeFate, _Judge
from keyedwm.cli.main import main
from keyedwm.config.places import field_of
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.source_options import SourceOptions
from tests.formats.generated_avro import number, text

NOW_MS = 1_700_000_000_000
SCHEMA = json.dumps({"type": "record", "name": "order", "fields": [
    {"name": "shop", "type": "string"}, {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]})  # fmt: skip


def test_event_times_and_keys_come_out_of_avro_and_a_bad_value_is_unreadable():
    options = SourceOptions.parse({
        "kafka.bootstrap.servers": "h:1", "subscribe": "t", "eventTime": "avro:$.ts", "maxEventTimeAhead": "1 day",
        "value.format": "avro", "value.schema": SCHEMA,
    })  # fmt: skip
    key = field_of("--key", "avro:$.shop", ("key",))
    judge = _Judge(TopicPartition("t", 0), options, key, NOW_MS)
    values = [text(b"Oslo") + number(NOW_MS * 1_000 + 7), text(b"Bergen"), None]
    records = Records(
        3, None, pa.array(values, pa.binary()), None, np.arange(3), np.full(3, NOW_MS), np.zeros(3, np.int32), 3
    )
    part = judge.part(records, FieldReader(key, _COLUMNS))
    assert part.fate.tolist() == [TimeFate.SOUND, TimeFate.UNREADABLE, TimeFate.TOMBSTONE]
    assert part.event_ms[0] == NOW_MS
    assert part.key.to_pylist() == ["Oslo", "Bergen", None]
    assert part.hint is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--option", "watermarkLag=5 s"], "says nothing about the cluster or the values"),
        (["--event-time", "avro:$.ts"], "value.format must be the format of the values"),
        (["--event-time", "avro:$.ts", "--option", "value.format=avro"], "option value.schema is missing"),
        (["--key", "key.avro:$.id", "--option", "key.format=avro"], "option key.schema is missing"),
    ],
)
def test_options_that_say_nothing_of_the_values_are_refused(capsys, arguments, sentence):
    assert main(["advise", "--bootstrap", "127.0.0.1:9", "--topic", "t", *arguments]) != 0
    output = capsys.readouterr()
    assert sentence in output.err + output.out


def test_the_options_to_set_have_formats_and_registry_and_a_secret_stays_a_reference(monkeypatch):
    monkeypatch.setenv("PASSWORD", "hunter2")
    arguments = [
        "value.format=avro-confluent", "schemaRegistry.url=http://r:1/a=b", "schemaRegistry.password=env:PASSWORD",
        "kafka.security.protocol=SASL_SSL",
    ]  # fmt: skip
    assert options_to_set({"eventTime": "avro:$.ts"}, arguments) == {
        "value.format": "avro-confluent",
        "schemaRegistry.url": "http://r:1/a=b",
        "schemaRegistry.password": "env:PASSWORD",
        "eventTime": "avro:$.ts",
    }
