"""The state of the aggregates, processors and joins of a checkpoint, bucket by bucket, by Spark's own state reader.

Rule: it only reads. The query may be stopped or run; the answer is the state of its last committed batch. The figures
of keys with their own watermarks are exact, and all keys are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from keyedwm.arrow.instants import instant_text
from keyedwm.cli.query.held_state import buckets_of, checkpoint_session, is_of_store, watermark_ms
from keyedwm.core.errors import InputError
from keyedwm.core.text import one_line, span_text
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.keyed.key_census import MOST_SHOWN, bounded, key_texts, ordered
from keyedwm.operators.keyed.key_watermark_log import KEYS_LOG, OWN, logs_named
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.results import CHANNEL, HIDDEN_PREFIX
from keyedwm.operators.state.store import PART, logs_of
from keyedwm.savepoint_files import Files, OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY_WATERMARK = "key_watermark"  # in the description of a plan
LOGS = (*logs_named(OWN), *logs_named(KEYS_LOG))


@dataclass(frozen=True)
class _ReadPlan:
    """The part of a `WatermarkKeyPlan` that its log contains."""

    owner_fields: list[pa.Field]
    channel: tuple[str, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(field.name for field in self.owner_fields)


def held_keys(
    description: Mapping[str, Any], state: Mapping[str, Any], blobs: Mapping[str, bytes]
) -> KeyWatermarkSummary:
    """Summarise the key watermarks of a bucket.

    description: of the plan. state: of the operator. blobs: those of `LOGS`.
    """
    settings = description[KEY_WATERMARK]
    per_key = PerKey(**{**settings, "partitions": Partitions(settings["partitions"])})
    own = state.get("key_watermarks", state)
    census, logs = own.get("census", {}), logs_of(blobs)
    forgotten, dropped_rows = census.get("forgotten", 0), ordered(census.get("dropped", {}).items())
    name = next(logs.names(""), None)
    if name is None:
        return KeyWatermarkSummary([], forgotten, [], dropped_rows)
    schema = logs.read(name)[0].schema
    fields = [field for field in schema if not field.name.startswith(HIDDEN_PREFIX)]
    plan = _ReadPlan(fields, (CHANNEL,) if CHANNEL in schema.names else ())
    keys = KeyWatermarks(plan, per_key, logs, own, KEYS_LOG if name.startswith(KEYS_LOG) else OWN)
    keys.rise(state.get("watermark_ms"))
    columns, times = keys.live_keys()
    behind_ms = np.maximum(keys.front_ms - times, 0)
    by_ms, counts = np.unique(behind_ms, return_counts=True)
    slowest = np.argsort(-behind_ms, kind="stable")[:MOST_SHOWN]
    slowest_keys = ordered(zip(key_texts(columns, slowest), behind_ms[slowest].tolist(), strict=True))
    return KeyWatermarkSummary(
        list(zip(by_ms.tolist(), counts.tolist(), strict=True)), forgotten, slowest_keys, dropped_rows
    )


def together(each: Sequence[KeyWatermarkSummary]) -> KeyWatermarkSummary:
    """Return the summary of the keys of all buckets."""
    behind: Counter[int] = Counter()
    for one in each:
        behind.update(dict(one.behind))
    return KeyWatermarkSummary(
        sorted(behind.items()), sum(one.forgotten for one in each), ordered(key for one in each for key in one.slowest),
        ordered(bounded(dict(one.dropped_rows) for one in each).items()),
    )  # fmt: skip


_SHARES = {"half": 0.5, "90 %": 0.9, "99 %": 0.99}


def print_state(out: Console, checkpoint: str) -> None:
    """Print a table for each aggregate, processor and join. Raises InputError if the checkpoint has none."""
    from keyedwm.spark.api.savepoint import read_operators
    from keyedwm.spark.inspect.list_rows import log_lines, rows_by_log

    files = Files(checkpoint)
    if files.names("state") is None:
        if not files.exists():
            raise InputError(f"{checkpoint} does not exist: the checkpoint of a query with an aggregate is expected")
        raise InputError(f"{checkpoint} is no checkpoint with state: that of a query with an aggregate is expected")
    with checkpoint_session() as spark:
        for operator, blobs in read_operators(spark, files):
            out.print(_table(operator))
            for line in log_lines(rows_by_log(operator.states)) if operator.kind == "process" else ():
                out.print(one_line(line), highlight=False, soft_wrap=True)
            if KEY_WATERMARK in (operator.description or {}):
                print_keys(out, operator, blobs)


def _table(operator: OperatorState) -> Table:
    title = f"{operator.kind.capitalize()} {operator.name}, plan {operator.digest}"
    description = operator.description or {}
    count_columns = ("windows", "messages") if is_of_store(operator) else ("frames", "rows")
    table = Table("bucket", "watermark", *count_columns, "bytes", "oldest", title=title)
    for number, (contents, state) in enumerate(zip(buckets_of(operator), operator.states, strict=True)):
        of_frames = "sessions" if contents.frames is None else str(contents.frames)
        frames = of_frames if operator.kind == "aggregate" else "-"
        table.add_row(
            str(number), _time(watermark_ms(description, state)), frames,
            str(contents.rows), str(contents.size_bytes), _time(contents.oldest_ms),
        )  # fmt: skip
    return table


def print_keys(out: Console, operator: OperatorState, blobs: DataFrame) -> None:
    """Print a summary of the key watermarks of all buckets. blobs: of the operator."""
    from pyspark.sql import functions as F

    blobs_by_bucket: list[dict[str, bytes]] = [{} for _ in operator.states]
    for row in blobs.where(F.split("name", re.escape(PART))[0].isin(*LOGS)).collect():
        blobs_by_bucket[row.bucket][row.name] = bytes(row.blob)
    each = [held_keys(operator.description or {}, *one) for one in zip(operator.states, blobs_by_bucket, strict=True)]
    summary = together(each)
    by = [f"{name} {span_text(summary.percentile_ms(share))}" for name, share in _SHARES.items()]
    lines = [
        f"{summary.key_count} keys are held, of which {summary.behind_w} are behind W, by {', '.join(by)} or less",
        f"most keys of a bucket: {max(one.key_count for one in each)}; forgotten so far: {summary.forgotten}",
        *(f"slowest: {key}, {span_text(behind_ms)} behind W" for key, behind_ms in summary.slowest),
        *(f"rows dropped: {key}, {rows} or more" for key, rows in summary.dropped_rows),
    ]
    for line in lines:
        out.print(one_line(line), highlight=False, soft_wrap=True)


def _time(time_ms: int | None) -> str:
    return "none" if time_ms is None else instant_text(time_ms)
