"""The driver's part of an exactly-once batch to Kafka: how long it takes to decide and end eight tasks' transactions.

Tasks and commits are plain calls here, as Spark makes them; what Spark itself adds to hand the messages over is not in.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measure import VALUE, Sheet, committed, new_topic
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, StagedRecords, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode

if TYPE_CHECKING:
    from benchmarks.turns import Bench

TOPIC = "bench-commit"
TASKS, TASK_RECORDS, BATCHES = 8, 12_500, 20
TIMEOUT_MS = 60_000


def measure(on: Bench) -> None:
    """Publish some batches; raises SystemExit if a record is missing afterwards."""
    new_topic(on.cluster, TOPIC)
    plan = KafkaStagePlan(
        client=on.cluster.config, topic=TOPIC, stem=None, timeout_ms=TIMEOUT_MS, transactional=True, columns=("value",),
        has_control=False, has_offsets=False,
    )  # fmt: skip
    sheet = Sheet("sink-commit", None, {"tasks": TASKS, "batch": TASKS * TASK_RECORDS})
    rows = pa.record_batch({"value": pa.array([VALUE] * TASK_RECORDS)})
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(TASKS) as tasks:
        how = KafkaPublication(plan=plan, ledger=Path(place), mode=SnapshotMode.BATCH, guarantee=Guarantee.EXACTLY_ONCE)

        def task(number: int) -> StagedRecords:
            who = Task(
                query=TOPIC, run="run", batch=number // TASKS, partition=number % TASKS, attempt=0, number=number
            )
            return stage(plan, who, [rows])

        for batch in range(BATCHES + 1):
            reports = list(tasks.map(task, range(batch * TASKS, (batch + 1) * TASKS)))
            began = time.perf_counter()
            publish_to_kafka(how, reports, batch=batch)
            sheet.add(f"{TASKS} tasks", {"ms": (time.perf_counter() - began) * 1e3}, warming=batch == 0)
    expected_records = (BATCHES + 1) * TASKS * TASK_RECORDS
    if (committed_records := committed(on.cluster, TOPIC)) != expected_records:
        raise SystemExit(f"commit: {committed_records} of {expected_records} records arrived: no figure")
    sheet.finish()
