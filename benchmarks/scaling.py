"""The constants of docs/explanation/scaling.md: what one more partition, key, frame, bucket and task costs.

Run: python -m benchmarks.scaling [--no-broker]
Bytes and requests are exact; times are CPU seconds of one process, the best of a few runs, and belong to the machine
they were taken on. Every cost is taken at several sizes, so that what is not linear shows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks.measure import through_json
from benchmarks.planning import append, count_requests
from conformance.driver import DrivenOperator
from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.control_row import ControlRow
from keyedwm.core.encoding import METADATA_BYTES, CommittedState, encode_committed
from keyedwm.core.idleness import Idleness
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.exchange_control import pack_control
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.state.blobs import packed
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from keyedwm.testing.admin import create_topic
from keyedwm.testing.broker import broker
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan
from pyspark_wm_source.reader import row_schema, stream_reader
from pyspark_wm_source.values.offsets import Channel, QueryOffset
from pyspark_wm_source.values.ranges import RangeResult

RUNS = 5
CHANNELS = (1_000, 10_000, 100_000)
KEYS = (1_000, 10_000, 100_000)
OVERLAPS = (1, 60, 600)
PARTITIONS = (1, 4, 16)
START_MS = 1_731_000_000_000
SECOND_MS = 1_000
SOURCE = "0123456789ab"
STATE_KEY = b"0123456789abcdef" * 2
Cost = tuple[str, str, float]
SUMS = (("rows", agg.count()), ("total", agg.sum("n")))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-broker", action="store_true", help="leave the requests to Kafka out")
    options = parser.parse_args()
    line("", "", *(f"{size:,} parts" for size in CHANNELS))
    for measure in (driver, inboxes):
        table(measure, CHANNELS)
    line("of one partition's committed state", "bytes", f"{committed_bytes()} of {METADATA_BYTES:,}")
    print()
    line("", "", *(f"{size:,} keys" for size in KEYS))
    for measure in (partials, taking_partials):
        table(measure, KEYS)
    print()
    line("", "", *(f"{overlap} frames" for overlap in OVERLAPS))
    table(closing, OVERLAPS)
    if not options.no_broker:
        print()
        requests()


def table(measure: Callable[[int], Iterator[Cost]], sizes: tuple[int, ...]) -> None:
    """Print what `measure` finds at each size, a line for each cost."""
    costs_of_sizes = [list(measure(size)) for size in sizes]
    for at, (name, unit, _) in enumerate(costs_of_sizes[0]):
        line(name, unit, *(f"{costs[at][2]:,.2f}" for costs in costs_of_sizes))


def line(name: str, unit: str, *values: str) -> None:
    """Print one line of the table."""
    print(f"{name:58} {unit:8} " + " ".join(f"{value:>14}" for value in values), flush=True)


def best(act: Callable[[], object], setup: Callable[[], object] = lambda: None) -> float:
    """CPU seconds of the cheapest of a few runs, after one to warm up."""
    took = []
    for _ in range(RUNS + 1):
        setup()
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took[1:])


def driver(channels: int) -> Iterator[Cost]:
    """Planning a batch in which every channel has news, Kafka's answers at hand."""
    places = [TopicPartition("orders", number) for number in range(channels)]

    def channels_after(batch: int) -> dict[TopicPartition, Channel]:
        axes = {0: AxisState((START_MS + batch * SECOND_MS,), START_MS + batch * SECOND_MS)}
        one = Channel(
            next_offset=1_000_000 + batch, read=1, status=Status.ACTIVE, since_ms=START_MS, counts=Counts(), axes=axes
        )
        return dict.fromkeys(places, one)

    start = QueryOffset(
        batch=7, group="keyedwm-0123456789abcdef", state_key=STATE_KEY.hex(), now_ms=START_MS,
        coalesced=CommonState(), channels=channels_after(7),
    )  # fmt: skip
    axes = {0: AxisState((START_MS + 8 * SECOND_MS,), START_MS + 8 * SECOND_MS)}
    after = dict.fromkeys(places, RangeResult(next_offset=1_000_007, counts=Counts(), axes=axes))
    answers = BrokerAnswers(ends=dict.fromkeys(places, 1_000_008), begins={}, requested_ms=START_MS, now_ms=START_MS)
    rules = Rules(guarantee=Guarantee.EXACTLY_ONCE, idleness=Idleness(60_000), max_offsets=None)
    planned = plan(start, after, answers, rules)
    text = json.dumps(planned.to_json())
    yield (
        "planning and coalescing, a partition",
        "us",
        best(lambda: plan(start, after, answers, rules)) / channels * 1e6,
    )
    yield "its offset written as JSON, a partition", "us", best(lambda: json.dumps(planned.to_json())) / channels * 1e6
    parse = best(lambda: QueryOffset.from_json(json.loads(text)))
    yield "its offset read back, a partition", "us", parse / channels * 1e6
    yield "its offset, a partition", "bytes", len(json.dumps(planned.to_json(), separators=(",", ":"))) / channels


def inboxes(channels: int) -> Iterator[Cost]:
    """The control rows of one batch at one bucket: a watermark and a barrier of every channel."""
    names = [f"orders-{number}" for number in range(channels)]
    inbox, batch, rows, chance = ChannelTracker("aggregate", 0), 0, [], random.Random(0)

    def new_inbox() -> None:
        nonlocal batch, rows
        batch += 1
        at_ms = START_MS + 2 * batch * SECOND_MS
        rows = [
            ControlRow(
                kind=ControlKind.WATERMARK,
                key=0,
                watermark_ms=at_ms + chance.randrange(SECOND_MS),
                channel=name,
                offset=batch,
                source=SOURCE,
            )
            for name in names
        ]
        rows += [
            ControlRow(
                kind=ControlKind.BARRIER, channel=name, snapshot=batch, channels=channels, offset=batch, source=SOURCE
            )
            for name in names
        ]

    yield (
        "control rows taken by a bucket, a partition",
        "us",
        best(lambda: inbox.apply(rows), new_inbox) / channels * 1e6,
    )
    yield "control rows shipped to a bucket, a partition", "bytes", len(pack_control(rows)) / channels
    yield "a bucket's note of its channels, a partition", "bytes", len(json.dumps(inbox.state())) / channels


def committed_bytes() -> int:
    """The metadata beside a committed offset."""
    state = CommittedState(1_000, Counts(), {0: AxisState((START_MS,), START_MS)})
    return len(encode_committed(state, STATE_KEY, "group orders-0 1000000 0123456789abcdef"))


def rows_of(keys: int, frames: int = 1, each: int = 1) -> pa.Table:
    """`each` rows of every key in every frame of a second."""
    number = np.arange(keys * frames * each)
    times = START_MS + number // (keys * each) * SECOND_MS
    names = pa.array([f"key-{key:06d}" for key in range(keys)])
    return pa.table({
        "k": names.take(pa.array(number % keys)),
        "event_time": pa.array(times * 1_000).view(pa.timestamp("us", tz="UTC")),
        "n": number % 1_000,
    })  # fmt: skip


def plan_of(rows: pa.Table, overlap: int = 1, aggregates: tuple = SUMS) -> WindowPlan:
    """Windows of so many frames of a second."""
    window = SlidingWindow(overlap * SECOND_MS, SECOND_MS)
    return WindowPlan(schema=rows.schema, by=("k",), window=window, aggregates=aggregates)


def partials(keys: int) -> Iterator[Cost]:
    """What a task makes of its rows, and ships: one partial for each key and frame."""
    rows = rows_of(keys, each=10)
    how = plan_of(rows)
    partials = combine_rows(how, rows)
    yield "rows combined into partials, a row", "ns", best(lambda: combine_rows(how, rows)) / len(rows) * 1e9
    yield "a shipped partial, count and sum, keys of 10 letters", "bytes", len(packed(partials)) / len(partials)
    yield "a shipped piece that holds one partial", "bytes", len(packed(partials.slice(0, 1)))


def taking_partials(keys: int) -> Iterator[Cost]:
    """A bucket that takes ten frames of every key, writes them down and is restored."""
    rows = rows_of(keys, frames=10)
    for name, aggregates in (("count", SUMS[:1]), ("count and sum", SUMS)):
        how = plan_of(rows, aggregates=aggregates)
        operator = DrivenOperator(how)
        operator.take(combine_rows(how, rows))
        state = sum(map(len, operator.snapshot().values()))
        yield f"state of a (key, frame), {name}", "bytes", state / operator.open_entries
    partials, entries = combine_rows(how, rows), keys * 10
    operators = [DrivenOperator(how)]
    taken_s = best(lambda: operators[-1].take(partials), lambda: operators.append(DrivenOperator(how)))
    yield "taken by a bucket, a partial", "ns", taken_s / entries * 1e9
    blobs = operators[-1].snapshot()
    yield (
        "restored by a worker that does not hold it, a (key, frame)",
        "ns",
        (best(lambda: DrivenOperator(how, blobs).open_entries) / entries * 1e9),
    )


def closing(overlap: int) -> Iterator[Cost]:
    """Windows of so many frames, over 1,000 keys that are each in every frame, closed in small and in large steps."""
    keys, frames = 1_000, 1_200
    rows = rows_of(keys, frames=frames)
    how = plan_of(rows, overlap)
    partials = combine_rows(how, rows)
    for step in (1, 10, 100):
        operator = DrivenOperator(how)
        operator.take(partials)
        operator.advance(START_MS + frames // 2 * SECOND_MS)
        began, results = time.process_time(), 0
        for second in range(frames // 2, frames, step):
            results += operator.advance(START_MS + (second + step) * SECOND_MS).num_rows
        took = time.process_time() - began
        yield f"{step} windows closed at once, a result", "ns", took / results * 1e9


def requests() -> None:
    """Requests to Kafka in a warm micro-batch over so many partitions, one task each way."""
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        line("", "", *(f"{size} partitions" for size in PARTITIONS))
        request_counter = count_requests()
        counts_of_sizes = [batch_requests(cluster, size, request_counter) for size in PARTITIONS]
        for step in counts_of_sizes[0]:
            line(f"requests: {step}", "", *(str(one[step].total()) for one in counts_of_sizes))
            print(f"    {dict(counts_of_sizes[-1][step])}", flush=True)
        cluster.close()


def batch_requests(cluster: Cluster, partitions: int, request_counter: Counter[str]) -> dict[str, Counter[str]]:
    """Count the requests of planning, reading, writing and committing the second batch."""
    topic, out_topic = f"bench-scaling-{partitions}", f"bench-scaling-{partitions}-out"
    create_topic(cluster, topic, partitions)
    create_topic(cluster, out_topic, partitions)
    options = {
        "kafka.bootstrap.servers": cluster.config.addresses, "subscribe": topic, "startingOffsets": "earliest",
    }  # fmt: skip
    reader = stream_reader(options, row_schema(options))
    start = through_json(reader.initialOffset())
    counts_of_steps: dict[str, Counter[str]] = {}

    def step(name: str, act: Callable[[], Any]) -> Any:
        request_counter.clear()
        result = act()
        counts_of_steps[name] = Counter(request_counter)
        return result

    sinks = KafkaStagePlan(
        client=cluster.config, topic=out_topic, stem=None, timeout_ms=60_000, transactional=True,
        columns=("value", "partition"), has_control=False, has_offsets=False,
    )  # fmt: skip
    places = [pa.record_batch({"value": [b"x"], "partition": pa.array([at], pa.int32())}) for at in range(partitions)]
    with tempfile.TemporaryDirectory() as place:
        how = KafkaPublication(
            plan=sinks, ledger=Path(place), mode=SnapshotMode.BATCH, guarantee=Guarantee.EXACTLY_ONCE
        )
        for batch in range(2):
            append(cluster, topic, partitions)
            end = step("planning", lambda at=start: through_json(reader.latestOffset(at, ReadMaxRows(2**31 - 1))))
            tasks = reader.partitions(start, end)
            step("reading, all tasks", lambda tasks=tasks: [list(reader.read(task)) for task in tasks])
            counts_of_steps["tasks of the reading"] = Counter(tasks=len(tasks))
            who = Task(query=topic, run="run", batch=2 * batch, partition=0, attempt=0, number=1_000 * batch)
            one = [step("writing, one task to all partitions", lambda who=who: stage(sinks, who, places))]
            step("commit of one task", lambda one=one, batch=batch: publish_to_kafka(how, one, batch=2 * batch))
            several = [
                replace(who, batch=2 * batch + 1, partition=at, number=1_000 * batch + 1 + at)
                for at in range(partitions)
            ]
            reports = step(
                "writing, a task for each partition",
                lambda tasks=several: [stage(sinks, who, [rows]) for who, rows in zip(tasks, places, strict=True)],
            )
            step("commit of them", lambda all_=reports, batch=batch: publish_to_kafka(how, all_, batch=2 * batch + 1))
            start = end
    return counts_of_steps


if __name__ == "__main__":
    main()
