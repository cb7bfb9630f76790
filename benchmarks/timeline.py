"""One warm micro-batch, millisecond by millisecond: phases, tasks, and what the cores do meanwhile, as a picture.

Run: python -m benchmarks.timeline [--side 'keyedwm, stage one in the source'] [--case tumbling] [--into build/timeline]
Phases are Spark's progress, tasks its event log, CPU time is sampled (`cpu_samples.py`). The picture shows the batch
whose time is the median of the full ones; the printed table is the mean of them all. Sampling takes a twentieth of a
core, so the times are no figures. Processes that live for a few milliseconds are not sampled, such as those that Hadoop
starts for files of a local checkpoint: the table's `rest` is their CPU time and the idle time of the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import HDFS, finished, how_many
from benchmarks.turns import Bench, running
from benchmarks.windows import CASES, DEFAULT, KEYEDWM, PUSHED, Share, keyedwm_counts, native, topic_of
from benchmarks.windows_answer import load
from docs.figures.draw import Drawing
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

CORES = 2
EVENT_LOG = {"enabled": "true", "rolling.enabled": "false", "compress": "false"}
WARM_RUNS = 4
# In the order in which Spark runs them.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
WIDTH, LEFT, TOP, LANE, RIGHT = 1_000, 170, 50, 20, 16
COLOURS = {
    "first stage": "#c9efd0", "second stage": "#e4d3f7", "broker": "#ffd0cc", "Java": "#fff0c2",
    "Python": "#c9efd0",
}  # fmt: skip
PHASE_COLOURS = ("#cfe3ff", "#a3c8f5")


@dataclass(frozen=True, slots=True)
class Span:
    """A phase or a task, in milliseconds since 1970."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch: its phases, tasks, and samples as (ms, CPU nanoseconds of each lane so far)."""

    span: Span
    phases: list[Span]
    tasks: list[Span]
    samples: list[tuple[float, dict[str, int]]]

    @property
    def took_ms(self) -> float:
        """Its time."""
        return self.span.end_ms - self.span.start_ms


@contextmanager
def sampled(into: Path) -> Iterator[list[tuple[float, dict[str, int]]]]:
    """Sample all processes below this one; the samples are there at the end."""
    samples: list[tuple[float, dict[str, int]]] = []
    command = [sys.executable, "-m", "benchmarks.cpu_samples", str(os.getpid()), str(into)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as sampler:
        yield samples
        sampler.communicate()
    samples += [(at_ms, lanes) for at_ms, lanes in map(json.loads, into.read_text().splitlines())]


def phases_of(progress: Any) -> list[Span]:
    """Return the phases of a batch one after the other; Spark reports their durations only."""
    start_ms = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp() * 1_000
    spans = []
    for name in PHASES:
        end_ms = start_ms + progress.durationMs.get(name, 0)
        spans.append(Span(name, start_ms, end_ms))
        start_ms = end_ms
    return spans


def tasks_of(log: Path) -> list[Span]:
    """Return all tasks of an event log, named by the place of their stage in its job."""
    first_stages: set[int] = set()
    tasks = []
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            first_stages.add(min(event["Stage IDs"]))
        elif event["Event"] == "SparkListenerTaskEnd":
            stage = "first stage" if event["Stage ID"] in first_stages else "second stage"
            tasks.append(Span(stage, event["Task Info"]["Launch Time"], event["Task Info"]["Finish Time"]))
    return tasks


def batches_of(progress: Sequence[Any], tasks: Sequence[Span], samples: Sequence[tuple]) -> list[Batch]:
    """Return the full batches but the first."""
    full = max(one.numInputRows for one in progress)
    batches = []
    for one in progress[1:]:
        if one.numInputRows > full * 0.9:
            phases = phases_of(one)
            start_ms = phases[0].start_ms
            end_ms = start_ms + one.durationMs["triggerExecution"]
            own_tasks = [task for task in tasks if start_ms <= task.start_ms <= end_ms]
            own_samples = [sample for sample in samples if start_ms - 20 <= sample[0] <= end_ms + 20]
            span = Span("batch", start_ms, end_ms)
            batches.append(Batch(span, phases, own_tasks, own_samples))
    return batches


def steps(batch: Batch) -> Iterator[tuple[float, float, Mapping[str, float]]]:
    """Yield from one sample to the next: start, end, and the CPU milliseconds of each lane."""
    for (start_ms, before), (end_ms, after) in zip(batch.samples, batch.samples[1:], strict=False):
        used = {lane: max(0, used_ns - before.get(lane, 0)) / 1e6 for lane, used_ns in after.items()}
        yield start_ms, end_ms, used


def sections(batch: Batch) -> list[Span]:
    """Return the batch divided: before its tasks, its stages, between, and after."""
    spans = []
    at_ms = batch.span.start_ms
    for stage in ("first stage", "second stage"):
        tasks = [task for task in batch.tasks if task.name == stage]
        if tasks:
            start_ms, end_ms = min(task.start_ms for task in tasks), max(task.end_ms for task in tasks)
            spans += [Span(f"before the {stage}", at_ms, start_ms), Span(stage, start_ms, end_ms)]
            at_ms = end_ms
    return [*spans, Span("after the tasks", at_ms, batch.span.end_ms)]


def kind_of(lane: str) -> str:
    """Return the kind of a lane, which its colour shows."""
    return next(kind for kind in ("broker", "Java", "Python") if lane.startswith(kind))


def show(batches: Sequence[Batch]) -> None:
    """Print the mean batch: of each section its time, and the CPU time of both cores in it."""
    took: Counter[str] = Counter()
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for batch in batches:
        for section in sections(batch):
            took[section.name] += section.end_ms - section.start_ms
            for start_ms, end_ms, lanes in steps(batch):
                inside = min(end_ms, section.end_ms) - max(start_ms, section.start_ms)
                for lane, ms in lanes.items():
                    if inside > 0:
                        name = "Python" if kind_of(lane) == "Python" else lane
                        used[section.name][name] += ms * inside / (end_ms - start_ms)
    lanes_shown = sorted({lane for of in used.values() for lane in of})
    print(f"{len(batches)} batches, mean ms; CPU ms of {CORES} cores")
    print(f"{'':26}{'time':>8}{'rest':>8}" + "".join(f"{lane:>22}" for lane in lanes_shown))
    for name, ms in [*took.items(), ("all", sum(took.values()))]:
        own = used[name] if name != "all" else sum(used.values(), Counter())
        rest_ms = CORES * ms - sum(own.values())
        figures = "".join(f"{own[lane] / len(batches):22.0f}" for lane in lanes_shown)
        print(f"{name:26}{ms / len(batches):8.0f}{rest_ms / len(batches):8.0f}{figures}")


def picture(batch: Batch, title: str) -> str:
    """Draw a batch: phases, tasks by core, and a lane for each thread or process that used a hundredth of it."""
    totals: Counter[str] = Counter()
    for _, _, lanes in steps(batch):
        totals.update(lanes)
    shown = [lane for lane, ms in totals.most_common() if ms > batch.took_ms / 100]
    shown.sort(key=kind_of)
    slots = slots_of(batch.tasks)
    rows = ["phases", *(f"task slot {number + 1}" for number in range(len(slots))), *shown]
    height = TOP + len(rows) * (LANE + 4) + 36
    drawing = Drawing(WIDTH, height, title)
    scale = (WIDTH - LEFT - RIGHT) / batch.took_ms

    def bar(row: int, span: Span, colour: str, share: float = 1.0) -> None:
        start, end = (min(max(at - batch.span.start_ms, 0), batch.took_ms) for at in (span.start_ms, span.end_ms))
        y = TOP + row * (LANE + 4)
        drawing.bar(LEFT + start * scale, y + LANE * (1 - share), (end - start) * scale, LANE * share, colour)

    for row, name in enumerate(rows):
        drawing.text(12, TOP + row * (LANE + 4) + 14, name)
    for number, span in enumerate(batch.phases):
        bar(0, span, PHASE_COLOURS[number % 2])
        if (span.end_ms - span.start_ms) * scale > 7 * len(span.name):
            drawing.text(LEFT + (span.start_ms - batch.span.start_ms) * scale + 3, TOP + 14, span.name)
    for row, tasks in enumerate(slots, start=1):
        for task in tasks:
            bar(row, task, COLOURS[task.name])
    for start_ms, end_ms, lanes in steps(batch):
        for row, lane in enumerate(shown, start=1 + len(slots)):
            share = min(1.0, lanes.get(lane, 0) / (end_ms - start_ms))
            if share > 0.02:
                bar(row, Span(lane, start_ms, end_ms), COLOURS[kind_of(lane)], share)
    for at_ms in range(0, int(batch.took_ms) + 1, 50):
        x = LEFT + at_ms * scale
        drawing.line(x, TOP - 4, x, height - 30, colour="#dddddd")
        drawing.text(x, height - 14, f"{at_ms}", anchor="middle")
    return drawing.svg()


def slots_of(tasks: Sequence[Span]) -> list[list[Span]]:
    """Divide tasks into lanes in which none overlaps."""
    slots: list[list[Span]] = []
    for task in sorted(tasks, key=lambda one: (one.start_ms, one.end_ms)):
        slot = next((slot for slot in slots if slot[-1].end_ms <= task.start_ms), None)
        if slot is None:
            slots.append([task])
        else:
            slot.append(task)
    return slots


def main() -> None:
    """Run a side until it is warm, sample one run, print its table and draw its median batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", action="append", choices=[KEYEDWM, PUSHED, DEFAULT])
    parser.add_argument("--case", choices=list(CASES), default="tumbling")
    parser.add_argument("--batch", type=how_many, help="rows of a micro-batch; as the case has it")
    parser.add_argument("--into", type=Path, default=Path("build", "timeline"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    case = CASES[options.case]
    batch = options.batch or case.keyedwm.batch
    share = Share(batch * 10, batch)
    with tempfile.TemporaryDirectory() as logs:
        conf = {f"spark.eventLog.{name}": text for name, text in EVENT_LOG.items()} | {"spark.eventLog.dir": logs}
        with running(conf) as (cluster, spark):
            on = Bench(cluster, spark, (), None, 1)
            load(cluster, topic_of(case.stream, share), case.stream, share.records)
            runs = {}
            for side in options.side or [PUSHED]:
                spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
                make = {KEYEDWM: partial(keyedwm_counts, pushed=False), PUSHED: partial(keyedwm_counts, pushed=True)}
                frame = make.get(side, native)(on, case, topic_of(case.stream, share), share)
                for _ in range(WARM_RUNS):
                    finished(frame.writeStream.format("noop"))
                with sampled(Path(logs, "samples")) as samples:
                    done = finished(frame.writeStream.format("noop"))
                runs[side] = done.progress, samples
        log = next(path for path in Path(logs).iterdir() if path.name != "samples")
        tasks = tasks_of(log)
    for side, (progress, samples) in runs.items():
        batches = batches_of(progress, tasks, samples)
        print(f"\n{options.case}, {side}")
        show(batches)
        middle = sorted(batches, key=lambda one: one.took_ms)[len(batches) // 2]
        svg_path = options.into / f"{options.case}-{batch}-{side.replace(', ', '-').replace(' ', '-')}.svg"
        title = f"{options.case}, {side}: a batch of {batch:,} records, ms"
        svg_path.write_text(picture(middle, title), encoding="utf-8")
        print(svg_path)


if __name__ == "__main__":
    main()
