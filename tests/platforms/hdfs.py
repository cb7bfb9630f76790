"""Hadoop's own HDFS without Spark: the Kafka sink's ledger by Arrow and libhdfs, and a Delta table by deltalake.

Run one part in a process whose environment names Hadoop: python -m tests.platforms.hdfs ADDRESS
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from pyspark_wm_sink.delta.storage import discard
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.places.notes import Claim
from pyspark_wm_sink.tables.publish import publish
from tests.installed import ROOT
from tests.platforms.hadoop import CRATE, CRATE_VERSION, VERSION, hadoop, native_folder
from tests.sink.delta_readers import how
from tests.sink.table_sink import stage_rows
from tests.sink.test_ledger import entry

LIMIT_S = 300


def run(folder: Path) -> str:
    """Write a ledger and a table; raise if one is not as it was written."""
    native = native_folder()
    with hadoop(folder / "hadoop", 1) as cluster:
        variables = {"HADOOP_CONF_DIR": str(cluster.conf), **cluster.library_variables(native)}
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.platforms.hdfs", cluster.hdfs], cwd=ROOT,
            env=os.environ | variables, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    assert result.returncode == 0, result.stderr.strip().splitlines()[-1]
    return (
        f"HDFS {VERSION}: a ledger by libhdfs ({CRATE} {CRATE_VERSION}) is decided, published and claimed, and a Delta "
        "table is appended once, by the name of the NameNode and by hdfs:///"
    )


def use_ledger(address: str) -> None:
    """Decide and publish a batch, replace files, and read all of it again."""
    ledger = Ledger(f"{address}/checkpoint/keyedwm")
    with ledger.locked():
        assert ledger.newest() is None
        ledger.decide(entry(4))
    again = Ledger(f"{address}/checkpoint/keyedwm")
    with again.locked():
        assert again.newest() == entry(4)
        again.mark_published(entry(4))
        newest = again.newest()
        assert newest is not None
        assert newest.published
        assert again.take_epoch("a") == Claim(owner="a", epoch=1, is_new=True)
        assert again.take_epoch("b") == Claim(owner="b", epoch=2, is_new=True)


def use_table(path: str) -> None:
    """Publish two batches of which one is published again, and remove a staged file that no commit names."""
    rows = pa.table({"n": [1, 2, 3], "s": ["x/y=1% 'é", None, "z"]})
    to = how(path, rows.schema, partitionBy="s")
    message = stage_rows(to, rows)
    for batch in (0, 0, 1):
        publish(to, [message if batch == 0 else stage_rows(to, rows, batch)], batch=batch)
    table = DeltaTable(path)
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    unused = [file.name for file in stage_rows(to, rows, 2).files]
    discard(path, {}, [*unused, "none.parquet"])
    assert DeltaTable(path).version() == table.version()


if __name__ == "__main__":
    use_ledger(sys.argv[1])
    use_table(f"{sys.argv[1]}/table")
    use_table("hdfs:///other-table")
