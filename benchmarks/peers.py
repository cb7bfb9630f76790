"""Tumbling windows with stage one in the source beside Flink, Hazelcast Jet and Spark's own operators, in turn.

Run: python -m benchmarks.peers [--case tumbling|tumbling-800k] [--records N] [--pairs N]
All sides read the topic of `benchmarks.windows --case tumbling`, two tasks each, and give its exact answer before a
figure is shown. Flink and Jet each run in one JVM for all rounds, so their rounds warm up as ours do. Their programs
(`benchmarks/peers`) are compiled here, which needs a JDK; their jars are fetched once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.cpu import APART
from benchmarks.measure import FIRST_MS, Run, Sheet, scratch
from benchmarks.turns import Bench, bench, in_turn
from benchmarks.windows import CASES, DEFAULT, PUSHED, Case, Share, measured, topic_of
from benchmarks.windows_answer import Stream, answer, load
from keyedwm.spark.setup.conf import FILE_SYSTEM, MANAGER
from keyedwm.testing.ivy import fetch_jars, read_hashes
from keyedwm.testing.java import find_java

HERE = Path(__file__).with_suffix("")
FLINK, JET = "Flink", "Jet"
# Our checkpoint's files through Hadoop's FileSystem, which starts no processes: Flink's files cost none either.
LOCAL = f"{PUSHED}, local_checkpoint"
CASE = "tumbling"
# Eleven batches of about a second for us, as far apart as the engines' checkpoints; ten of the size that `windows` has.
SHARES = {CASE: Share(22_000_000, 2_000_000), f"{CASE}-800k": Share(8_000_000, 800_000)}
LAG_MS = 1_000  # of the case
Request = Callable[[str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: its program in `HERE`, the artifacts that the program needs, and what its Java is started with."""

    program: str
    artifacts: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def versions(self) -> str:
        """Its artifacts with their versions."""
        return ", ".join(":".join(one.split(":")[1:]) for one in self.artifacts)


def _opened(*packages: str) -> tuple[str, ...]:
    return tuple(f"--add-opens={package}=ALL-UNNAMED" for package in packages)


ENGINES = {
    FLINK: Engine(
        "FlinkTumbling",
        (
            "org.apache.flink:flink-clients:2.2.1",
            "org.apache.flink:flink-connector-base:2.2.1",
            "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
        ),
        _opened("java.base/java.lang", "java.base/java.util", "java.base/java.time", "java.base/java.nio"),
    ),
    JET: Engine(
        "JetTumbling",
        (
            "com.hazelcast:hazelcast:5.5.0",
            "com.hazelcast.jet:hazelcast-jet-kafka:5.5.0",
            "org.slf4j:slf4j-api:1.7.36",  # Kafka's client needs it
        ),
        (
            "--add-modules=java.se",
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            *_opened(
                "java.base/java.lang", "java.base/sun.nio.ch", "java.management/sun.management",
                "jdk.management/com.sun.management.internal",
            ),
        ),
    ),
}  # fmt: skip


@contextmanager
def started(name: str) -> Iterator[Request]:
    """Start an engine's program, which runs a job for each line, in a JVM with the memory of Spark's."""
    engine = ENGINES[name]
    jars = fetch_jars(engine.program, engine.artifacts, hashes=read_hashes(HERE / "jars.txt"))
    java = Path(find_java())
    with scratch() as place:
        path = os.pathsep.join([place, *map(str, jars)])
        sources = [HERE / "Tally.java", HERE / f"{engine.program}.java"]
        subprocess.run([java.with_name("javac"), "-cp", path, "-d", place, *sources], check=True)
        command = [java, "-Xmx4g", APART, f"-Djava.io.tmpdir={place}", *engine.options, "-cp", path, engine.program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=place) as process:
            try:
                yield partial(_asked, name, process)
            finally:
                process.kill()


def _asked(name: str, process: subprocess.Popen[str], request: str) -> Mapping[str, float]:
    """Return what a run of an engine gave; raises SystemExit if the program ended instead."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise SystemExit(f"{name} was started without pipes: no figure")
    stdin.write(request + "\n")
    stdin.flush()
    line = next((line for line in stdout if line.startswith("{")), None)  # an engine may print, too
    if line is None:
        raise SystemExit(f"{name} ended in its run: no figure")
    return json.loads(line)


def run_of(side: str, sums: Mapping[str, float], expected: Mapping[str, int], records: int) -> Run:
    """The figures of an engine's run; raises SystemExit if its results are not the exact answer."""
    results = {name: sums[name] for name in expected}
    if results != expected:
        raise SystemExit(f"{side}: {results} came out, the answer is {expected}: no figure")
    steady = sums["steady_records"] / sums["steady_s"] if sums["steady_records"] else None
    return Run(records / sums["took_s"], steady, sums["cpu_s"] / (records / 1e6))


def beside(side: str, request: Request, on: Bench, stream: Stream, share: Share) -> Run:
    """Run an engine over all records; the windows of the records that close all windows are no results."""
    until_ms = FIRST_MS + int(stream.after_ms(share.records)[-1]) + 1
    with scratch() as checkpoint:
        words = (
            on.cluster.config.addresses, topic_of(stream, share), share.records, stream.size_ms, LAG_MS, until_ms,
            checkpoint,
        )  # fmt: skip
        sums = request(" ".join(map(str, words)))
    return run_of(side, sums, answer(stream, share.records), share.records)


def local(on: Bench, case: Case, share: Share) -> Run:
    """Run our side with `local_checkpoint`."""
    on.spark.conf.set(MANAGER, FILE_SYSTEM)
    try:
        return measured(on, PUSHED, case, share)
    finally:
        on.spark.conf.unset(MANAGER)


def compare(on: Bench, name: str) -> None:
    """Load the topic, and run the sides in turn."""
    case, stream = CASES[CASE], CASES[CASE].stream
    share = SHARES[name].of(on)
    load(on.cluster, topic_of(stream, share), stream, share.records)
    setting = {
        "size_ms": stream.size_ms, "keys": stream.keys, "records_per_ms": stream.per_ms,
        "partitions": stream.partitions, "lag": case.lag, "tasks": 2,
        "sides": {
            **{side: asdict(share) for side in (DEFAULT, PUSHED, LOCAL)},
            **{
                side: {"records": share.records, "checkpoint": "1 second", "versions": engine.versions}
                for side, engine in ENGINES.items()
            },
        },
    }  # fmt: skip
    with ExitStack() as engines:
        sides = {side: partial(measured, on, side, case, share) for side in (DEFAULT, PUSHED)}
        sides[LOCAL] = partial(local, on, case, share)
        for side in ENGINES:
            request = engines.enter_context(started(side))
            sides[side] = partial(beside, side, request, on, stream, share)
        in_turn(Sheet(f"peers-{name}", FLINK, setting), sides, on.pairs)


def main() -> None:
    """Run the comparison and write its result."""
    with bench(__doc__, SHARES) as on:
        for name in on.cases:
            compare(on, name)


if __name__ == "__main__":
    main()
