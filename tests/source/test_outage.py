"""A group coordinator that is away is waited for once, not in every batch; the clock is a number."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from keyedwm.cli.inspect import print_checkpoint
from keyedwm.cli.printable import PlainConsole
from keyedwm.core.axis import Counts
from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files
from pyspark_wm_source.driver import planner as planner_module
from pyspark_wm_source.driver import recover_state
from pyspark_wm_source.task import scan
from pyspark_wm_source.values.offsets import QueryOffset
from pyspark_wm_source.values.outage import FIRST_PAUSE_S, LONGEST_PAUSE_S, Outage
from pyspark_wm_source.values.ranges import RangeResult
from tests.source.scripted import Driver, Log, ScriptedCluster
from tests.source.test_state_commits import OPTIONS, RANGE, STATE

A = TopicPartition("t", 0)
CAUSE = "the coordinator of group g did not answer"


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock of planner and tasks."""
    fake_clock = SimpleNamespace(s=100.0)
    stopped = SimpleNamespace(monotonic=lambda: fake_clock.s, sleep=lambda _s: None)
    for module in (recover_state, planner_module, scan):
        monkeypatch.setattr(module, "time", stopped)
    return fake_clock


def test_the_pause_doubles_and_ends_with_an_answer():
    outage, now_s = Outage(), 0.0
    assert (outage.is_paused(0.0), outage.over(), outage.why) == (False, False, "")
    pauses = []
    for _ in range(6):
        assert outage.note(CAUSE, now_s) is (not pauses)
        until_s = now_s
        while outage.is_paused(until_s):
            until_s += 10
        pauses.append(until_s - now_s)
        now_s = until_s
    assert pauses == [FIRST_PAUSE_S, 60.0, 120.0, 240.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert outage.why == CAUSE
    assert (outage.over(), outage.is_paused(now_s - 1), outage.why) == (True, False, "")


def test_a_planner_asks_once_a_pause_reads_again_and_keeps_its_tasks_from_asking(monkeypatch, clock, caplog):
    monkeypatch.setattr(recover_state, "fetch", lambda *_a, **_k: iter(()))
    driver = Driver(monkeypatch, ScriptedCluster({A: Log.of(1)}), startingOffsets="earliest")
    before = driver.offset
    driver.plan()
    assert {split.group for split in driver.planner.splits(before, driver.offset)} == {driver.offset["group"]}
    driver.cluster.refusal = UnavailableError(CAUSE)
    is_read = []
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        for count in range(2, 12):
            driver.cluster.logs[A] = Log.of(count)
            before, requests_before = driver.offset, len(driver.cluster.requests)
            assert driver.plan()
            is_read.append("fetch_offsets" in driver.cluster.requests[requests_before:])
            assert {split.group for split in driver.planner.splits(before, driver.offset)} == {""}
            assert driver.planner.reported()["coordinator"] == CAUSE
            clock.s += FIRST_PAUSE_S / 4
        assert (is_read.count(True), is_read[0], is_read[4]) == (2, True, True)
        assert caplog.text.count(CAUSE) == 1
        driver.cluster.refusal = None
        clock.s += LONGEST_PAUSE_S
        driver.cluster.logs[A] = Log.of(20)
        before = driver.offset
        assert driver.plan()
    assert "answers again" in caplog.text
    assert {split.group for split in driver.planner.splits(before, driver.offset)} == {driver.offset["group"]}
    assert "coordinator" not in driver.planner.reported()
    assert "outage" not in driver.offset


def test_a_process_of_tasks_waits_once(monkeypatch, clock, caplog):
    monkeypatch.setattr(scan, "_outages", {})
    cluster = ScriptedCluster({A: Log.of(20)}, refusal=UnavailableError(CAUSE))
    commits_s = []
    commit = cluster.commit_offsets
    monkeypatch.setattr(cluster, "commit_offsets", lambda *a, **k: commits_s.append(clock.s) or commit(*a, **k))
    split = SimpleNamespace(group="g", state_key="00" * 32, batch=3)
    states = [(RANGE, RangeResult(next_offset=20, counts=Counts(), axes=STATE))]
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        for _ in range(5):
            scan._commit_states(split, cluster, states, OPTIONS)
            clock.s += FIRST_PAUSE_S / 3
    assert len(commits_s) == 2
    assert caplog.text.count(CAUSE) == 1
    cluster.refusal = None
    clock.s += LONGEST_PAUSE_S
    scan._commit_states(split, cluster, states, OPTIONS)
    assert cluster.committed["g"]


def test_inspect_tells_the_outage_of_the_newest_batch(monkeypatch, clock, tmp_path, capsys):
    monkeypatch.setattr(recover_state, "fetch", lambda *_a, **_k: iter(()))
    driver = Driver(monkeypatch, ScriptedCluster({A: Log.of(1)}), startingOffsets="earliest")
    driver.plan()
    driver.cluster.refusal = UnavailableError(CAUSE)
    driver.cluster.logs[A] = Log.of(2)
    planned = driver.plan()
    assert QueryOffset.from_json(driver.offset) == planned
    (tmp_path / "offsets").mkdir()
    text = planner_module.json.dumps(driver.offset)
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{text}\n")
    assert print_checkpoint(PlainConsole.open(), Files(str(tmp_path)))
    assert f"coordinator did not answer: {CAUSE}" in capsys.readouterr().out
