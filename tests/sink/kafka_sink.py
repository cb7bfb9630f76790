"""One query's sink to Kafka, driven without Spark: tasks and commits are plain calls."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from keyedwm.core.errors import UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.places.notes import Claim
from tests.tools import cluster_at, wait_for_markers, wait_until

# What brokers allow at most: no test is so slow that its transactions end by themselves.
LONGEST_TIMEOUT_MS = 900_000


class Died(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@dataclass
class Sink:
    """One query's sink, in this process; `run` is one life of its driver."""

    bootstrap: str
    topic: str
    ledger: Path | None
    query: str
    run: str = "run-0"
    mode: SnapshotMode = SnapshotMode.BATCH
    timeout_ms: int = LONGEST_TIMEOUT_MS
    number: int = 0
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    inline: bool = False
    secret: bytes | None = None
    claim: Claim | None = None
    is_shared: bool = False
    writers: tuple = ()  # of values with a schema

    @property
    def cluster(self):
        return cluster_at(self.bootstrap)

    @property
    def how(self):
        from pyspark_wm_sink.kafka.publish import KafkaPublication
        from pyspark_wm_sink.kafka.stage import KafkaStagePlan

        plan = KafkaStagePlan(
            client=self.cluster.config, topic=self.topic, stem=None if self.ledger else self.query,
            timeout_ms=self.timeout_ms, transactional=self.guarantee is Guarantee.EXACTLY_ONCE,
            columns=("value",), has_control=False, has_offsets=False, writers=self.writers,
        )  # fmt: skip
        return KafkaPublication(
            plan=plan, ledger=self.ledger, mode=self.mode, guarantee=self.guarantee, inline=self.inline,
            secret=self.secret, claim=self.claim, is_shared=self.is_shared,
        )  # fmt: skip

    def written(self, batch: int | None, *values: str, partition: int = 0, control: tuple = ()):
        from pyspark_wm_sink.batch.task import Task
        from pyspark_wm_sink.kafka.stage import stage

        self.number += 1
        query = self.query if batch is not None else None
        task = Task(query=query, run=self.run, batch=batch, partition=partition, attempt=0, number=self.number)
        rows = [pa.record_batch({"value": list(values)})] if values else []
        return replace(stage(self.how.plan, task, rows), control=control)

    def spread(self, batch: int, task: int, values: list[str], partitions: int, control: tuple = ()):
        """One task that writes its values to all partitions in turn."""
        return self.placed(batch, [(value, n % partitions) for n, value in enumerate(values)], control, task)

    def placed(self, batch: int, rows: list[tuple[str, int]], control: tuple = (), task: int = 0):
        """One task that writes (value, partition) rows."""
        from pyspark_wm_sink.batch.task import Task
        from pyspark_wm_sink.kafka.stage import stage

        self.number += 1
        who = Task(query=self.query, run=self.run, batch=batch, partition=task, attempt=0, number=self.number)
        values, places = [value for value, _ in rows], pa.array([place for _, place in rows], pa.int32())
        plan = replace(self.how.plan, columns=("value", "partition"))
        return replace(stage(plan, who, [pa.record_batch({"value": values, "partition": places})]), control=control)

    def staged(self, batch: int, table: pa.Table, partition: int = 0, event_times: tuple[str, ...] = ()):
        """One task that writes the rows of a source's batch, with its control rows."""
        from pyspark_wm_sink.batch.task import Task
        from pyspark_wm_sink.kafka.stage import stage

        self.number += 1
        task = Task(query=self.query, run=self.run, batch=batch, partition=partition, attempt=0, number=self.number)
        plan = replace(
            self.how.plan, columns=("value",), has_control=True, has_offsets=True, event_times=event_times
        )  # fmt: skip
        return stage(plan, task, table.to_batches())

    def publish(self, batch: int | None, *reports, plan: BatchPlan | None = None) -> None:
        from pyspark_wm_sink.kafka.publish import publish_to_kafka

        publish_to_kafka(self.how, reports, batch=batch, plan=plan)

    def publish_and_settle(self, batch: int, *reports) -> None:
        """Publish for a reader of committed records: return when it can see all of them."""
        self.publish(batch, *reports)
        wait_for_markers(self.bootstrap, self.topic)

    def write_and_publish(self, batch: int, *values: str) -> None:
        self.publish(batch, self.written(batch, *values))

    def written_and_expired(self, batch: int | None, *values: str, partition: int = 0):
        """As `written`; the broker has then ended the transaction, as its time-out was over."""
        usual_ms, before = self.timeout_ms, self.open()
        while True:
            self.timeout_ms = 1
            try:
                expired_report = self.written(batch, *values, partition=partition)
            except UnavailableError:
                continue  # the broker's clock struck while the rows were written
            finally:
                self.timeout_ms = usual_ms
            wait_until(lambda: self.open() == before, "the broker's time-out")
            return expired_report

    def restart(self) -> None:
        """A new run, which looks into the ledger first, as Spark's planning of its first batch does."""
        from pyspark_wm_sink.kafka.ledger import Ledger
        from pyspark_wm_sink.kafka.publish import recover

        self.run = f"run-{uuid.uuid4().hex}"
        recover(self.cluster, Ledger(self.ledger))

    def open(self) -> int:
        from keyedwm.kafka.requests.transactions import lingering

        return len(lingering(self.cluster, f"{self.query}-"))
