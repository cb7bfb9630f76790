"""Nexmark's log of bids in files (q10) as frames of both sides, and its answer by numpy.

Rule: a row counts when a reader of the finished table has it. Directories are those of the day and the minute of the
bid. Flink writes CSV, and marks a minute that is complete; here both sides write Parquet, and what a batch wrote
becomes visible with the batch: by a commit of our Delta sink, by the log of Spark's file sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset
from deltalake import DeltaTable

from benchmarks.measure import Finished, finished, scratch
from benchmarks.nexmark_days import DAY_MS, date_of, day_text, minute_of, minute_text
from benchmarks.nexmark_events import BID
from benchmarks.nexmark_frames import BID_FIELDS, Events, Query, events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.spark.hosting.source_description import Source

_BID = ("auction", "bidder", "price", "dateTime", "extra")
_FOLDERS = ("dt", "hm")
_Q10 = (*_BID, *_FOLDERS)


def log_to_files(frame: DataFrame, query: Query, *, is_keyedwm: bool) -> tuple[Finished, pa.Table]:
    """Write a query's rows to files until all are there; return the run, and what a reader has of them then.

    is_keyedwm: by our Delta sink; else by Spark's Parquet sink.
    """
    with scratch() as place:
        path = str(Path(place, "log"))
        if is_keyedwm:
            writer = frame.writeStream.format("keyedwm").options(path=path, partitionBy=",".join(query.folders))
        else:
            writer = frame.writeStream.format("parquet").option("path", path).partitionBy(*query.folders)
        done = finished(writer)
        dataset = DeltaTable(path).to_pyarrow_dataset() if is_keyedwm else _parquet(path, query.folders)
        return done, dataset.to_table(columns=list(query.columns))


def _parquet(path: str, folders: Sequence[str]) -> pyarrow.dataset.Dataset:
    texts = pa.schema([(name, pa.string()) for name in folders])
    by_folder = pyarrow.dataset.partitioning(texts, flavor="hive")
    return pyarrow.dataset.dataset(path, format="parquet", partitioning=by_folder)


def _q10(rows: DataFrame | Source) -> DataFrame:
    bids = events_of(rows, f"{BID_FIELDS}, extra STRING", "bid")
    control = [name for name in ("control",) if name in bids.columns]
    return bids.selectExpr(*_BID, f"{date_of('dateTime')} dt", f"{minute_of('dateTime')} hm", *control)


def _a10(events: Events) -> pa.Table:
    rows = events.rows(BID)
    time = rows["dateTime"].to_numpy()
    return rows.append_column("dt", day_text(time // DAY_MS)).append_column("hm", minute_text(time)).select(list(_Q10))


LOGS: dict[str, Query] = {"q10": Query(_Q10, _q10, _q10, _a10, folders=_FOLDERS)}
