"""Delta and Iceberg tables of the sink in SeaweedFS, an S3 server that is killed and started again."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pyspark_wm_sink.kafka.ledger import Ledger
from tests.sink.test_ledger import entry
from tests.support.object_store import REGION, ObjectStore, moto_packages
from tests.support.seaweedfs import VERSION, SeaweedFS
from tests.support.table_trial import Trial, readers_in_s3

_ROUNDS, _WRITERS = 30, 6


def run(folder: Path) -> str:
    """Play the trial; returns what it proved."""
    home = folder / "data"
    home.mkdir()
    with SeaweedFS(home) as server:
        _conditional_puts(server.store)
        delta = _delta(folder, server)
        iceberg = _iceberg(folder, server)
        _ledger(server)
    return (
        f"SeaweedFS {VERSION}: of {_WRITERS} conditional puts of one object one came through, {_ROUNDS} times; "
        f"each table with 4 kills of a writer and 2 of the server; Delta: {delta}; Iceberg: {iceberg}; "
        f"a ledger of the Kafka sink kept each decision over a kill of the server"
    )


def _conditional_puts(store: ObjectStore) -> None:
    """Put one object by several writers at once, with `If-None-Match: *`: exactly one may come through."""
    sys.path.append(str(moto_packages()))
    import boto3
    from botocore.exceptions import ClientError

    start = Barrier(_WRITERS)
    login = {"aws_access_key_id": store.access_key, "aws_secret_access_key": store.secret_key, "region_name": REGION}
    client = boto3.client("s3", endpoint_url=store.endpoint, **login)

    def put_object(round_number: int) -> int:
        start.wait()
        try:
            client.put_object(Bucket=store.bucket, Key=f"once/{round_number}", Body=b"x", IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"PreconditionFailed", "ConditionalRequestConflict"}:
                raise
            return 0
        return 1

    with ThreadPoolExecutor(_WRITERS) as pool:
        winners = [sum(pool.map(put_object, [number] * _WRITERS)) for number in range(_ROUNDS)]
    assert winners == [1] * _ROUNDS, winners


def _delta(folder: Path, server: SeaweedFS) -> str:
    storage, path = dict(server.store.storage_options), f"s3://{server.store.bucket}/delta"
    trial = Trial({"path": path, **{f"storage.{name}": value for name, value in storage.items()}}, folder)
    _play(trial, server)

    def by_polars() -> list[int]:
        import polars as pl

        return pl.scan_delta(path, storage_options=storage).collect()["n"].to_list()

    table = DeltaTable(path, storage_options=storage)
    return trial.check({"deltalake": lambda: table.to_pyarrow_table().column("n").to_pylist(), "Polars": by_polars})


def _iceberg(folder: Path, server: SeaweedFS) -> str:
    store = server.store
    catalog = {
        "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://{store.bucket}/iceberg",
        "s3.endpoint": store.endpoint, "s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key,
        "s3.region": REGION,
    }  # fmt: skip
    load_catalog("default", **catalog).create_namespace("db")
    options = {f"catalog.{name}": value for name, value in catalog.items()}
    trial = Trial({"table": "db.t", "createTable": "true", "partitionBy": "bucket(2, n)", **options}, folder)
    _play(trial, server)
    return trial.check(readers_in_s3(load_catalog("default", **catalog).load_table("db.t")))


def _play(trial: Trial, server: SeaweedFS) -> None:
    trial.lone_writer()
    trial.twins()
    trial.neighbours()
    trial.kills(4, seed=1)
    trial.outage(server.kill_and_start)


def _ledger(server: SeaweedFS) -> None:
    """Write decisions of the Kafka sink to a ledger in the store, and kill the server after each of them."""
    os.environ.update({name: value for name, value in server.store.variables.items() if name != "AWS_ENDPOINT_URL"})
    address = f"s3://{server.store.bucket}/ledger/keyedwm?endpoint_override={server.store.endpoint}"
    for batch in range(3):
        ledger = Ledger(address)
        with ledger.locked():
            ledger.decide(entry(batch))
        server.kill_and_start()
        again = Ledger(address)
        with again.locked():
            assert again.newest() == entry(batch)
