"""A path of the sink that is wrong is answered before the first batch, by what to set; nothing is written there."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

from keyedwm.cli.main import main
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta import table
from pyspark_wm_sink.delta.library_errors import StoreAccessError
from pyspark_wm_sink.delta.stage import DeltaStagePlan
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_sink.writer import stream_writer

SCHEMA = StructType().add("n", LongType())
NO_LOGIN = (
    "Operation not supported\n\x1b[31m↳\x1b[0m an error occurred while loading credentials\n"
    "\x1b[31m↳\x1b[0m failed to load IMDS session token"
)


def starts(path: object) -> None:
    stream_writer({"path": str(path), "snapshot": "batch"}, SCHEMA, overwrite=False)


def refused(path: object) -> str:
    with pytest.raises(OptionError) as told:
        starts(path)
    return told.value.message


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def stage_a_row(directory: Path) -> None:
    arrow = pa.schema([("n", pa.int64())])
    plan = DeltaStagePlan(
        path=str(directory), storage={}, schema=arrow, has_control=False, inline=False, has_offsets=False, indexed=arrow
    )
    task = Task(query=None, run=None, batch=None, partition=0, attempt=0)
    stage(plan, task, [pa.RecordBatch.from_pydict({"n": [1]}, schema=arrow)])


@pytest.mark.parametrize("name", ["a.parquet", "day=1/a.parquet", f"part-00000-{uuid.UUID(int=7)}-c000.snappy.parquet"])
def test_a_path_that_holds_plain_parquet_is_refused_and_left_alone(tmp_path, name):
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": [1]}), place)
    before = files(tmp_path)
    assert f"holds Parquet files that belong to no Delta table, {name} is one" in refused(tmp_path)
    assert files(tmp_path) == before


def test_files_of_another_writer_under_a_name_like_ours_are_refused(tmp_path):
    stage_a_row(tmp_path)
    (file,) = tmp_path.iterdir()
    signed = file.read_bytes()
    assert signed.count(b"parquet-cpp") == 1
    file.write_bytes(signed.replace(b"parquet-cpp", b"parquet-mr "))
    assert "belong to no Delta table" in refused(tmp_path)


def test_what_our_own_tasks_staged_before_the_first_commit_is_no_obstacle(tmp_path):
    stage_a_row(tmp_path)
    (unfinished,) = tmp_path.iterdir()
    (tmp_path / unfinished.name.replace("part-00000", "part-00001")).write_bytes(b"PAR1")
    before = sorted(path.name for path in tmp_path.iterdir())
    starts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_scheme_that_no_store_has_is_named_with_the_nearest(tmp_path, capsys):
    told = refused("s4://bucket/table")
    assert told.startswith("option path: 's4://bucket/table' is wrong; a directory, or an address that deltalake knows")
    assert told.endswith("did you mean s3?")
    assert main(["inspect", "s4://bucket/table"]) == 2
    assert "did you mean s3?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("s3://bucket/t", "give aws_access_key_id, aws_secret_access_key and aws_region as options storage.NAME"),
        ("abfss://c@account.dfs.core.windows.net/t", "give azure_storage_account_name and azure_storage_account_key"),
        ("gs://bucket/t", "give google_service_account as options"),
    ],
)
def test_a_store_without_a_login_says_what_to_set(path, names, monkeypatch, capsys):
    def no_login(*_: object) -> bool:
        raise OSError(NO_LOGIN)

    monkeypatch.setattr(table, "DeltaStorageHandler", no_login)
    with pytest.raises(StoreAccessError, match="because its store got no login that it accepts") as told:
        table.open_table(path, {})
    assert names in told.value.message
    assert main(["inspect", path]) == 2
    said = capsys.readouterr().err
    assert "keyedwm inspect: --storage NAME=VALUE" in said
    assert "retry: nothing was lost" not in said


def test_a_store_that_does_not_answer_is_still_tried_again(monkeypatch):
    def silent(*_: object) -> bool:
        raise OSError("Generic S3 error: error sending request: operation timed out after 403 ms")

    monkeypatch.setattr(table, "DeltaStorageHandler", silent)
    with pytest.raises(UnavailableError, match="could not be opened") as told:
        table.open_table("s3://bucket/t", {})
    assert type(told.value) is UnavailableError


def test_a_directory_that_this_user_may_not_write_to_is_refused_before_a_row_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, _: Path(place) != tmp_path)
    told = refused(tmp_path / "below" / "table")
    assert told.endswith(f"below/table cannot be written, because this user may not write to {tmp_path}")
    assert files(tmp_path) == []


def test_every_refusal_of_a_path_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    for path in ("s4://b/t", "s3:t", tmp_path / "file", tmp_path / "a#b"):
        with pytest.raises(KeyedwmError) as told:
            starts(path)
        assert "\n" not in str(told.value)
