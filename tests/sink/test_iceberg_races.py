"""What others do to an Iceberg table between the moment at which it is read and a commit, or its creation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from keyedwm.core.errors import UnavailableError
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import COLUMNS, NAME, catalog_of, foreign_append, how, numbers, stage_rows, table_of


def before(monkeypatch, kind: type, method: str, event: Callable[[], object]) -> list[bool]:
    """Let an event happen just before the first call of a method; returns a list that is then no longer empty."""
    real, calls = getattr(kind, method), []

    def after_event(self, *args, **kwargs):
        if not calls:
            calls.append(True)
            event()
        return real(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, after_event)
    return calls


def other_query(place: Path) -> None:
    audit = how(place, branch="audit")
    publish(audit, [stage_rows(audit, [7], query="of-audit")], batch=0)


def rolled_back(place: Path) -> None:
    foreign_append(place, 50)
    table = table_of(place)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()


def other_branch(place: Path) -> None:
    table = table_of(place)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "v").commit()
    table_of(place).append(pa.table({"n": pa.array([50], pa.int64())}), branch="v")


@pytest.mark.parametrize("event", [other_query, rolled_back, other_branch])
def test_a_commit_to_another_branch_is_no_failure_of_this_one(event, tmp_path, monkeypatch):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    how(tmp_path, branch="audit")
    message = stage_rows(to, [2], 1)
    calls = before(monkeypatch, Table, "_do_commit", lambda: event(tmp_path))
    publish(to, [message], batch=1)
    publish(to, [message], batch=1)
    assert calls
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("step", ["create_table_transaction", "commit_table"])
def test_a_table_that_another_query_creates_meanwhile_is_taken(step, tmp_path, monkeypatch):
    calls = before(monkeypatch, SqlCatalog, step, lambda: catalog_of(tmp_path).create_table(NAME, COLUMNS))
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    assert calls
    assert numbers(tmp_path) == [1]


def new_branch(place: Path) -> None:
    table = table_of(place)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()


def new_column(place: Path) -> None:
    with table_of(place).update_schema() as update:
        update.add_column("s", StringType())


@pytest.mark.parametrize(
    ("event", "options", "sentence"),
    [
        (new_branch, {"branch": "audit"}, r"branch audit of the Iceberg table db\.t could not be created: .*"),
        (new_column, {"mergeSchema": "true"}, r"columns could not be added to the Iceberg table db\.t: .*"),
    ],
)
def test_of_two_queries_that_make_one_branch_or_add_columns_at_once_one_starts_again(
    event, options, sentence, tmp_path, monkeypatch
):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    wider = pa.schema([("n", pa.int64()), ("s", pa.string())]) if event is new_column else COLUMNS
    calls = before(monkeypatch, SqlCatalog, "commit_table", lambda: event(tmp_path))
    with pytest.raises(UnavailableError, match=sentence + r"(changed|concurrently|expected).*"):
        how(tmp_path, schema=wider, **options)
    assert calls
    how(tmp_path, schema=wider, **options)


def test_the_lock_of_a_killed_writer_is_named_and_the_batch_can_come_again(tmp_path, monkeypatch):
    to = how(tmp_path)
    message = stage_rows(to, [1])

    def locked(*_):
        raise CommitFailedException("Failed to acquire lock for ('db', 't'), state: 2")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", locked)
        with pytest.raises(UnavailableError, match=r"lock of a killed writer stays until .*metastore\.txn\.timeout"):
            publish(to, [message], batch=0)
    publish(to, [message], batch=0)
    assert numbers(tmp_path) == [1]
