"""Progress as Spark tells it, of simulated batches: facts and offsets are the planner's, no JVM is asked.

Also the samples of one metric, as a scrape has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from keyedwm.spark.metrics.catalogue import Metric
from keyedwm.spark.metrics.figures import Figures
from pyspark_wm_source.driver.plan import BrokerAnswers
from pyspark_wm_source.driver.report import describe
from tests.source.plans import Simulation, tp

QUERY, RUN = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
NONE: Mapping[str, Mapping[str, Any]] = {}


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def values(figures: Figures, metric: Metric) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by their labels."""
    samples = [sample for sample in figures.samples() if sample.metric is metric]
    assert len({sample.labels for sample in samples}) == len(samples)  # Prometheus rejects a series that appears twice
    return {sample.labels: sample.value for sample in samples}


def value(figures: Figures, metric: Metric, *labels: str) -> float:
    """Return the sample of a metric with these labels."""
    return values(figures, metric)[labels]


def with_source(progress: StreamingQueryProgress, **fields: str) -> StreamingQueryProgress:
    """Return the progress with other fields of its source."""
    fields_of_json: dict[str, Any] = progress._jdict
    return StreamingQueryProgress.fromJson({**fields_of_json, "sources": [{**fields_of_json["sources"][0], **fields}]})


@dataclass
class Told:
    """A query over a simulation; each `progress` plans a batch and tells it."""

    simulation: Simulation
    name: str | None = "orders"
    id: str = QUERY
    run: str = RUN
    number: int = field(default=-1)

    def progress(
        self,
        *,
        ends: Mapping[int, int] | None = None,
        observed: Mapping[str, Mapping[str, Any]] = NONE,
        operators: list[dict[str, Any]] | None = None,
        is_again: bool = False,
    ) -> StreamingQueryProgress:
        """Plan a batch. ends: log ends that its planning sees. is_again: as a restart runs it, without planning."""
        before = self.simulation.offset
        planned = self.simulation.step()
        if planned is None:
            planned = before
        known = {p: len(log) for p, log in self.simulation.logs.items()} if ends is None else ends
        log_ends = {tp(p): end for p, end in known.items()}
        seen = BrokerAnswers(ends=log_ends, begins={}, requested_ms=planned.now_ms, now_ms=planned.now_ms)
        facts = describe(planned, seen, log_ends, 0, sets_idle=self.simulation.idle_timeout_ms is not None)
        self.number += 1
        return StreamingQueryProgress.fromJson({
            "id": self.id, "runId": self.run, "name": self.name, "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": self.number, "batchDuration": 1_500,
            "durationMs": {"addBatch": 1_000, "triggerExecution": 1_500},
            "stateOperators": operators or [], "numInputRows": 7, "sink": {"description": "s", "numOutputRows": -1},
            "sources": [{
                "description": "PythonMicroBatchStream", "startOffset": json.dumps(before.to_json()),
                "endOffset": json.dumps(planned.to_json()), "latestOffset": "null" if is_again else json.dumps(facts),
                "numInputRows": 7, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
            }],
            "observedMetrics": {name: dict(fields) for name, fields in observed.items()},
        })  # fmt: skip
