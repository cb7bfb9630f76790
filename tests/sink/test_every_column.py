"""Tables with columns of every kind, read by libraries of others: each cell is as it was written.

All partitions, and the readers of Spark: `python -m tests.platforms readers`.
"""

from __future__ import annotations

import pytest

from tests.sink.every_column import DELTA_READERS, ICEBERG_READERS, write_delta, write_iceberg, wrong_cells


@pytest.mark.filterwarnings("ignore")  # of the readers
@pytest.mark.parametrize(
    ("write", "readers", "by"),
    [
        (write_delta, DELTA_READERS, ""),
        (write_delta, DELTA_READERS, "word, day"),
        (write_iceberg, ICEBERG_READERS, ""),
        (write_iceberg, ICEBERG_READERS, "word"),
        (write_iceberg, ICEBERG_READERS, "day(at), bucket(4, text), truncate(3, raw)"),
    ],
)
def test_each_reader_sees_each_cell_as_it_was_written(write, readers, by, tmp_path):
    for package in ("polars", "duckdb"):
        pytest.importorskip(package, reason="make install, or pip install 'keyedwm[test]', brings the readers")
    original = write(tmp_path / "t", by)
    wrong = {name: wrong_cells(read(tmp_path / "t"), original) for name, read in readers.items()}
    assert not any(wrong.values()), wrong
