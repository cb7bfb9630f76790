"""Tables and a ledger in an object store: moto in a process of its own, or the server that KEYEDWM_S3 names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from keyedwm.cli.main import main
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.places.notes import Claim
from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_readers import how as delta
from tests.sink.iceberg_sink import NAME, how, stage_rows
from tests.sink.test_ledger import entry
from tests.support.object_store import REGION, ObjectStore, object_store


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


def test_a_partitioned_table_in_an_object_store_is_written_exactly_once_and_inspected(
    spark, store, feed, drain, capsys, monkeypatch
):
    reach = store.storage_options
    path = f"s3://{store.bucket}/{uuid.uuid4().hex}"
    options = {"path": path, "partitionBy": "partition", **{f"storage.{name}": value for name, value in reach.items()}}
    feed.end_snapshot(0, (2, 2), 1_000)
    feed.end_snapshot(1, (4, 4), 2_000)
    drain(feed.read(spark), **options)
    drain(feed.read(spark), **options)
    assert values_at(path, reach) == [f"{p}:{n}" for p in (0, 1) for n in range(4)]
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)
    # A key is no word of a command: any user of the machine would read it there.
    storage_options = {
        name: f"env:{name.upper()}" if name.upper() in store.variables else value for name, value in reach.items()
    }
    assert main(["inspect", path, *(f"--storage={name}={value}" for name, value in storage_options.items())]) == 0
    output = capsys.readouterr().out
    assert "version 2, partitioned by partition" in output
    assert store.secret_key not in output


def test_values_of_partitions_whose_directories_are_encoded_come_back_from_an_object_store(store):
    reach = store.storage_options
    path = f"s3://{store.bucket}/{uuid.uuid4().hex}"
    rows = pa.table({"n": [1, 2, 3], "s": ["x/y=1% 'é", None, "你" * 99]})
    to = delta(path, rows.schema, partitionBy="s", **{f"storage.{name}": value for name, value in reach.items()})
    publish(to, [stage_rows(to, rows)], batch=0)
    table_rows = DeltaTable(path, storage_options=dict(reach)).to_pyarrow_table()
    assert table_rows.sort_by("n").to_pylist() == rows.to_pylist()


def test_an_iceberg_table_in_an_object_store_is_written_exactly_once(store, tmp_path):
    reach = {
        "warehouse": f"s3://{store.bucket}/{uuid.uuid4().hex}", "s3.endpoint": store.endpoint,
        "s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key, "s3.region": REGION,
    }  # fmt: skip
    to = how(tmp_path, partitionBy="bucket(2, n)", **{f"catalog.{name}": value for name, value in reach.items()})
    assert store.secret_key not in repr(to)
    message = stage_rows(to, [1, 2, 3])
    publish(to, [message], batch=0)
    publish(to, [message], batch=0)
    publish(to, [stage_rows(to, [1, 2, 3])], batch=0)
    publish(to, [stage_rows(to, [4], 1)], batch=1)
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", **reach)
    assert sorted(catalog.load_table(NAME).scan().to_arrow().column("n").to_pylist()) == [1, 2, 3, 4]


def test_a_ledger_in_an_object_store_reads_back_what_was_decided_and_published(store, monkeypatch):
    for name, value in store.variables.items():
        if name != "AWS_ENDPOINT_URL":  # it stands in the address
            monkeypatch.setenv(name, value)
    address = f"s3://{store.bucket}/{uuid.uuid4().hex}/keyedwm?endpoint_override={store.endpoint}"
    ledger = Ledger(address)
    with ledger.locked():
        assert ledger.newest() is None
        ledger.decide(entry(4))
    again = Ledger(address)
    with again.locked():
        assert again.newest() == entry(4)
        again.mark_published(entry(4))
        assert again.take_epoch("a") == Claim(owner="a", epoch=1, is_new=True)
    assert Ledger(address).newest() == replace(entry(4), published=True)
    assert Ledger(address).epoch() == 1


def values_at(path: str, reach: Mapping[str, str]) -> list[str]:
    column = DeltaTable(path, storage_options=dict(reach)).to_pyarrow_table(columns=["value"]).column("value")
    return sorted(value.decode() for value in column.to_pylist())
