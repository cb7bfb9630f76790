"""The cluster of processes: what workers share, what is left of one that is lost, and what stays behind at the end."""

from __future__ import annotations

import os
import re

import pytest

from keyedwm.core.errors import OptionError, OutOfTurnError
from tests.support.standalone import of_session, standalone

pytestmark = [pytest.mark.starts, pytest.mark.cluster, pytest.mark.every_run]


def environment(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
        return dict(one.split("=", 1) for one in os.fsdecode(file.read()).split("\0") if "=" in one)


def test_workers_share_nothing_and_a_lost_one_comes_back_with_an_empty_disk():
    with standalone(2) as cluster:
        seen = [environment(worker.pid) for worker in cluster.workers]
        for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP"):
            assert seen[0][name] != seen[1][name]
        assert [one["SPARK_LOCAL_IP"] for one in seen] == ["127.0.0.2", "127.0.0.3"]
        lost = cluster.workers[1]
        (lost.home / "work" / "mark").touch()
        with pytest.raises(OutOfTurnError, match="runs already"):
            lost.start()
        lost.lose()
        assert not lost.home.exists()
        cluster.wait_for(1)
        lost.start()
        cluster.wait_for(2)
        assert list((lost.home / "work").iterdir()) == []
        sessions = [one.pid for one in (cluster.master, *cluster.workers)]
        assert all(of_session(session) for session in sessions)
    assert [of_session(session) for session in sessions] == [[], [], []]
    assert not cluster.master.home.parent.exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"workers": 0}, "standalone(workers=0): a whole number from 1 to 254 is expected"),
        ({"workers": "3"}, "standalone(workers='3'): a whole number from 1 to 254 is expected"),
        ({"workers": True}, "standalone(workers=True): a whole number from 1 to 254 is expected"),
        ({"workers": 255}, "standalone(workers=255): a whole number from 1 to 254 is expected"),
        ({"cores": 0}, "standalone(cores=0): a whole number from 1 is expected"),
        ({"cores": 1.5}, "standalone(cores=1.5): a whole number from 1 is expected"),
        ({"memory_mb": -5}, "standalone(memory_mb=-5): a whole number from 450 is expected"),
        ({"memory_mb": "1g"}, "standalone(memory_mb='1g'): a whole number from 450 is expected"),
    ],
)
def test_a_cluster_of_a_wrong_size_is_refused(given: dict, told: str):
    with pytest.raises(OptionError, match=re.escape(told)), standalone(**given):
        pass
