"""A query of Spark's own source stops, `keyedwm migrate` reads its checkpoint, and keyedwm goes on.

Run: python -m tests.system.first_hour.moving BOOTSTRAP TOPIC DIRECTORY. Prints the values that each read, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.cli.main import main as command
from tests.spark.other_session import session, stream, to_the_end
from tests.tools import Record, produce


def values(spark, name: str) -> list[str]:
    return sorted(row[0] for row in spark.sql(f"SELECT CAST(value AS STRING) FROM {name}").collect())  # noqa: S608


def main(bootstrap: str, topic: str, directory: Path) -> None:
    spark = session(**{"spark.jars": ",".join(map(str, spark_kafka_connector_jars()))})
    produce(bootstrap, topic, [Record(n % 2, 10 + n, b"%d" % n) for n in range(10)])
    to_the_end(stream(spark, "kafka", bootstrap, topic, maxOffsetsPerTrigger="3"), "native", directory)
    produce(bootstrap, topic, [Record(n % 2, 10 + n, b"%d" % n) for n in range(10, 20)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert command(["migrate", str(directory / "native")]) == 0
    frame = stream(spark, "keyedwm", bootstrap, topic, startingOffsets=printed.getvalue(), emitControl="false")
    to_the_end(frame, "ours", directory)
    print(json.dumps({"native": values(spark, "native"), "ours": values(spark, "ours")}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
