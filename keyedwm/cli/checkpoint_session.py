"""The Spark session of commands that read a checkpoint's state: of this machine, quiet, ended with the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keyedwm.config.secrets import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return what NAME=VALUE texts say, secrets from where they name. Raises OptionError."""
    return settings_of("--conf", settings, "spark.hadoop.fs.s3a.endpoint=HOST")


@contextmanager
def checkpoint_session(settings: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Start a session, or use the one that runs; settings: NAME=VALUE, as for spark-submit. Raises OptionError."""
    by_name = session_settings(settings)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.master("local[*]").appName("keyedwm")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    for name, value in by_name.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
