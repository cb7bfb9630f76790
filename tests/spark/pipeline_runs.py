"""Runs of declarative pipelines, one after another in one process and one Spark, as `spark-pipelines run` runs each.

    python -m tests.spark.pipeline_runs WAREHOUSE SPEC...

It writes `RAN` after each run, and waits for a line before the next one. A run that fails writes its error's sentence.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(warehouse: str, specs: list[str]) -> None:
    os.environ["SPARK_REMOTE"] = "local[2]"
    from pyspark.pipelines import cli
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as Client

    from keyedwm.core.errors import KeyedwmError
    from keyedwm.spark import session_conf

    settings = {**session_conf(cores=2), "spark.sql.warehouse.dir": warehouse, "spark.ui.enabled": "false"}
    session = SparkSession.builder.config(map=settings).getOrCreate()
    stop, Client.stop = Client.stop, lambda _: None  # each run would end Spark
    for spec in specs:
        try:
            cli.run(spec_path=Path(spec), full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
            print("RAN", flush=True)
        except KeyedwmError as error:
            print(f"RAN {error}", flush=True)
        sys.stdin.readline()
    stop(session)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
