"""What the program of `job` left behind: the table, the topic, and what Spark logged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

Copy = list[list[bytes]]


def counted(directory: Path | str, storage: Mapping[str, str] | None = None) -> Counter:
    """What the table says: name and second → events, each row as often as it is there."""
    table = DeltaTable(f"{directory}/table", storage_options=dict(storage or {}))
    rows = table.to_pyarrow_table(columns=["name", "second", "events"]).to_pylist()
    told = [(row["name"], round(row["second"].timestamp() * 1_000), row["events"]) for row in rows]
    assert len({place[:2] for place in told}) == len(told)
    return Counter({(name, ms): events for name, ms, events in told})


def counted_in_order(copy: Copy) -> Counter:
    """What the records of windows say, which come in the order of their seconds for each name, each once."""
    told = [[json.loads(value) for value in values] for values in copy]
    places = [(row["name"], row["ms"]) for rows in told for row in rows]
    assert len(set(places)) == len(places)
    for name in {name for name, _ in places}:
        seconds = [ms for one, ms in places if one == name]
        assert seconds == sorted(seconds)
    return Counter({(row["name"], row["ms"]): row["events"] for rows in told for row in rows})


def copied(bootstrap: str, topic: str) -> Copy:
    """The values that a reader of committed records finds, of each partition in their order."""
    from keyedwm.core.inline import HEADER
    from keyedwm.kafka.client.values import Isolation, TopicPartition
    from keyedwm.kafka.records.read import ColumnSelection
    from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
    from tests.tools import cluster_at, wait_for_markers

    wait_for_markers(bootstrap, topic)
    cluster = cluster_at(bootstrap)
    places = [TopicPartition(topic, partition) for partition in cluster.partitions([topic])[topic]]
    ends = cluster.latest(places, Isolation.READ_COMMITTED)
    ranges = [OffsetRange(topic, place.partition, 0, ends[place]) for place in places if ends[place]]
    parts = read_ranges(cluster, ranges, ColumnSelection(control_header=HEADER), Isolation.READ_COMMITTED)
    copy: Copy = [[] for _ in ranges]
    for part in parts:
        copy[part.index].extend(part.records.value.to_pylist())
    return copy


def events_of(directory: Path, kind: str) -> list[dict]:
    """What Spark logged of one kind, over all drivers."""
    lines = [line for log in sorted((directory / "events").iterdir()) for line in log.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["Event"] == f"SparkListener{kind}"]
