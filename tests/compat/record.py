"""Records the fixtures of a version: `python -m tests.compat.record VERSION`, with a real Kafka and a real Spark.

Rule: run once, when the version is cut. A fixture is never recorded again: later versions read what a version wrote.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from keyedwm.testing.broker import broker
from tests.compat.files import save_files
from tests.compat.logs import save
from tests.compat.scenarios import PARTS, SCENARIOS, Place, answer, records
from tests.tools import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES = Path(os.environ.get("KEYEDWM_FIXTURES", Path(__file__).parent / "fixtures"))


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    from keyedwm.spark import recommended_conf

    builder = SparkSession.builder.master("local[2,4]").config("spark.driver.memory", "2g")
    for name, value in recommended_conf(cores=2).items():
        builder = builder.config(name, value)
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )


def main(version: str, *names: str) -> None:
    """Run every scenario (or those named), save it, then run it once more for what is expected of others."""
    spark = session()
    with broker() as kafka, tempfile.TemporaryDirectory() as home:
        for name in names or SCENARIOS:
            scenario, directory = SCENARIOS[name], Path(home) / name
            target = FIXTURES / version / name
            if target.exists():
                raise SystemExit(f"{target} exists: a fixture is recorded once")
            for topic, partitions in scenario.topics.items():
                make_topic(kafka.bootstrap, topic, partitions)
            place = Place(spark, kafka.bootstrap, directory)
            for part in range(PARTS):
                if part == PARTS - 1:
                    target.mkdir(parents=True)
                    _write(target / "kafka.json", save(kafka.bootstrap, scenario.topics))
                    save_files(directory, target / "files")
                produce(kafka.bootstrap, next(iter(scenario.topics)), records(part))
                scenario.run(place)
            _write(target / "expected.json", answer(scenario, directory))
            print(name, "recorded")
    spark.stop()


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
