"""Plays the flights into a topic, one step of simulated time after the other.

Rule: a step holds what reached Kafka in its span, and nothing else decides where a record goes. Kafka keeps the event
time as the record's timestamp (CreateTime), but with Avro, where the event time stands in the value. Partitions get
equal spans of time, not equal numbers of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from examples.demo.as_avro import AvroTopic
from examples.demo.flights import BEGIN_MS, DAY_MS, ORIGINS, Flights
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.testing.admin import create_topic, delete_topic

# A broker otherwise deletes records whose timestamps lie in the past.
_KEEP = {"retention.ms": "-1"}
CLOSING_KEY = "closing"


@dataclass(frozen=True, slots=True)
class Step:
    """The records that reach Kafka between the step before and simulated time `end_ms` (excluded)."""

    end_ms: int
    flights: Flights


def steps(flights: Flights, count: int) -> list[Step]:
    """Cuts the flights into `count` spans of equal simulated time."""
    reach_ms = flights.numbers("reach_ms")
    ends_ms = np.linspace(BEGIN_MS, reach_ms.max() + 1, count + 1).astype(np.int64)[1:]
    step = np.searchsorted(ends_ms, reach_ms, side="right")
    return [Step(int(end_ms), Flights(flights.table.filter(pa.array(step == i)))) for i, end_ms in enumerate(ends_ms)]


def closing(flights: Flights) -> Step:
    """One record in each partition, two days after everything: it closes every window, and its own never closes.

    Without it the last windows would stay open, as they do on any stream; all sides get it, so all are treated alike.
    """
    partition = flights.numbers("partition")
    end_ms = int(flights.numbers("reach_ms").max()) + 2 * DAY_MS
    last = pa.table({
        "key": [CLOSING_KEY] * len(ORIGINS),
        "value": pa.nulls(len(ORIGINS), pa.string()),
        "partition": pa.array(range(len(ORIGINS)), pa.int32()),
        "event_ms": [end_ms] * len(ORIGINS),
        "reach_ms": [end_ms] * len(ORIGINS),
        "offset": [int(np.count_nonzero(partition == own)) for own in range(len(ORIGINS))],
    })  # fmt: skip
    return Step(end_ms, Flights(last))


class Topic:
    """A topic with one partition per origin, and the one producer that writes to it. avro: of its values, if any."""

    def __init__(self, cluster: Cluster, name: str, avro: AvroTopic | None = None) -> None:
        self.name, self.avro = name, avro
        self._sender = Sender(cluster, new_producer(cluster))

    def write(self, step: Step) -> None:
        """Writes a step and waits until every record is acknowledged."""
        self._sender.send(self.name, as_kafka(as_written(step.flights, self.avro)))


@contextmanager
def new_topic(bootstrap: str, name: str, avro: AvroTopic | None = None) -> Iterator[Topic]:
    """The topic, for the time of the `with`: afterwards it is gone, also from a broker that stays."""
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    try:
        create_topic(cluster, name, len(ORIGINS), _KEEP)
        try:
            yield Topic(cluster, name, avro)
        finally:
            delete_topic(cluster, name)
    finally:
        cluster.close()


def as_written(flights: Flights, avro: AvroTopic | None) -> pa.Table:
    """The records with their timestamps in `timestamp_ms`: event times, or with Avro when they reach Kafka."""
    if avro is None:
        return flights.table.rename_columns({"event_ms": "timestamp_ms"})
    return avro.encoded(flights).table.rename_columns({"reach_ms": "timestamp_ms"})


def as_kafka(records: pa.Table) -> Mapping[int, pa.Table]:
    """The records by partition, with the columns that the wire takes."""
    by_partition = {own: Flights(records).of(own).table for own in range(len(ORIGINS))}
    return {
        own: table.select(["key", "value", "timestamp_ms"]).rename_columns(["key", "value", "timestamp"])
        for own, table in by_partition.items()
        if len(table)
    }
