"""Rows that a processor keeps, as `held_rows` reads them from blobs."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from keyedwm.core.errors import DamagedError, InputError
from keyedwm.operators.keyed.key_watermark_log import KEYS_LOG
from keyedwm.operators.state.blobs import stored
from keyedwm.spark.inspect.list_rows import ReadLogs, log_lines, rows_by_log

SEEN = pa.table({"log": ["x", "y"], "v": [1, 2]})


def batch_of(**tables: pa.Table) -> pa.RecordBatch:
    rows = [{"name": name, "blob": stored(name, table)} for name, table in tables.items()]
    return pa.RecordBatch.from_pylist(rows, pa.schema([("name", pa.string()), ("blob", pa.binary())]))


def test_each_row_has_the_name_of_its_log_and_watermarks_of_keys_are_no_rows():
    read = ReadLogs("once", "seen-1", SEEN.schema)
    own = pa.table({"__high": [7]})
    batches = list(
        read([batch_of(**{"seen-1": SEEN, KEYS_LOG: own}), batch_of(**{"seen-1+2": SEEN.slice(1), "seen-2": SEEN})])
    )
    rows = pa.Table.from_batches(batches, read.listing_schema).to_pylist()
    assert [(row["log"], row["row_log"], row["v"]) for row in rows] == [
        ("seen-1", "x", 1), ("seen-1", "y", 2), ("seen-1", "y", 2), ("seen-2", "x", 1), ("seen-2", "y", 2),
    ]  # fmt: skip


def test_logs_of_other_columns_and_damaged_logs_are_rejected_in_one_sentence():
    read = ReadLogs("once", "seen", SEEN.schema)
    with pytest.raises(InputError, match="once: the logs 'seen' and 'sums' have different columns: give the name of "):
        list(read([batch_of(sums=SEEN.select(["v"]))]))
    with pytest.raises(DamagedError, match="'seen' of the operator's state does not agree with its checksum"):
        list(read([batch_of(others=SEEN).set_column(0, "name", pa.array(["seen"]))]))


def test_the_ten_largest_logs_are_named_and_the_others_counted():
    states = [{"rows": {f"log-{number}": number for number in range(8)} | {KEYS_LOG: 99}}, {"rows": {"log-7": 7}}, {}]
    counts = rows_by_log(states)
    assert counts == Counter({f"log-{number}": number for number in range(7)} | {"log-7": 14})
    assert log_lines(counts)[:2] == ["log 'log-7': 14 rows", "log 'log-6': 6 rows"]
    counts.update({"a": 100, "b": 50, "c": 40})
    assert [*log_lines(counts)[-2:]] == ["log 'log-1': 1 rows", "1 more logs: 0 rows"]
