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
    save time: one bucket a core, small state commits, no reading of what is overwritten to count the rows of the
    state, Arrow batches large enough to be worth a call. The last one
    switches off a limit in bytes for which Spark measures the whole batch after every row it hands to Python, a third
    of what our sink costs the JVM; rows of a megabyte want the limit back, or a lower maxRecordsPerBatch.
    """
    if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
        raise OptionError(f"cores={cores!r}: a whole number of at least 1 is expected")
    return {
        PROVIDER: ROCKSDB,
        PARTITIONS: str(cores),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_LIMIT),
    }


def session_conf(cores: int = 4) -> Mapping[str, str]:
    """Return the settings of `recommended_conf` and those that only the session's builder or spark-submit can set.

    These save time when queries start: Python workers are forked from a process that has loaded what they need, and
    talk to the JVM through sockets of the file system.
    """
    return {
        **recommended_conf(cores),
        "spark.python.daemon.module": "keyedwm.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def check_provider(spark: SparkSession, caller: str) -> None:
    """Raise OptionError if the session's state store cannot hold the operator's state."""
    provider = spark.conf.get(PROVIDER) or "the default one"
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise OptionError(
            f"{caller}: the session's state store provider is {provider.rpartition('.')[2]}, Spark's "
            f'transformWithState needs RocksDB: spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )
