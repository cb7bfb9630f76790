"""Topics and committed offsets, saved as text and restored into a fresh broker at the same offsets.

Rule: an offset that holds no record (the marker of a transaction) is restored as the marker of an empty transaction, so
every record stands where it stood.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafka.protocol.admin import ListGroupsRequest

from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.transactions import add_partitions, begin, end
from tests.tools import Record, cluster_at, produce, wait_until

Saved = dict[str, Any]


def save(bootstrap: str, topics: Mapping[str, int]) -> Saved:
    """Every record of these topics, and what all groups have committed for them."""
    cluster = cluster_at(bootstrap)
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    ends = cluster.latest(places, Isolation.READ_COMMITTED)
    return {
        "topics": dict(topics),
        "ids": {topic: str(topic_id) for topic, topic_id in cluster.topic_ids(topics).items()},
        "ends": {str(tp): ends[tp] for tp in places},
        "records": {str(tp): _records(cluster, tp, ends[tp]) for tp in places},
        "groups": {group: _positions(cluster, group, places) for group in _groups(cluster)},
    }


def restore(bootstrap: str, saved: Saved) -> None:
    """Write everything back; the topics must exist and be empty."""
    cluster = cluster_at(bootstrap)
    for topic, count in saved["topics"].items():
        for number in range(count):
            _write(bootstrap, TopicPartition(topic, number), saved)
    for group, positions in saved["groups"].items():
        by_place = {_place(name): (offset, metadata) for name, (offset, metadata) in positions.items()}
        if by_place:
            refused = {tp: code.name for tp, code in cluster.commit_offsets(group, by_place).items() if code}
            assert not refused, refused


def rename_ids(bootstrap: str, saved: Saved, directory: Path) -> None:
    """Give the topics of an offset log the ids that they have in this broker: a recreated topic would be refused."""
    ids = cluster_at(bootstrap).topic_ids(saved["topics"])
    for path in directory.glob("*.checkpoint/offsets/*"):
        text = path.read_text()
        for topic, before in saved["ids"].items():
            text = text.replace(before, str(ids[topic]))
        path.write_text(text)


def _records(cluster: Cluster, tp: TopicPartition, end_offset: int) -> list[list]:
    records = []
    ranges = [OffsetRange(tp.topic, tp.partition, 0, end_offset)]
    for part in read_ranges(cluster, ranges, ColumnSelection(headers=True), Isolation.READ_COMMITTED):
        rows = part.records
        columns = (
            rows.offset.tolist(), rows.timestamp_ms.tolist(), rows.key.to_pylist(), rows.value.to_pylist(),
            rows.headers.to_pylist(),
        )  # fmt: skip
        for offset, ms, key, value, headers in zip(*columns, strict=True):
            header_texts = [[one["key"], _text(one["value"])] for one in headers or ()]
            records.append([offset, ms, _text(key), _text(value), header_texts])
    return records


def _groups(cluster: Cluster) -> list[str]:
    answer = cluster.connection.call(None, ListGroupsRequest(max_version=3))
    return sorted(group.group_id for group in answer.groups)


def _positions(cluster: Cluster, group: str, places: Iterable[TopicPartition]) -> dict[str, list]:
    commits = cluster.fetch_offsets(group, places)
    return {str(tp): [at.next_offset, at.metadata] for tp, at in sorted(commits.items())}


def _write(bootstrap: str, tp: TopicPartition, saved: Saved) -> None:
    cluster, at = cluster_at(bootstrap), 0
    run: list[Record] = []
    for offset, ms, key, value, headers in saved["records"][str(tp)]:
        if offset > at + len(run):
            at = _flush(bootstrap, tp, run, at)
            at = _markers(cluster, tp, at, offset)
        header_bytes = tuple((name, _bytes(text)) for name, text in headers)
        run.append(Record(tp.partition, ms, _bytes(value), _bytes(key), header_bytes))
    at = _flush(bootstrap, tp, run, at)
    _markers(cluster, tp, at, saved["ends"][str(tp)])


def _flush(bootstrap: str, tp: TopicPartition, run: list[Record], at: int) -> int:
    if run:
        produce(bootstrap, tp.topic, run)
    at += len(run)
    run.clear()
    return at


def _markers(cluster: Cluster, tp: TopicPartition, at: int, until: int) -> int:
    for offset in range(at, until):
        transaction = begin(cluster, f"restored-{tp}-{offset}", 60_000)
        add_partitions(cluster, transaction, [tp])
        end(cluster, [transaction], commit=True)
    # The markers come a moment after the answer: what is written next stands behind them.
    wait_until(lambda: cluster.latest([tp])[tp] == until, f"the markers of {tp} up to {until}")
    return until


def _place(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
