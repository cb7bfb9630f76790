"""The Spark settings that our operators ask for: told, checked, never set behind the user's back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
# Spark takes this very number to mean that there is nothing to measure.
_NO_LIMIT = 2**31 - 1


def recommended_conf(cores: int = 4) -> Mapping[str, str]:
    """Return the settings for a session that runs keyedwm; give them to the builder before the query starts.

    cores: how many tasks run at once. The state store provider is required by Spark's transformWithState; the others
    save time: one bucket a core, small state commits, Arrow batches large enough to be worth a call. The last one
    switches off a limit in bytes for which Spark measures the whole batch after every row it hands to Python, a third
    of what our sink costs the JVM; rows of a megabyte want the limit back, or a lower maxRecordsPerBatch.
    """
    if cores < 1:
        raise OptionError(f"recommended_conf(cores={cores}): a whole number of at least 1 is wanted")
    return {
        PROVIDER: ROCKSDB,
        PARTITIONS: str(cores),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_LIMIT),
    }


def check_provider(spark: SparkSession, asked_by: str) -> None:
    """Raise OptionError if the session's state store cannot hold the operator's state."""
    provider = spark.conf.get(PROVIDER) or "the default one"
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise OptionError(
            f"{asked_by}: the session's state store provider is {provider.rpartition('.')[2]}, Spark's "
            f'transformWithState needs RocksDB: spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )
