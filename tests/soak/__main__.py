"""A soak: two queries at a steady rate for hours, with kills; nothing may be lost, doubled, out of order, or grow.

Run: python -m tests.soak [--minutes 120] [--rate 20000] [--kill-every 120] [--seed 1] [--into build/soak]
Half of the time driver, Python workers and broker are killed; in the second half no driver, so that its memory shows.
Every record of the copy and every row of the windows is compared with the stream. Exits 1 if one differs, if a query
fails for a reason that no kill explains, or if memory or files of the second half grow by more than a fifth.
Spark keeps the files of a hundred batches, so files grow in a run of less than ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.admin import create_topic
from keyedwm.testing.local import LocalBroker, local_broker
from tests.e2e.world import RECOVERABLE
from tests.soak import feed
from tests.soak.checks import CopyReader, Findings, check_windows, table_files, window_rows
from tests.soak.picture import picture
from tests.soak.samples import Sample, processes_of, sample
from tests.soak.stream import Stream
from tests.support.standalone import of_session

ROOT = Path(__file__).parents[2]
TOPIC = "soak"
EVERY_S, LOOK_S, LIMIT_S = 15, 1.0, 600
MOST_GROWTH = 1.2
_NEWEST_FILES = 20
# Old records are deleted, as in production: the disk holds a quarter of an hour.
RETENTION = {"retention.ms": "900000", "segment.ms": "120000", "compression.type": "producer"}
BROKER = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "log.retention.check.interval.ms": "30000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
WEIGHTS = {"worker": 4, "broker": 2, "driver": 2}


class Soak:
    """The running soak: broker, producer, driver, reader."""

    def __init__(self, stream: Stream, broker: LocalBroker, directory: Path, rng: random.Random) -> None:
        self.stream, self.broker, self.directory, self.rng = stream, broker, directory, rng
        self.findings, self.kills = Findings(), Counter()
        self.copy = CopyReader(stream, f"{TOPIC}-copy", self.findings)
        self.samples: list[Sample] = []
        self.delays: list[tuple[float, float]] = []
        self.lives = 0
        self._driver: subprocess.Popen | None = None
        self._session = 0  # of the driver that runs
        self.cluster = Cluster.connect(
            ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, **feed.PATIENT})
        )

    def start_driver(self) -> None:
        """Start the pipeline's program, in a session of its own."""
        program = [sys.executable, "-W", "ignore", "-m", "tests.soak.pipeline"]
        with (self.directory / "log").open("a") as log:
            self._driver = subprocess.Popen(
                [*program, self.broker.bootstrap, TOPIC, self.directory],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.lives += 1
        self._session = self._driver.pid

    def strike(self, kind: str) -> None:
        """Kill a process; broker and driver start again."""
        if kind == "driver":
            self._kill_driver()
            self.start_driver()
        elif kind == "broker":
            self.broker.kill()
            self.broker.start()
        else:
            workers = processes_of(self._session)[1]
            if not workers:
                return
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)
        self.kills[kind] += 1

    def look(self, *, at_s: float, full: bool) -> None:
        """Read the copy; with `full` take a sample as well."""
        with suppress(UnavailableError):  # the broker is away: the next look reads the rest
            self.copy.read(self.cluster)
        delay_ms = max(self.copy.latencies_ms, default=0.0)
        if self.copy.latencies_ms:
            self.delays += [(at_s, one) for one in self.copy.latencies_ms]
            self.copy.latencies_ms.clear()
        if full:
            self.samples.append(sample(at_s, self.lives, self._session, self.directory, delay_ms))
            with (self.directory / "samples.jsonl").open("a") as file:
                file.write(json.dumps(asdict(self.samples[-1])) + "\n")

    def check_driver(self) -> None:
        """Raise SystemExit if the program ended, or if a query failed for a reason that no kill explains."""
        if self._driver is None or self._driver.poll() is not None:
            raise SystemExit(f"the pipeline's program ended by itself: see {self.directory / 'log'}")
        for line in self.failures():
            if not re.search(RECOVERABLE, line["error"]):
                raise SystemExit(f"query {line['query']} failed, which no kill explains: {line['error']}")

    def failures(self) -> list[dict]:
        """Return the failures of queries so far."""
        path = self.directory / "failures.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """Kill what is left."""
        self._kill_driver()
        self.cluster.close()

    def _kill_driver(self) -> None:
        if self._driver is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        for pid in of_session(self._driver.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run(soak: Soak, producer: subprocess.Popen, kill_every_s: float) -> None:
    """Look, sample and strike until the stream has ended and everything has come."""
    first_s = soak.stream.first_ms / 1e3
    half_s = soak.stream.seconds / 2
    next_kill_s, next_sample_s, ended_s = kill_every_s, 0.0, None
    while True:
        at_s = time.time() - first_s
        soak.check_driver()
        soak.look(at_s=at_s, full=at_s >= next_sample_s)
        if at_s >= next_sample_s:
            next_sample_s = at_s + EVERY_S
            status = f"kills {soak.kills.total()}, {soak.findings.summary()}"
            print(f"{at_s:7.0f} s  copied {sum(soak.copy.expected):,}  {status}", flush=True)
        if producer.poll() is not None:
            if producer.returncode:
                raise SystemExit("the producer failed")
            ended_s = ended_s or at_s
            if soak.copy.complete() and _has_last_window(soak):
                return
            if at_s > ended_s + LIMIT_S:
                raise SystemExit(f"not everything came within {LIMIT_S} s: {soak.copy.expected}")
        elif at_s >= next_kill_s:
            kinds = {kind: weight for kind, weight in WEIGHTS.items() if kind != "driver" or at_s < half_s}
            soak.strike(soak.rng.choices([*kinds], [*kinds.values()])[0])
            next_kill_s = at_s + kill_every_s * soak.rng.uniform(0.6, 1.4)
        time.sleep(LOOK_S)


def _has_last_window(soak: Soak) -> bool:
    newest = [path for _, path in table_files(soak.directory / "windows")[-_NEWEST_FILES:]]
    starts = [one for path in newest for one in pq.read_table(path, columns=["start_ms"])["start_ms"].to_pylist()]
    return max(starts, default=0) >= soak.stream.closed_windows()[-1]


def growth(samples: Sequence[Sample], stream: Stream, field: str) -> float:
    """Return the median of the last eighth of the time divided by that of the sixth; no driver is killed in between."""
    eighth_s = stream.seconds / 8
    last, sixth = (
        [getattr(one, field) for one in samples if first * eighth_s <= one.at_s < (first + 1) * eighth_s]
        for first in (7, 5)
    )
    if not last or not sixth:
        raise SystemExit(f"no sample of {field} in the sixth or the last eighth: run more minutes")
    return float(np.median(last) / np.median(sixth))


def report(soak: Soak) -> bool:
    """Print what came of it, and write samples and picture; return whether it was clean."""
    rows, committed_ms = window_rows(soak.directory / "windows")
    check_windows(rows, soak.stream, soak.findings)
    ends_ms = np.asarray(rows["start_ms"]) + soak.stream.window_ms + soak.stream.lag_ms
    latencies_ms = committed_ms - ends_ms
    grown = {name: growth(soak.samples, soak.stream, name) for name in ("java_mib", "python_mib", "checkpoint_files")}
    copy_ms = [ms for _, ms in soak.delays]
    summary = {
        "stream": asdict(soak.stream),
        "kills": dict(soak.kills), "lives": soak.lives, "failures": len(soak.failures()),
        "records": soak.stream.records * soak.stream.partitions, "window_rows": rows.num_rows,
        "findings": asdict(soak.findings), "growth": grown,
        "copy_ms": _quantiles(copy_ms), "window_ms": _quantiles(latencies_ms),
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    (soak.directory / "summary.json").write_text(json.dumps(summary))
    (soak.directory / "soak.svg").write_text(picture(soak.samples, soak.delays, soak.stream))
    return soak.findings.clean and all(one <= MOST_GROWTH for one in grown.values())


def _quantiles(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share))) for share in (50, 99, 100)} if len(values) else {}


def main() -> int:
    """Run a soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--kill-every", type=float, default=120, help="seconds, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "soak")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that nothing is left behind
    options.into.mkdir(parents=True)
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        broker = stack.enter_context(local_broker(extra=BROKER))
        first_ms = int(time.time() + 40) // 10 * 10_000
        stream = Stream(first_ms=first_ms, rate=options.rate, seconds=round(options.minutes * 60))
        soak = Soak(stream, broker, options.into, random.Random(options.seed))
        stack.callback(soak.close)
        for topic in (TOPIC, f"{TOPIC}-copy"):
            create_topic(soak.cluster, topic, stream.partitions, RETENTION)
        soak.start_driver()
        producer = subprocess.Popen(feed.command(broker.bootstrap, TOPIC, stream), cwd=ROOT)
        stack.callback(producer.kill)
        run(soak, producer, options.kill_every)
        return 0 if report(soak) else 1


if __name__ == "__main__":
    sys.exit(main())
