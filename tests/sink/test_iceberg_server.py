"""The sink on a real REST catalog, Iceberg's own server in Java: what the catalog refuses, and what it keeps."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from keyedwm.core.errors import InputError, UnavailableError
from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.iceberg.publish import IcebergPublication
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import how, stage_rows
from tests.support.iceberg_server import iceberg_server

pytestmark = pytest.mark.starts


class Place:
    """A table of its own in the server's catalog."""

    def __init__(self, uri: str, directory) -> None:
        self.uri, self.name, self._directory = uri, f"db.t{uuid.uuid4().hex[:8]}", directory
        self.catalog: Catalog = load_catalog("default", type="rest", uri=uri)

    def how(self, **more) -> IcebergPublication:
        return how(self._directory, table=self.name, **{"catalog.type": "rest", "catalog.uri": self.uri, **more})

    def numbers(self) -> list[int]:
        return sorted(self.catalog.load_table(self.name).scan().to_arrow().column("n").to_pylist())


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("rest")
    try:
        with iceberg_server(directory) as address:
            load_catalog("default", type="rest", uri=address).create_namespace("db")
            yield address
    except UnavailableError as missing:
        pytest.skip(missing.message)


@pytest.fixture
def place(uri, tmp_path) -> Place:
    return Place(uri, tmp_path)


def test_each_batch_is_published_once_and_known_after_its_snapshot_has_expired(place):
    to = place.how(partitionBy="bucket(2, n)")
    for batch in range(3):
        message = stage_rows(to, [batch, batch + 10], batch)
        publish(to, [message], batch=batch)
        publish(to, [message], batch=batch)
        publish(to, [stage_rows(to, [batch, batch + 10], batch)], batch=batch)
    table = place.catalog.load_table(place.name)
    older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    publish(to, [stage_rows(to, [2, 12], 2)], batch=2)
    assert place.numbers() == [0, 1, 2, 10, 11, 12]


def test_a_twin_whose_commit_came_first_is_found_and_nothing_is_doubled(place, monkeypatch):
    to = place.how()
    publish(to, [stage_rows(to, [1])], batch=0)
    real, calls = iceberg.append, []

    def after_a_twin(*args, **options):
        if not calls:
            calls.append(True)
            publish(to, [stage_rows(to, [2], 1)], batch=1)
            place.catalog.load_table(place.name).append(pa.table({"n": pa.array([50], pa.int64())}))
        real(*args, **options)

    monkeypatch.setattr(iceberg, "append", after_a_twin)
    publish(to, [stage_rows(to, [2], 1)], batch=1)
    assert place.numbers() == [1, 2, 50]


def test_columns_and_branches_are_made_and_a_table_that_is_created_again_is_refused(place):
    to = place.how()
    publish(to, [stage_rows(to, [1])], batch=0)
    wider = place.how(schema=pa.schema([("n", pa.int64()), ("s", pa.string())]), mergeSchema="true", branch="audit")
    publish(wider, [stage_rows(wider, pa.table({"n": [2], "s": ["b"]}), query="of-audit")], batch=0)
    table = place.catalog.load_table(place.name)
    assert table.scan().use_ref("audit").to_arrow().num_rows == 2
    assert place.numbers() == [1]
    message = stage_rows(to, [3], 1)
    place.catalog.drop_table(place.name)
    place.catalog.create_table(place.name, pa.schema([("n", pa.int64())]))
    with pytest.raises(InputError, match="was dropped and created again while the query ran: restore it"):
        publish(to, [message], batch=1)
