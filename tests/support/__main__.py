"""`python -m tests.support`: Kafka brokers, a Spark cluster and an object store that stay until told to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping

from tests.support.object_store import ObjectStore, object_store
from tests.support.several import local_cluster
from tests.support.standalone import Standalone, standalone


def describe_all(spark: Standalone, bootstrap: str, store: ObjectStore) -> str:
    """How to use all of it, for people."""
    session = f'SparkSession.builder.master("{spark.url}").config("spark.driver.host", "127.0.0.1")'
    return "\n".join([
        spark.describe(),
        f"Kafka at {bootstrap}, topics on three brokers by default",
        store.describe(),
        "",
        f"  a session:   {session}",
        f'  its options: .option("kafka.bootstrap.servers", "{bootstrap}")',
        f"  spark-submit --master {spark.url} --conf spark.driver.host=127.0.0.1 PROGRAM.py",
        "",
        *describe_store(store),
        "",
        "  an executor's log is in work/ of its worker's directory:",
        *(f"    {worker.address}: {worker.home}, pid {worker.pid}" for worker in spark.workers),
        "",
        "Ctrl-C stops all of it",
    ])  # fmt: skip


def describe_store(store: ObjectStore) -> Iterator[str]:
    """How to use the object store; the keys of a server that was given stay where they are."""
    yield f"  a Delta table in the object store: path s3://{store.bucket}/NAME, and for the sink"
    yield from (f'    .option("storage.{name}", "{value}")' for name, value in _mask_keys(store, store.storage_options))
    yield "  a ledger there: in the driver's environment"
    yield from (f"    {name}={value}" for name, value in _mask_keys(store, store.variables))
    yield f"  a checkpoint with its state at s3a://{store.bucket}/NAME: `python -m tests.support.s3a` fetches what"
    yield "  Spark needs for it (some 700 MB, once), and says where it is; besides"
    yield from (f"    --conf {name}={value}" for name, value in _mask_keys(store, store.spark_conf))


def _mask_keys(store: ObjectStore, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    secrets = {store.access_key, store.secret_key} if store.log is None else set()
    yield from ((name, "(as in AWS_*)" if value in secrets else value) for name, value in settings.items())


def main() -> None:
    """Run until Ctrl-C or SIGTERM, which both leave as KeyboardInterrupt with everything stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    together = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    try:
        with local_cluster(3, together) as brokers, standalone() as spark, object_store() as store:
            print(describe_all(spark, ",".join(broker.bootstrap for broker in brokers), store), flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
