"""What an upgrade counts; `make upgrade` runs upgrades."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from keyedwm.core.errors import UnavailableError
from tests.tools import Record, make_topic, produce
from tests.upgrade import trial
from tests.upgrade.answers import ANSWERS, LAST_MS, Event
from tests.upgrade.outcome import Outcome, total
from tests.upgrade.outputs import PARTITIONS, digest, ends, make_catalog, rows_of
from tests.upgrade.queries import QUERIES

MINUTE_MS = 60_000


def test_a_missing_row_is_lost_a_repeated_one_doubled_and_an_unknown_one_wrong():
    outcome = Outcome("0.4.0", "restart", "delta", ("copy",))
    outcome.count("copy", Counter({("a", 1): 1, ("a", 2): 2}), Counter({("a", 2): 3, ("b", 1): 2}))
    assert (outcome.lost, outcome.doubled, outcome.wrong) == (1, 1, 2)
    assert not outcome.is_clean


def test_a_total_adds_up_the_groups_of_a_trial():
    groups = [Outcome("0.4.0", "restart", "delta", (name,), records=10, lost=1) for name in ("copy", "join")]
    groups[0].rejections["copy"] = "another format"
    groups[1].continuations.append("join")
    whole = total(groups)
    assert (whole.queries, whole.records, whole.lost) == (("copy", "join"), 20, 2)
    assert (set(whole.rejections), whole.continuations) == ({"copy"}, ["join"])


def test_a_downgrade_is_rejected_by_one_sentence_with_its_code_and_other_errors_are_failures():
    outcome = Outcome("0.4.0", "restart", "delta", ("copy", "join", "latest", "store"))
    sentence = "offset JSON of version 9 (KWM-5001) [upgrade keyedwm, or start from a new checkpoint]"
    errors = {"copy": sentence, "join": "Python worker failed to connect back.", "latest": f"{sentence}\nat java"}
    outcome.count_downgrade(["store"], errors)
    assert outcome.rejections == {"copy": sentence}
    assert set(outcome.failures) == {"join", "latest"}
    assert outcome.continuations == ["store"]
    assert not outcome.is_clean


def test_an_error_after_a_downgrade_continued_is_a_failure():
    outcome = Outcome("0.4.0", "restart", "delta", ("copy",))
    outcome.count_downgrade(["copy"], {"copy": "(KWM-5001)"})
    assert (outcome.rejections, set(outcome.failures)) == ({}, {"copy"})


def test_a_load_that_ends_in_an_error_fails_the_trial():
    calls = iter([None, UnavailableError("no broker")])
    is_over = threading.Event()

    class BrokenFeed:
        def send(self, _least: int, _most: int) -> None:
            if error := next(calls):
                is_over.set()
                raise error

    with pytest.raises(UnavailableError, match="no broker"), trial.load(BrokenFeed()):
        is_over.wait()


def test_a_trial_waits_as_long_as_queries_commit_or_report_something(monkeypatch):
    """A downgrade commits nothing: Spark starts and rejects one query after another."""
    clock_s = count(step=trial.LIMIT_S / 2)
    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=lambda: next(clock_s), sleep=lambda _seconds: None))
    events = [{"what": "started"}]

    class Rejections(trial.Trial):
        def __init__(self) -> None:
            self.outcome, self._process, self.lives = Outcome("0.4.0", "restart", "delta", ()), None, 1

        def events(self) -> list[dict[str, str]]:
            events.extend([{"what": "failed"}] * (len(events) < 9))
            return events

    assert Rejections().wait(lambda: len(events) == 9, "all are rejected")
    silent = Rejections()
    assert not silent.wait(lambda: False, "all are rejected")
    assert silent.outcome.unreached == ["life 1: 600 s passed without a batch or an event before all are rejected"]


def test_the_note_that_spark_writes_of_a_stateful_operator_at_each_start_does_not_change_a_query(tmp_path):
    """Spark writes the note before the first task of a batch, so before a task can reject the checkpoint."""
    state = tmp_path / "checkpoints" / "copy" / "state" / "0"
    for file in (state / "_metadata" / "v2" / "3", state / "0" / "3.changelog"):
        file.parent.mkdir(parents=True)
        file.write_text("new")
    assert list(digest(tmp_path, "copy", "checkpoints")) == ["checkpoints/copy/state/0/0/3.changelog"]


def test_a_commit_to_an_iceberg_table_changes_the_files_of_its_query(tmp_path):
    make_catalog(tmp_path, "copy")
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/copy.db", warehouse=str(tmp_path))
    rows = pa.table({"n": [1]})
    table = catalog.create_table("db.copy", rows.schema)
    before = digest(tmp_path, "copy", "checkpoints")
    table.append(rows)
    after = digest(tmp_path, "copy", "checkpoints")
    assert before["copy.db"] != after["copy.db"]
    assert any(path.startswith("db/copy/data/") for path in after.keys() - before.keys())
    assert rows_of("iceberg", tmp_path, "copy", "", "", ("n",)) == Counter({(1,): 1})


def test_a_record_in_a_topic_changes_its_ends(kafka, new_topic):
    topic = make_topic(kafka.bootstrap, new_topic(), PARTITIONS)
    assert ends(topic, kafka.bootstrap) == {f"{topic}-0": "0", f"{topic}-1": "0"}
    produce(kafka.bootstrap, topic, [Record(1, 0, b"value")])
    assert ends(topic, kafka.bootstrap) == {f"{topic}-0": "0", f"{topic}-1": "1"}


def test_every_query_has_an_answer():
    assert list(ANSWERS) == list(QUERIES)


def test_joins_emit_also_the_pairs_of_the_last_records():
    last = [Event("a", number, LAST_MS) for number in (4, 5)]
    for name in ("join", "window_join"):
        assert ANSWERS[name].with_last
        assert list(ANSWERS[name].rows(last)) == [("a", 4, 5)]


def test_a_session_ends_after_the_gap_and_a_duplicate_is_one_of_a_row_that_passed():
    events = [Event("a", number, minute * MINUTE_MS) for number, minute in enumerate((0, 20, 41, 55, 75))]
    assert list(ANSWERS["session"].rows(events)) == [("a", 0, 2, 1), ("a", 41 * MINUTE_MS, 3, 9)]
    assert list(ANSWERS["deduplicate"].rows(events)) == [("a", 0), ("a", 2), ("a", 4)]
    assert list(ANSWERS["join"].rows(events)) == [
        ("a", 0, None),
        ("a", 2, None),
        ("a", 4, None),
        ("a", None, 1),
        ("a", None, 3),
    ]
    assert list(ANSWERS["latest"].rows(events)) == [("a", 0, None), ("a", 2, 1), ("a", 4, 3)]
