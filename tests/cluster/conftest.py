"""A Spark cluster, a topic of events, and the program of `job` run on them by a driver of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from keyedwm.testing.standalone import Standalone, of_session, standalone
from tests.cluster.job import Job

ROOT = Path(__file__).parents[2]
LIMIT_S = 900.0
PARTITIONS = 3
EVENTS = 1_800
END_MS = 10_000_000
NAMES = ("ada", "ben", "cem", "dia")


@dataclass(frozen=True)
class Feed:
    """What was sent: the values, and how often each name came in each second, without the records that close all."""

    topic: str
    values: Counter
    seconds: Counter


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
    values, seconds, records = Counter(), Counter(), []
    for number in range(EVENTS):
        partition, name = chance.randrange(PARTITIONS), chance.choice(NAMES).encode()
        ms = 20 * number + 5_000 * partition
        records.append(Record(partition, ms, b"%d" % number, name))
        values[b"%d" % number] += 1
        seconds[name.decode(), ms // 1_000 * 1_000] += 1
    for partition in range(PARTITIONS):
        records.append(Record(partition, END_MS, b"end-%d" % partition, b"end"))
        values[b"end-%d" % partition] += 1
    produce(kafka.bootstrap, topic, records)
    make_topic(kafka.bootstrap, f"{topic}-out", PARTITIONS)
    return Feed(topic, values, seconds)


@pytest.fixture
def run(cluster: Standalone, kafka, feed: Feed, tmp_path: Path) -> Callable[..., Path]:
    """Run the job to its end in a driver with its own HOME and TMPDIR; returns the directory that all share."""

    def to_the_end(**fields: str) -> Path:
        job = Job(master=cluster.url, bootstrap=kafka.bootstrap, topic=feed.topic, directory=str(tmp_path), **fields)
        own = {"HOME": tmp_path / "driver", "TMPDIR": tmp_path / "driver" / "tmp"}
        own["TMPDIR"].mkdir(parents=True, exist_ok=True)
        with (tmp_path / "driver" / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.cluster.job", json.dumps(asdict(job))],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **{name: str(path) for name, path in own.items()}},
            )  # fmt: skip
        try:
            process.wait(LIMIT_S)
        finally:
            for pid in of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == 0, (tmp_path / "driver" / "log").read_text()[-4_000:]
        return tmp_path

    return to_the_end
