"""`python -m keyedwm.testing`: three Kafka brokers and a Spark cluster that stay until they are told to stop."""

from __future__ import annotations

import signal
import sys

from keyedwm.testing.several import local_cluster
from keyedwm.testing.standalone import Standalone, standalone


def told(spark: Standalone, bootstrap: str) -> str:
    """How to use both, for people."""
    session = f'SparkSession.builder.master("{spark.url}").config("spark.driver.host", "127.0.0.1")'
    return "\n".join([
        spark.describe(),
        f"Kafka at {bootstrap}, topics on three brokers by default",
        "",
        f"  a session:   {session}",
        f'  its options: .option("kafka.bootstrap.servers", "{bootstrap}")',
        f"  spark-submit --master {spark.url} --conf spark.driver.host=127.0.0.1 PROGRAM.py",
        "  an executor's log is in work/ of its worker's directory:",
        *(f"    {worker.address}: {worker.home}, pid {worker.pid}" for worker in spark.workers),
        "",
        "Ctrl-C stops all of it",
    ])  # fmt: skip


def main() -> None:
    """Run until Ctrl-C or SIGTERM, which both leave as KeyboardInterrupt with everything stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    together = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    try:
        with local_cluster(3, together) as brokers, standalone() as spark:
            print(told(spark, ",".join(broker.bootstrap for broker in brokers)), flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
