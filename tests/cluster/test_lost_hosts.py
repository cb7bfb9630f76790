"""Hosts of a cluster: one gone with its disk, and a driver that goes on elsewhere; outputs are exact."""

from __future__ import annotations

import shutil
import signal

import pytest

from keyedwm.testing.standalone import Standalone, of_session
from tests.cluster.conftest import Feed
from tests.cluster.outputs import copied, counted, events_of

pytestmark = [pytest.mark.starts, pytest.mark.cluster]


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


def test_a_driver_goes_on_on_another_host_from_the_checkpoint_alone(run, kafka, feed: Feed, tmp_path):
    run(home="here", target="kafka", kill="driver", code=-signal.SIGKILL)
    shutil.rmtree(tmp_path / "here")
    run(home="there", target="kafka", kill="driver")
    assert copied(kafka.bootstrap, f"{feed.topic}-out") == feed.values


def test_an_older_copy_of_a_checkpoint_is_refused_after_the_original_has_ended(run, kafka, feed: Feed, tmp_path):
    run(home="first", target="kafka", stop_after=0)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(home="second", target="kafka")
    directory = run(home="third", target="kafka", checkpoint="copy", bite=250, code=1)
    assert "has decided batch" in (directory / "third" / "log").read_text()
    assert copied(kafka.bootstrap, f"{feed.topic}-out") == feed.values
