"""A topic of 1,000 partitions on two executors: what each holds open for it, and how evenly its tasks lie."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import END_MS, NAMES, Feed
from tests.cluster.outputs import counted, events_of
from tests.support.standalone import Standalone, of_session

pytestmark = [pytest.mark.starts, pytest.mark.cluster]

MANY_PARTITIONS = 1_000
MANY_EVENTS = 6_000
ESTABLISHED = "01"
# Of an executor of one core: 6 and 960 were seen, most of the files are the jars of the JVMs of worker and executor.
MOST_PYTHONS = 10
MOST_FILES = 2_000


@dataclass(frozen=True)
class Held:
    """What a worker, its executor and that one's Python processes hold: connections to the broker, open files."""

    connections: int
    files: int
    pythons: int

    def or_more(self, other: Held) -> Held:
        """The larger of each."""
        return Held(
            max(self.connections, other.connections), max(self.files, other.files), max(self.pythons, other.pythons)
        )


@pytest.fixture
def feed(kafka, topic_of, seed) -> Feed:
    """Events on 1,000 partitions, each of them in order, and a last one on each."""
    from tests.tools import Record, produce

    topic = topic_of(MANY_PARTITIONS)
    chance = random.Random(f"{seed} many partitions")
    seconds, sent, records = Counter(), [[] for _ in range(MANY_PARTITIONS)], []
    for number in range(MANY_EVENTS):
        partition, name, ms = chance.randrange(MANY_PARTITIONS), chance.choice(NAMES), 5 * number
        records.append(Record(partition, ms, b"%d" % number, name.encode()))
        seconds[name, ms // 1_000 * 1_000] += 1
    records += [Record(partition, END_MS, b"end-%d" % partition, b"end") for partition in range(MANY_PARTITIONS)]
    for record in records:
        sent[record.partition].append(record.value)
    produce(kafka.bootstrap, topic, records)
    return Feed(topic, tuple(map(tuple, sent)), seconds)


def inodes_to(port: int) -> set[str]:
    """The sockets of this machine that are connected to a port."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, _, remote, state, *_, inode = line.split()[:10]
            if state == ESTABLISHED and int(remote.rpartition(":")[2], 16) == port:
                found.add(f"socket:[{inode}]")
    return found


def held(pids: list[int], broker: set[str]) -> Held:
    connections, files, pythons = set(), 0, 0
    for pid in pids:
        with suppress(OSError):
            pythons += b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            open_files = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
            files += len(open_files)
            for one in open_files:
                with suppress(OSError):
                    connections.add(os.readlink(f"/proc/{pid}/fd/{one}"))  # noqa: PTH115
    return Held(len(connections & broker), files, pythons)


def test_what_an_executor_holds_open_does_not_grow_with_partitions_and_tasks_are_shared_evenly(
    run, cluster: Standalone, kafka, feed: Feed
):
    port = int(kafka.bootstrap.rpartition(":")[2])
    most = {worker.address: Held(0, 0, 0) for worker in cluster.workers}

    def look() -> None:
        broker = inodes_to(port)
        for worker in cluster.workers:
            most[worker.address] = held(of_session(worker.pid), broker).or_more(most[worker.address])

    directory = run(target="delta", bite=1_500, meanwhile=look)
    assert counted(directory) == feed.seconds
    tasks = Counter(event["Task Info"]["Executor ID"] for event in events_of(directory, "TaskEnd"))
    assert min(tasks.values()) > 0.4 * sum(tasks.values())  # a thousand reading tasks in the first batch alone
    for one in most.values():
        assert 0 < one.connections <= one.pythons <= MOST_PYTHONS  # one broker: at most one connection of a process
        assert one.files < MOST_FILES
