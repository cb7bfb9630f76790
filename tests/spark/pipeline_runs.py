"""Runs of declarative pipelines, one after another in one process and one Spark, as `spark-pipelines run` runs each.

    python -m tests.spark.pipeline_runs SPEC...

It writes `RAN` after each run, and waits for a line before the next one. A run that fails writes its error's sentence.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(specs: list[str]) -> None:
    os.environ["SPARK_REMOTE"] = "local[2]"
    from pyspark.pipelines import cli
    from pyspark.sql.connect.session import SparkSession

    from keyedwm.core.errors import KeyedwmError

    stop, SparkSession.stop = SparkSession.stop, lambda self: None  # a run ends Spark with itself
    for spec in specs:
        try:
            cli.run(spec_path=Path(spec), full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
            print("RAN", flush=True)
        except KeyedwmError as error:
            print(f"RAN {error}", flush=True)
        sys.stdin.readline()
    stop(SparkSession.active())


if __name__ == "__main__":
    main(sys.argv[1:])
