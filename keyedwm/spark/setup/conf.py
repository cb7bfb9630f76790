"""Spark settings that our operators need (documented, checked, never set silently), and the start of several queries.

Rule: the next query starts when Spark has set up the sources of the one before. Spark 4.3 keeps one map of environment
variables for all queries of a Python source. Each query writes into it as its source is set up. Two that write at
the same moment can break the map for the life of the JVM: every query then ends with "Task not serializable", caused
by "Illegal size 5 of collection, expected 6".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import argument_text
from keyedwm.spark.setup.cds_archive import archive_setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# For this very number Spark measures nothing.
_NO_LIMIT = 2**31 - 1
# Short on purpose: in a container of YARN, Java's temporary directory is below the container's own directory, and the
# path of a socket there is longer than the 107 bytes that the system allows.
_SOCKETS = "/tmp"  # noqa: S108 - the sockets have random names, and only their owner can write to them


def recommended_conf(cores: int = 4, *, local_checkpoint: bool = False) -> Mapping[str, str]:
    """Return the settings for a session that runs keyedwm; give them to the builder before the query starts.

    cores: how many tasks run at once. The state store provider is required by Spark's transformWithState; the others
    save time: one bucket a core, small state commits, no count of the rows of the state, large Arrow batches.
    maxBytesPerBatch sets no limit in bytes: to keep a limit, Spark measures the whole batch after every row that it
    passes to Python. That is a third of our sink's cost in the JVM. Rows of a megabyte need the limit, or a lower
    maxRecordsPerBatch. local_checkpoint: every checkpoint of the session lies on a disk of the machine that runs driver
    and tasks. Spark then uses Hadoop's FileSystem for the files and not FileContext, which starts a process for each
    request. Do not set it for HDFS: a task that runs again could leave the older file in its place. Raises OptionError
    for an invalid value.
    """
    if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
        raise OptionError(f"cores={cores!r}: a whole number of at least 1 is expected")
    if not isinstance(local_checkpoint, bool):
        raise OptionError(f"local_checkpoint={local_checkpoint!r}: True or False is expected")
    return {
        PROVIDER: ROCKSDB,
        PARTITIONS: str(cores),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_LIMIT),
        **({MANAGER: FILE_SYSTEM} if local_checkpoint else {}),
    }


def session_conf(cores: int = 4, *, local_checkpoint: bool = False) -> Mapping[str, str]:
    """Return the settings of `recommended_conf` and those that only the session's builder or spark-submit can set.

    These save time when queries start: Python workers are forked from a process that has loaded what they need, and
    talk to the JVM through sockets of the file system. If `keyedwm warm` has run here, the driver's JVM maps Spark's
    classes from an archive: `spark.driver.defaultJavaOptions`, which replaces a value that the builder had before.
    """
    return {
        **recommended_conf(cores, local_checkpoint=local_checkpoint),
        "spark.python.daemon.module": "keyedwm.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _SOCKETS,
        **archive_setting(),
    }


def check_provider(spark: SparkSession, caller: str) -> None:
    """Raise OptionError if the session's state store cannot hold the operator's state."""
    provider = spark.conf.get(PROVIDER) or "the default one"
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise OptionError(
            f"{caller}: the session's state store provider is {provider.rpartition('.')[2]}, Spark's "
            f'transformWithState needs RocksDB: spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )


_POLL_S = 0.02
# Spark's status of a query whose sources are not set up yet: `Initializing StreamExecution`, `Initializing sources`.
_SETTING_UP = "Initializing"


def start_in_turn(*writers: DataStreamWriter) -> list[StreamingQuery]:
    """Start the queries one after another and return them in that order.

    A query that ends while it is set up is returned like the others; its own `exception()` says why. Raises OptionError
    before anything starts if one is no writer of a stream. An error of `start()` stops the earlier queries.
    """
    for writer in writers:
        if not hasattr(writer, "start"):
            raise OptionError(
                f"start_in_turn: {argument_text(writer)} is no writer of a stream: pass df.writeStream..., without "
                ".start()"
            )
    queries = []
    with ExitStack() as started:
        for writer in writers:
            query = writer.start()
            started.callback(query.stop)
            while query.isActive and query.status["message"].startswith(_SETTING_UP):
                time.sleep(_POLL_S)
            queries.append(query)
        started.pop_all()
    return queries
