"""The campaign's own eyes: each kind of wrong output is seen and counted."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.e2e.driver import Driver
from tests.e2e.feed import Feed, Findings, Tally, misplaced
from tests.e2e.pipeline import Wanted
from tests.e2e.world import last_lines
from tests.tools import wait_until


@pytest.fixture
def feed():
    new_feed = Feed("nowhere", "nothing", random.Random(1))
    new_feed.grown(5, 5)
    return new_feed


def count_findings(feed: Feed, values: list[bytes]) -> tuple[str, list[str]]:
    findings = Findings()
    tally = Tally(feed, findings)
    for value in values:
        tally.take(value)
    findings.lost = tally.missing()
    return findings.told(), findings.other


def test_the_exact_output_is_clean_however_partitions_mix(feed):
    values = [record.value for row in zip(*feed.sent, strict=True) for record in row]
    assert count_findings(feed, values) == ("lost 0, doubled 0, reordered 0", [])


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        (lambda v: v[:2] + v[3:], "lost 1, doubled 0, reordered 0"),
        (lambda v: [*v, v[2]], "lost 0, doubled 1, reordered 0"),
        (lambda v: [v[1], v[0], *v[2:]], "lost 0, doubled 0, reordered 1"),
    ],
)
def test_a_record_too_few_too_many_or_too_early_is_counted(feed, spoilt, sentence):
    values = [record.value for part in feed.sent for record in part]
    assert count_findings(feed, spoilt(values)) == (sentence, [])


def test_a_record_that_was_never_sent_is_named(feed):
    values = [record.value for part in feed.sent for record in part]
    assert count_findings(feed, [*values, b"0:9:9"])[1] == ["b'0:9:9' came and was never sent"]


def test_a_record_that_came_with_another_place_is_named():
    offsets = [[0, 1, 3], [7]]
    assert misplaced([(0, 0, 0, 0), (0, 2, 0, 3), (1, 0, 1, 7)], offsets) == []
    assert misplaced([(0, 2, 0, 2), (1, 0, 0, 7), (1, 1, 1, 8)], offsets) == [
        "record 2 of partition 0 came as 0-2, it lies at (0, 3)",
        "record 0 of partition 1 came as 0-7, it lies at (1, 7)",
        "record 1 of partition 1 came as 1-8, it lies at None",
    ]


def test_processes_that_stand_still_tell_where(tmp_path):
    """Spark's Python processes are told by their command line; one has no parent, as the host of the workers."""
    stuck = "def waits_for_ever():\n    print('ready', flush=True)\n    input()\nwaits_for_ever()  # keyedwm.daemon"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-X', 'faulthandler', '-c', {stuck!r}])"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {orphan!r}]); input()"
    driver = Driver(tmp_path, Wanted(target="kafka", bootstrap="nowhere", topic="nothing", disk="none"))
    with (tmp_path / "log").open("w") as log:
        driver._process = subprocess.Popen(
            [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until(lambda: "ready" in (tmp_path / "log").read_text(), "the process stands still")
        driver.dump(limit_s=60)
        wait_until(lambda: "in waits_for_ever" in (tmp_path / "log").read_text(), "it has told where")
    finally:
        driver.kill()
        driver._process.stdin.close()
    assert last_lines(tmp_path / "log") == "ready"
