"""The last error of a query lies in its checkpoint: who leaves it, what it holds, and when it is past."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from keyedwm.cli.main import main
from keyedwm.core.errors import FencedError, InputError
from keyedwm.last_error import last_error, leave_error, leaving_error
from keyedwm.savepoint_files import Files
from keyedwm.spark.failures.checkpoint_errors import Failures
from pyspark_wm_sink.writer import stream_writer
from tests.cli.planted import B, draw_text
from tests.sink.delta_sink import how, stage_rows
from tests.source.scripted import Log
from tests.support.early_files import Azure, Crash, Hdfs
from tests.tools import wait_until


def committed(place: Path, *batches: int) -> Files:
    (place / "commits").mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (place / "commits" / str(batch)).write_text("v1\n{}")
    return Files(str(place))


def test_an_error_is_shown_until_the_batch_that_failed_is_committed(planted):
    planted.plan()
    leave_error(planted.files, "the first sentence; the second [fix the input]")
    error = planted.picture().last_error
    assert (error.batch, error.text) == (2, "the first sentence; the second [fix the input]")
    text = " ".join(draw_text(planted.picture()).split())
    assert "ago, before batch 2 was committed: the first sentence; the second [fix the input] source 0: " in text
    planted.cluster.logs[B] = Log.of(9)
    planted.plan()
    assert planted.picture().last_error is None


@pytest.mark.parametrize("kind", [Hdfs, Azure])
def test_a_note_at_an_address_is_whole_or_absent_whenever_its_writer_dies(tmp_path, monkeypatch, kind):
    """So is a savepoint, which is written in the same way: a damaged one could not be written again."""
    checkpoint, texts = Files("hdfs://n/cp"), ("first", "second")
    (tmp_path / "cp").mkdir()
    for last in range(8):
        for text, steps in zip(texts, (99, last), strict=True):
            files = kind(steps)
            monkeypatch.setattr(Files, "_opened", lambda self, files=files: (files, f"{tmp_path}/{self.place[9:]}"))
            with suppress(Crash):
                leave_error(checkpoint, text, batch=1)
        error = last_error(checkpoint, committed=None)
        assert error is None or error.text in texts
    assert error is not None
    assert error.text == "second"


def test_a_long_error_takes_some_lines_and_the_view_still_fits(planted):
    planted.plan()
    leave_error(planted.files, "word " * 300)
    lines = draw_text(planted.picture(), height=24).splitlines()
    assert len(lines) <= 24
    assert sum("word word" in line for line in lines) == 5
    assert lines[2].startswith("last error, ")


@pytest.mark.parametrize("before", [False, True], ids=["no error", "an older error"])
def test_a_batch_that_runs_long_is_told_before_any_error(planted, before):
    if before:
        leave_error(planted.files, "an old one")
        planted.driver.clock = time.time_ns() // 1_000_000 + 5_000
    planted.cluster.logs[B] = Log.of(9)
    planted.plan(committed=False)
    assert "has run for" not in draw_text(planted.picture())
    planted.driver.clock += 181_000
    text = " ".join(draw_text(planted.picture()).split())
    assert "batch 1 has run for 3 min, or the query stopped: the checkpoint has no error of this batch" in text
    assert ("last error, 3 min ago, before batch 1 was committed: an old one" in text) is before


def test_of_a_query_that_never_came_to_a_batch_its_error_is_what_there_is_to_see(tmp_path, capsys):
    (tmp_path / "metadata").write_text("{}")
    leave_error(Files(str(tmp_path)), "no broker answers [retry]")
    assert main(["watch", str(tmp_path), "--once"]) == 2
    assert "has planned no batch yet: its last error was: no broker answers [retry]" in capsys.readouterr().err


def test_the_note_holds_no_login(tmp_path):
    text = (
        "cannot reach jdbc://me:pass/word@host:1/x with password=abc, \"api_token\": \"def\" and 'secret': 'ghi'; give "
        "password=env:VARIABLE, guarantee=at-least-once"
    )
    checkpoint = committed(tmp_path)
    leave_error(checkpoint, text)
    assert last_error(checkpoint, None).text == (
        "cannot reach jdbc://***@host:1/x with password=***, \"api_token\": *** and 'secret': ***; give "
        "password=env:VARIABLE, guarantee=at-least-once"
    )


def test_an_error_of_a_batch_is_left_as_it_goes_by_and_only_in_a_checkpoint_that_is_there(tmp_path):
    here, elsewhere = committed(tmp_path / "here"), tmp_path / "elsewhere"
    for place in (here.place, str(elsewhere), None):
        with pytest.raises(FencedError), leaving_error(place, 4):
            raise FencedError("another run has taken over")
    error = last_error(here, 3)
    assert (error.batch, error.text) == (4, str(FencedError("another run has taken over")))
    assert last_error(here, 4) is None
    assert not elsewhere.exists()


def test_a_note_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    place = committed(tmp_path)
    (tmp_path / "keyedwm").write_text("a file in the way")
    with caplog.at_level(logging.WARNING):
        leave_error(place, "an error", 3)
    assert "could not be written to its checkpoint" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "at_ms": "now", "batch": 1, "text": ""}'])
def test_a_damaged_note_is_named(planted, text, capsys):
    leave_error(planted.files, "an error", 3)
    (planted.directory / "keyedwm" / "last_error.json").write_text(text)
    with pytest.raises(InputError, match=r"last_error\.json is damaged: delete it"):
        last_error(planted.files, None)
    assert main(["watch", str(planted.directory), "--once"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_sink_leaves_why_it_refused_a_batch_where_it_knows_the_checkpoint(tmp_path):
    checkpoint = committed(tmp_path / "checkpoint", 0)
    options = {"path": str(tmp_path / "table"), "checkpointLocation": checkpoint.place}
    writer = stream_writer(options, StructType([StructField("n", LongType())]), overwrite=False)
    with pytest.raises(InputError, match="batch 1 of query q follows batches that were written before") as refused:
        writer.commit([stage_rows(how(tmp_path / "table"), [1], batch=1)], 1)
    error = last_error(checkpoint, 0)
    assert (error.batch, error.text) == (1, str(refused.value))


class Query:
    """What `Failures` asks of a query; checkpoint: None as in a session of Spark Connect."""

    def __init__(self, number: int, checkpoint: Path | None) -> None:
        self.id = number
        if checkpoint is not None:
            root = SimpleNamespace(resolvedCheckpointRoot=lambda: f"file:{checkpoint}")
            self._jsq = SimpleNamespace(streamingQuery=lambda: root)


def test_a_listener_leaves_the_error_of_each_query_that_fails(tmp_path):
    places = {number: committed(tmp_path / str(number), 0, 1) for number in range(3)}
    queries = {str(number): Query(number, Path(place.place)) for number, place in places.items()}
    queries["9"] = Query(9, None)
    streams = SimpleNamespace(active=[queries["0"]], get=queries.get)
    failures = Failures(SimpleNamespace(streams=streams))
    for number in ("1", "2", "9"):
        failures.started(number)
    for number in ("0", "1", "9"):
        failures.terminated(number, "[SOME_CONDITION] The first sentence. SQLSTATE: 1\n\tat Stack")
    failures.terminated("2", None)
    text = "The first sentence [Spark: SOME_CONDITION]"
    for place in (places[0], places[1]):
        error = wait_until(partial(last_error, place, 1), "the note")
        assert (error.batch, error.text) == (2, text)
    assert last_error(places[2], 1) is None
