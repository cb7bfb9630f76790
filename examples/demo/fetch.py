"""Fetch the jars that the demo asks for, while its other packages are installed: `python -m examples.demo.fetch`.

Rule: it needs PySpark, whose Ivy fetches, and nothing else. A jar that cannot be fetched is reported and ends nothing:
the demo asks again, and continues without Spark's connector.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.core.errors import KeyedwmError
from keyedwm.testing.ivy import fetch_jars
from keyedwm.testing.local import ARTIFACTS, KAFKA_VERSION

_ANSWER_LIMIT_S = 20


def has_docker() -> bool:
    """Whether Docker answers: Kafka is a container then, and no jar of it is needed."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        process = subprocess.run([docker, "info"], capture_output=True, check=False, timeout=_ANSWER_LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return process.returncode == 0


def main() -> int:
    """Fetch; always 0."""
    try:
        spark_kafka_connector_jars()
        if not has_docker():
            fetch_jars(f"kafka-{KAFKA_VERSION}", ARTIFACTS)
    except KeyedwmError as error:
        print(error.message, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
