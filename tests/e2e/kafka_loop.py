"""The sink to Kafka without Spark, killed again and again: batches of two tasks, one after the other, for ever.

Run: python -m tests.e2e.kafka_loop BOOTSTRAP TOPIC DIRECTORY LAST   (ends after batch LAST)
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TASKS, ROWS = 2, 5
LAST = 10**9


def values(batch: int, partition: int) -> list[str]:
    return [f"{partition}:{batch * ROWS + row}" for row in range(ROWS)]


def main(bootstrap: str, topic: str, directory: str, last: str) -> None:
    """As Spark does it: plan, run the batch's tasks, commit, note the batch as done; a new run starts at the note."""
    from tests.sink.kafka_sink import Sink

    done = Path(directory) / "done"
    sink = Sink(bootstrap, topic, Path(directory) / "ledger", "loop")
    sink.cluster.partitions([topic])
    warm_up()
    print("ready", flush=True)
    sink.restart()
    for batch in range(int(done.read_text()) + 1 if done.exists() else 0, int(last) + 1):
        sink.publish(batch, *(sink.written(batch, *values(batch, task), partition=task) for task in range(TASKS)))
        (done.parent / "aside").write_text(str(batch))
        (done.parent / "aside").replace(done)


def warm_up() -> None:
    """Load what is loaded once a process, so that kills fall into the work and not into imports."""
    import numpy as np
    import pyarrow as pa

    import pyspark_wm_sink.kafka_publish
    from keyedwm.kafka.encode import Rows, encode
    from keyedwm.kafka.partitioner import partition_of

    list(encode(Rows(np.zeros(1, np.int64), value=pa.array(["a"]))))
    partition_of(pa.array([b"a"]), 1, 1, 0)
    assert pyspark_wm_sink.kafka_publish


def killed(bootstrap: str, topic: str, directory: Path, seed: int, *, kills: int) -> str:
    """Kill so often, then let it come to an end; says what a read_committed reader finds wrong."""
    from tests.sink.conftest import records_of

    rng = random.Random(f"{seed} loop")
    for _ in range(kills):
        victim = _start(bootstrap, topic, directory, LAST)
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.5))
            assert victim.poll() is None
        finally:
            victim.kill()
            victim.communicate()
    noted = directory / "done"
    last = int(noted.read_text()) + 2 if noted.exists() else 2
    final = _start(bootstrap, topic, directory, last)
    final.communicate(timeout=120)
    assert final.returncode == 0
    found = [value.decode() for _, _, value, _ in records_of(bootstrap, topic)]
    sent = [value for task in range(TASKS) for batch in range(last + 1) for value in values(batch, task)]
    came = Counter(found)
    lost, doubled = sum(value not in came for value in sent), came.total() - len(came)
    assert set(came) <= set(sent)
    return f"kills {kills}, batches {last + 1}, lost {lost}, doubled {doubled}, reordered {_reordered(found)}"


def _start(bootstrap: str, topic: str, directory: Path, last: int) -> subprocess.Popen:
    arguments = [bootstrap, topic, str(directory), str(last)]
    command = [sys.executable, "-W", "ignore", "-m", "tests.e2e.kafka_loop", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _reordered(found: list[str]) -> int:
    """Steps back within a batch's rows of one task, in the order of the log."""
    steps = 0
    highest: dict[tuple[str, int], int] = {}
    for value in found:
        task, number = value.split(":")
        place = (task, int(number) // ROWS)
        steps += highest.get(place, -1) > int(number)
        highest[place] = int(number)
    return steps


if __name__ == "__main__":
    main(*sys.argv[1:])
