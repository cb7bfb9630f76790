"""The results of a query as any reader finds them, and what identifies everything that a query has written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.upgrade.answers import Row

PARTITIONS = 2  # of an output topic
NAMESPACE = "db"  # of Iceberg tables, and the directory of their files
NOTES = {"last_error.json", "_metadata"}  # ours of the last error, and Spark's of the operators with state


def rows_of(
    target: str, directory: Path, name: str, topic: str, bootstrap: str, columns: Sequence[str]
) -> Counter[Row]:
    """The rows that a reader of the target sees now."""
    if target == "kafka":
        rows = _records(f"{topic}-{name}", bootstrap)
    else:
        rows = _delta(directory / name) if target == "delta" else _iceberg(directory, name)
    return Counter(tuple(row.get(column) for column in columns) for row in rows)


def _delta(table: Path) -> list[dict[str, Any]]:
    return DeltaTable(table).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(table)) else []


def _iceberg(directory: Path, name: str) -> list[dict[str, Any]]:
    try:
        return _catalog(directory, name).load_table(f"{NAMESPACE}.{name}").scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []


def make_catalog(directory: Path, name: str) -> None:
    """Make the catalog and the namespace of a query's Iceberg table, which the sink does not make."""
    _catalog(directory, name).create_namespace(NAMESPACE)


def _catalog(directory: Path, name: str) -> Catalog:
    return load_catalog("default", type="sql", uri=f"sqlite:///{directory}/{name}.db", warehouse=str(directory))


def _records(topic: str, bootstrap: str) -> list[dict[str, Any]]:
    """The committed records of a topic, by a client of others."""
    places = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level="read_committed")
    values = []
    with closing(consumer):
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        consumer.seek_to_beginning()
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(200).values():
                values += [json.loads(record.value) for record in records]
    return values


def digest(directory: Path, name: str, checkpoints: str) -> dict[str, str]:
    """The files of a query's checkpoint, ledger, table and catalog, and the hash of each; without the note of the last
    error, and without Spark's notes of stateful operators: Spark writes one in the first batch of each start."""
    roots = [directory / checkpoints / name, directory / name, directory / NAMESPACE / name]
    files = [path for root in roots for path in sorted(root.rglob("*")) if path.is_file() and not NOTES & {*path.parts}]
    files += directory.glob(f"{name}.db")  # of the catalog
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def ends(topic: str, bootstrap: str) -> dict[str, str]:
    """The end of each partition of a topic, behind uncommitted records and the markers of transactions, too."""
    places = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)) as consumer:
        offsets = consumer.end_offsets(places)
    return {f"{place.topic}-{place.partition}": str(offset) for place, offset in offsets.items()}
