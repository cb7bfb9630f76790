"""What others do to a Delta table while a query writes to it: the rows stay exact, or the batch is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType

from keyedwm.core.errors import InputError, UnavailableError
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import StagedFiles
from tests.sink import delta_sink
from tests.sink.delta_sink import how

FOREIGN = pa.table({"n": [90, 91]})


def stage_rows(table: Path, *values: int, batch: int) -> StagedFiles:
    return delta_sink.stage_rows(how(table), list(values), batch)


def numbers(table: Path) -> list[int]:
    """The numbers in the table, by a reader that knows deletion vectors."""
    query_result = QueryBuilder().register("t", DeltaTable(table)).execute("select n from t order by n")
    return pa.table(query_result.read_all()).column("n").to_pylist()


def merge(table: DeltaTable) -> None:
    source = pa.table({"n": [1, 99]})
    merged = table.merge(source, "t.n = s.n", source_alias="s", target_alias="t")
    merged.when_matched_update({"n": "101"}).when_not_matched_insert_all().execute()


def vacuumed(table: DeltaTable) -> None:
    table.optimize.compact()
    table.update_incremental()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


# What a neighbour does to the numbers 1 to 4, and what is left of them with its own rows.
EXACT: dict[str, tuple[Callable[[DeltaTable], object], list[int]]] = {
    "compacts": (lambda table: table.optimize.compact(), [1, 2, 3, 4]),
    "sorts": (lambda table: table.optimize.z_order(["n"]), [1, 2, 3, 4]),
    "compacts and vacuums": (vacuumed, [1, 2, 3, 4]),
    "writes a checkpoint and drops the log before it": (
        lambda table: (table.create_checkpoint(), table.cleanup_metadata()), [1, 2, 3, 4],
    ),
    "deletes rows": (lambda table: table.delete("n < 3"), [3, 4]),
    "deletes all rows": (lambda table: table.delete(), []),
    "updates rows": (lambda table: table.update({"n": "n + 100"}, predicate="n < 3"), [3, 4, 101, 102]),
    "merges": (merge, [2, 3, 4, 99, 101]),
    "appends": (lambda table: write_deltalake(table, FOREIGN, mode="append"), [1, 2, 3, 4, 90, 91]),
    "overwrites": (lambda table: write_deltalake(table, FOREIGN, mode="overwrite"), [90, 91]),
    "turns the change data feed on": (
        lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}), [1, 2, 3, 4],
    ),
    "forbids deletes": (
        lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}), [1, 2, 3, 4],
    ),
}  # fmt: skip
REJECTED_CHANGES: dict[str, tuple[Callable[[DeltaTable], object], type[Exception], str]] = {
    "adds a constraint": (
        lambda table: table.alter.add_constraint({"small": "n < 10"}), InputError, "CHECK constraint small .n < 10",
    ),
    "restores an older version": (lambda table: table.restore(1), InputError, "was restored to an older version"),
}  # fmt: skip


def begin_table(table: Path) -> None:
    for batch, values in enumerate([(1, 2), (3, 4)]):
        publish(how(table), [stage_rows(table, *values, batch=batch)], batch=batch)


@pytest.mark.parametrize("is_staged", [False, True], ids=["between batches", "while a batch is staged"])
@pytest.mark.parametrize("neighbour", EXACT)
def test_beside_a_neighbour_each_row_is_there_once(tmp_path, neighbour, is_staged):
    act, rows_left = EXACT[neighbour]
    begin_table(tmp_path)
    files = [stage_rows(tmp_path, 5, 6, batch=2)] if is_staged else []
    if not is_staged or neighbour != "compacts and vacuums":  # which deletes staged files: see below
        act(DeltaTable(tmp_path))
    else:
        rows_left = [1, 2, 3, 4]
    publish(how(tmp_path), files or [stage_rows(tmp_path, 5, 6, batch=2)], batch=2)
    for batch in (1, 2):  # both come again, as after a kill
        publish(how(tmp_path), [stage_rows(tmp_path, *{1: (3, 4), 2: (5, 6)}[batch], batch=batch)], batch=batch)
    publish(how(tmp_path), [stage_rows(tmp_path, 7, batch=3)], batch=3)
    assert numbers(tmp_path) == sorted([*rows_left, 5, 6, 7])


@pytest.mark.parametrize("neighbour", REJECTED_CHANGES)
def test_beside_a_neighbour_that_asks_too_much_nothing_is_published(tmp_path, neighbour):
    act, error, sentence = REJECTED_CHANGES[neighbour]
    begin_table(tmp_path)
    files = [stage_rows(tmp_path, 5, 6, batch=2)]
    act(DeltaTable(tmp_path))
    version = DeltaTable(tmp_path).version()
    with pytest.raises(error, match=sentence):
        publish(how(tmp_path), files, batch=2)
    assert DeltaTable(tmp_path).version() == version


def test_a_full_vacuum_without_retention_while_a_batch_is_staged_publishes_nothing_and_the_batch_comes_again(tmp_path):
    begin_table(tmp_path)
    files = [stage_rows(tmp_path, 5, 6, batch=2)]
    DeltaTable(tmp_path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(InputError, match="files that the tasks staged are not in the table's directory"):
        publish(how(tmp_path), files, batch=2)
    publish(how(tmp_path), [stage_rows(tmp_path, 5, 6, batch=2)], batch=2)
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_a_column_that_another_writer_adds_ends_the_query_once_and_needs_mergeschema(tmp_path):
    begin_table(tmp_path)
    files = [stage_rows(tmp_path, 5, 6, batch=2)]
    DeltaTable(tmp_path).alter.add_columns([Field("extra", PrimitiveType("string"))])
    with pytest.raises((InputError, UnavailableError), match=r"mergeSchema=true|cast, add or rename"):
        publish(how(tmp_path), files, batch=2)
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_a_table_that_was_dropped_is_refused(tmp_path):
    table = tmp_path / "table"
    begin_table(table)
    shutil.rmtree(table)
    with pytest.raises(InputError, match="the table was deleted or moved"):
        publish(how(table), [stage_rows(table, 5, 6, batch=2)], batch=2)
