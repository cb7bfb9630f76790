"""O14: the columns of a row."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from keyedwm.kafka.requests.produce import send as send_now
from tests.tools import cluster_at, events


def test_a_row_has_sparks_columns_and_the_headers_in_order(kafka, topic_of, open_stream):
    """O14."""
    topic = topic_of()
    sent_at = dt.datetime.now(dt.timezone.utc) - dt.timedelta(milliseconds=1)  # Kafka's times are whole ms
    headers = [{"key": "a", "value": b"b"}, {"key": "c", "value": b"d"}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    send_now(cluster_at(kafka.bootstrap), topic, {0: pa.table({"value": [b"1"], "headers": pa.array([headers], kind)})})
    (row,) = events(open_stream(topic, includeHeaders="true").batch())
    assert row.pop("timestamp") >= sent_at
    del row["event_time"], row["watermark"], row["control"]
    assert row == {
        "key": None, "value": b"1", "topic": topic, "partition": 0, "offset": 0, "timestampType": 0, "headers": headers,
    }  # fmt: skip
