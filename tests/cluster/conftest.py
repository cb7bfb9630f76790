"""A Spark cluster, a topic of events, and the program of `job` run on them by a driver of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from keyedwm.runtime.compiled import cache_directory
from tests.cluster.job import Job
from tests.cluster.outputs import Copy
from tests.support.standalone import Standalone, of_session, standalone

ROOT = Path(__file__).parents[2]
LIMIT_S = 900.0
LOOK_S = 0.1
PARTITIONS = 3
EVENTS = 1_800
END_MS = 10_000_000
NAMES = ("ada", "ben", "cem", "dia")


@dataclass(frozen=True)
class Feed:
    """What was sent: the values, each partition's in order, and how often each name came in each second.

    The records that close all are in no second.
    """

    topic: str
    sent: tuple[tuple[bytes, ...], ...]
    seconds: Counter

    @property
    def values(self) -> Counter:
        return Counter(value for partition in self.sent for value in partition)

    def check_copy(self, copy: Copy) -> None:
        """Every value is there once, and those of one partition of the topic come in their order."""
        assert Counter(value for partition in copy for value in partition) == self.values
        place = {value: (number, at) for number, values in enumerate(self.sent) for at, value in enumerate(values)}
        for values in copy:
            for number in range(PARTITIONS):
                came = [place[value][1] for value in values if place[value][0] == number]
                assert came == sorted(came)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Standalone]:
    """A master and two workers of one core."""
    with standalone(2) as running:
        yield running


@pytest.fixture
def feed(kafka, topic_of, seed) -> Feed:
    """Events in order of time on three partitions that are apart from each other, and a last one on each."""
    from tests.tools import Record, make_topic, produce

    topic = topic_of(PARTITIONS)
    chance = random.Random(f"{seed} cluster")
    seconds, records = Counter(), []
    for number in range(EVENTS):
        partition, name = chance.randrange(PARTITIONS), chance.choice(NAMES).encode()
        ms = 20 * number + 5_000 * partition
        records.append(Record(partition, ms, b"%d" % number, name))
        seconds[name.decode(), ms // 1_000 * 1_000] += 1
    records += [Record(partition, END_MS, b"end-%d" % partition, b"end") for partition in range(PARTITIONS)]
    produce(kafka.bootstrap, topic, records)
    make_topic(kafka.bootstrap, f"{topic}-out", PARTITIONS)
    sent = (tuple(record.value for record in records if record.partition == one) for one in range(PARTITIONS))
    return Feed(topic, tuple(sent), seconds)


@pytest.fixture
def run(cluster: Standalone, kafka, feed: Feed, tmp_path: Path) -> Callable[..., Path]:
    """Run the job in a driver with a HOME and a TMPDIR of its own; returns the directory that all share.

    home: name of the driver's own directory. code: what it ends with. meanwhile: called again and again while it runs.
    variables: of the driver's environment. Other names are fields of the job.
    """

    def to_the_end(
        home: str = "driver",
        code: int = 0,
        meanwhile: Callable = int,
        variables: Mapping[str, str] = MappingProxyType({}),
        **fields: Any,
    ) -> Path:
        job = Job(master=cluster.url, bootstrap=kafka.bootstrap, topic=feed.topic, directory=str(tmp_path), **fields)
        place = tmp_path / home
        own = {"HOME": place, "TMPDIR": place / "tmp", "SPARK_LOCAL_DIRS": place / "local"}
        # The one thing that all share but the directory: a fresh HOME has no compiled code.
        own["NUMBA_CACHE_DIR"] = cache_directory() or place
        own["TMPDIR"].mkdir(parents=True)
        with (place / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.cluster.job", json.dumps(asdict(job))],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **variables, **{name: str(path) for name, path in own.items()}},
            )  # fmt: skip
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while process.poll() is None and time.monotonic() < deadline_s:
                meanwhile()
                time.sleep(LOOK_S)
        finally:
            for pid in of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == code, (place / "log").read_text()[-4_000:]
        return tmp_path

    return to_the_end
