"""A Delta table in an object store: moto in a process of its own, or the server that KEYEDWM_S3 names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest

from keyedwm.cli.main import main
from keyedwm.testing.object_store import ObjectStore, object_store


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
    feed.cut(0, (2, 2), 1_000)
    feed.cut(1, (4, 4), 2_000)
    drain(feed.read(spark), **options)
    drain(feed.read(spark), **options)
    assert values_at(path, reach) == [f"{p}:{n}" for p in (0, 1) for n in range(4)]
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)
    # A key is no word of a command: any user of the machine would read it there.
    shown = {name: f"env:{name.upper()}" if name.upper() in store.variables else value for name, value in reach.items()}
    assert main(["inspect", path, *(f"--storage={name}={value}" for name, value in shown.items())]) == 0
    said = capsys.readouterr().out
    assert "version 2, partitioned by partition" in said
    assert store.secret_key not in said


def values_at(path: str, reach: Mapping[str, str]) -> list[str]:
    from deltalake import DeltaTable

    column = DeltaTable(path, storage_options=dict(reach)).to_pyarrow_table(columns=["value"]).column("value")
    return sorted(value.decode() for value in column.to_pylist())
