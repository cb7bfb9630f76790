"""A commit to a Delta table of which the answer is lost, or that fails: nothing is doubled, no file of it is lost."""

from __future__ import annotations

import resource

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from keyedwm.core.errors import FormatError, InputError, UnavailableError
from pyspark_wm_sink.delta import publish as publish_module
from pyspark_wm_sink.tables import publish as committing
from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_sink import answer_lost, disk_full, files, how, numbers, stage_rows


def test_a_commit_in_doubt_that_happened_is_not_repeated(tables, tmp_path, monkeypatch):
    """The log entry is written, then the answer is lost: the record's attempt says that it was us."""
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    real = tables.LOG.append

    def lose_the_answer(*args, **options):
        real(*args, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(tables.LOG, "append", lose_the_answer)
    publish(to, [stage_rows(to, [2], 1)], batch=1)
    assert tables.numbers(tmp_path) == [1, 2]


def test_a_commit_that_fails_keeps_its_files_and_can_be_repeated(tables, tmp_path, monkeypatch):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    message = stage_rows(to, [2], 1)
    with monkeypatch.context() as broken:
        broken.setattr(tables.LOG, "append", disk_full)
        with pytest.raises(UnavailableError, match=r"batch 1 could not be published .* No space left"):
            publish(to, [message], batch=1)
    assert tables.numbers(tmp_path) == [1]
    publish(to, [message], batch=1)
    assert tables.numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("unreadable", [InputError("damaged"), FormatError("version 2"), OSError("off")])
def test_files_of_an_append_that_happened_stay_though_it_cannot_be_read_back(tables, tmp_path, monkeypatch, unreadable):
    """The answer to the append is lost, then the table cannot be read: the commit names the files all the same."""
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    message = stage_rows(to, [2], 1)

    def fail(*_args, **_options):
        raise unreadable

    with monkeypatch.context() as broken:
        broken.setattr(tables.LOG, "append", answer_lost(tables.LOG.append))
        broken.setattr(committing, "has_attempt", fail)
        with pytest.raises(UnavailableError, match=r"batch 1 could not be published .* connection reset"):
            publish(to, [message], batch=1)
    assert tables.numbers(tmp_path) == [1, 2]
    publish(to, [message], batch=1)  # the same commit again
    assert tables.numbers(tmp_path) == [1, 2]
    assert tables.files(tmp_path) == 2


def test_a_batch_without_rows_that_could_not_be_appended_is_not_taken_for_an_earlier_one(tables, tmp_path, monkeypatch):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    publish(to, [stage_rows(to, [], 1)], batch=1)

    def full(*_args, **_options):
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(tables.LOG, "append", full)
        with pytest.raises(UnavailableError, match=r"batch 2 could not be published"):
            publish(to, [stage_rows(to, [], 2)], batch=2)
    publish(to, [stage_rows(to, [], 2)], batch=2)
    publish(to, [stage_rows(to, [3], 3)], batch=3)
    assert tables.numbers(tmp_path) == [1, 3]


def test_files_of_an_attempted_append_stay_when_a_later_try_is_refused(tmp_path, monkeypatch):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    message = stage_rows(to, [2], 1)

    def conflict(*_args, **_options):
        monkeypatch.setattr(publish_module.delta, "check_table", refuse)
        write_deltalake(tmp_path, pa.table({"n": [9]}), mode="append")
        raise CommitFailedError("another writer")

    def refuse(*_args, **_options):
        raise InputError("another schema")

    monkeypatch.setattr(publish_module.delta, "append", conflict)
    with pytest.raises(InputError, match="another schema"):
        publish(to, [message], batch=1)
    assert files(tmp_path) == 3


def test_files_stay_when_the_record_of_their_batch_is_no_longer_in_the_history(tables, tmp_path, monkeypatch):
    to = tables.how(tmp_path)
    message = stage_rows(to, [1])
    publish(to, [message], batch=0)
    monkeypatch.setattr(committing, "record_of", lambda *_: None)
    publish(to, [message], batch=0)
    assert tables.numbers(tmp_path) == [1]


def test_a_batch_write_in_doubt_that_happened_is_not_an_error(tables, tmp_path, monkeypatch):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=None)
    monkeypatch.setattr(tables.LOG, "append", answer_lost(tables.LOG.append))
    publish(to, [stage_rows(to, [2])], batch=None)
    assert tables.numbers(tmp_path) == [1, 2]


def test_a_full_disk_is_named_and_the_batch_can_come_again(table):
    to = how(table)
    publish(to, [stage_rows(to, [1])], batch=0)
    message = stage_rows(to, [2], batch=1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file of this process takes another byte
    try:
        with pytest.raises(UnavailableError, match=r"could not be published .*: File too large") as error:
            publish(to, [message], batch=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "\x1b" not in str(error.value)
    publish(to, [message], batch=1)
    assert numbers(table) == [1, 2]


def test_a_conflict_is_told_only_with_the_commit_that_came_before(tmp_path, monkeypatch):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)

    def reject_append(*_args, **_options):
        raise CommitFailedError("Unsupported table features required: [ClusteredTable]")

    monkeypatch.setattr(publish_module.delta, "append", reject_append)
    with pytest.raises(InputError, match=r"does not take it: Unsupported table features required: \[ClusteredTable"):
        publish(to, [stage_rows(to, [2], 1)], batch=1)
    with monkeypatch.context() as strange:
        strange.setattr(publish_module, "is_refusal", lambda _: False)
        with pytest.raises(UnavailableError, match=r"could not be published to .*: Unsupported table features"):
            publish(to, [stage_rows(to, [2], 1)], batch=1)

    def too_late(*_args, **_options):
        write_deltalake(tmp_path, pa.table({"n": [9]}), mode="append")
        raise CommitFailedError("another writer")

    monkeypatch.setattr(publish_module.delta, "append", too_late)
    with pytest.raises(UnavailableError, match=r"each time, the last one was version 11 \(WRITE by delta-rs"):
        publish(to, [stage_rows(to, [2], 1)], batch=1)
