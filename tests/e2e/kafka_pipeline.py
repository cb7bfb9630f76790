"""The program that the Kafka campaign kills: Kafka to Kafka, exactly once.

Run: python -m tests.e2e.kafka_pipeline BOOTSTRAP TOPIC DIRECTORY forever|to-the-end   (writes to TOPIC-out)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.e2e.pipeline import BITE, REST, session, source

NAME = "copy"


def main(bootstrap: str, topic: str, directory: str, mode: str) -> None:
    forever = mode == "forever"
    rows = source(session(), bootstrap, topic, BITE if forever else REST).drop("partition")
    writer = (
        rows.writeStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", f"{topic}-out")
        .option("checkpointLocation", str(Path(directory) / f"{NAME}.checkpoint"))
    )
    (writer if forever else writer.trigger(availableNow=True)).start().awaitTermination()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
