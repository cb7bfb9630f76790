"""Hadoop's file system S3A for Spark: checkpoints, state and files at s3a://BUCKET/, fetched on demand.

Rule: exactly these artifacts, and only for the Hadoop that is among PySpark's jars: S3A is a part of Hadoop, in its
version. `python -m tests.support.s3a` fetches them (some 700 MB, nearly all of it Amazon's own library) and prints
the settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.testing.ivy import fetch_jars, read_hashes
from tests.support.standalone import spark_home

_HASHES = read_hashes(Path(__file__).with_name("other_jars.txt"))
HADOOP = "3.5.0"
ARTIFACTS = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    "software.amazon.awssdk:bundle:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)


def s3a_jars() -> list[Path]:
    """Jars for the class paths of driver and executors; UnavailableError if they cannot be had or do not fit."""
    if not (spark_home() / "jars" / f"hadoop-client-api-{HADOOP}.jar").exists():
        versions = [jar.stem.rpartition("-")[2] for jar in (spark_home() / "jars").glob("hadoop-client-api-*.jar")]
        raise UnavailableError(
            f"the S3A that is fetched here belongs to Hadoop {HADOOP}, and PySpark brings {(versions or ['none'])[0]}: "
            "use PySpark 4.3.0, or name the jars of hadoop-aws in that version yourself"
        )
    return fetch_jars(f"s3a-{HADOOP}", ARTIFACTS, transitive=False, hashes=_HASHES)


def s3a_conf(jars: list[Path]) -> Mapping[str, str]:
    """The settings that name them on a machine where all have the same files; where they differ, `spark.jars`."""
    joined = os.pathsep.join(map(str, jars))
    return {"spark.driver.extraClassPath": joined, "spark.executor.extraClassPath": joined}


def main() -> int:
    """Exit code 0 and the settings, or 1 and the sentence."""
    try:
        settings = s3a_conf(s3a_jars())
    except KeyedwmError as error:
        print(error.message, file=sys.stderr)
        return 1
    print("\n".join(f"--conf {name}={value}" for name, value in settings.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
