"""Fixtures for pytest: a Spark session with keyedwm's settings, and a real broker.

Load them in a conftest.py: `pytest_plugins = ["keyedwm.testing.fixtures"]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from keyedwm.testing.broker import Broker


@pytest.fixture(scope="session")
def keyedwm_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session for all tests: two cores, UTC, no UI, and the settings of `session_conf`."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf

    builder = SparkSession.builder.master("local[2]").appName("tests of pipelines")
    settings = {
        **session_conf(cores=2),
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def keyedwm_kafka() -> Iterator[Broker]:
    """Return a real broker for all tests (see `keyedwm.testing.broker`); `bootstrap` is its address."""
    from keyedwm.testing.broker import broker

    with broker() as running:
        yield running
