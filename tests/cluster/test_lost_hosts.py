"""Hosts of a cluster: one gone with its disk, one too slow, a driver that goes on elsewhere; outputs are exact."""

from __future__ import annotations

import re
import shutil
import signal

import pytest

from tests.cluster.conftest import Feed
from tests.cluster.outputs import copied, counted, events_of
from tests.support.standalone import Standalone, of_session

pytestmark = [pytest.mark.starts, pytest.mark.cluster]

REFUSED = {"delta": r"FencedError: batch \d+ of query", "kafka": "has decided batch"}


def test_a_host_that_is_gone_with_its_disk_costs_a_retry_of_the_stage_and_nothing_else(
    run, cluster: Standalone, feed: Feed, tmp_path
):
    lost = []

    def lose() -> None:
        if not lost and (tmp_path / "first").exists():
            executor = int((tmp_path / "first").read_text())
            lost.extend(worker for worker in cluster.workers if executor in of_session(worker.pid))
            lost[0].lose()

    try:
        directory = run(target="delta", kill="host", meanwhile=lose)
    finally:
        for worker in lost:
            worker.start()
            cluster.wait_for(2)
    assert len(lost) == 1
    assert counted(directory) == feed.seconds
    # What the lost disk held of the shuffle had to be made again.
    assert any(event["Stage Info"]["Stage Attempt ID"] > 0 for event in events_of(directory, "StageSubmitted"))


def twins_that_won(directory) -> int:
    ends = events_of(directory, "TaskEnd")
    return sum(end["Task Info"]["Speculative"] and end["Task End Reason"]["Reason"] == "Success" for end in ends)


def test_windows_in_delta_are_exact_where_twins_overtake_the_tasks_of_a_slow_worker(run, feed: Feed):
    directory = run(target="delta", kill="slow")
    assert twins_that_won(directory)
    assert counted(directory) == feed.seconds


def test_records_in_kafka_are_there_once_where_twins_overtake_the_tasks_of_a_slow_worker(run, kafka, feed: Feed):
    directory = run(target="kafka", kill="slow")
    assert twins_that_won(directory)
    feed.check_copy(copied(kafka.bootstrap, f"{feed.topic}-out"))


@pytest.mark.parametrize("target", ["delta", "kafka"])
def test_a_driver_goes_on_on_another_host_from_the_checkpoint_alone(run, kafka, feed: Feed, tmp_path, target):
    run(home="here", target=target, kill="driver", code=-signal.SIGKILL)
    shutil.rmtree(tmp_path / "here")
    directory = run(home="there", target=target, kill="driver")
    if target == "delta":
        assert counted(directory) == feed.seconds
    else:
        feed.check_copy(copied(kafka.bootstrap, f"{feed.topic}-out"))


@pytest.mark.parametrize("target", REFUSED)
def test_an_older_copy_of_a_checkpoint_is_refused_after_the_original_has_ended(
    run, kafka, feed: Feed, tmp_path, target
):
    run(home="first", target=target, stop_after=0)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(home="second", target=target)
    directory = run(home="third", target=target, checkpoint="copy", bite=250, code=1)
    assert re.search(REFUSED[target], (directory / "third" / "log").read_text())
    if target == "delta":
        assert counted(directory) == feed.seconds
    else:
        feed.check_copy(copied(kafka.bootstrap, f"{feed.topic}-out"))
