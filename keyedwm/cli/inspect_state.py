"""The state of the aggregates, processors and joins of a checkpoint, bucket by bucket, by Spark's own state reader.

Rule: it only reads; the query may be stopped or run, the answer is that of its last committed batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from keyedwm.arrow.instants import instant_text
from keyedwm.cli.checkpoint_session import checkpoint_session
from keyedwm.core.errors import InputError
from keyedwm.operators.messages.read_only_store import summary as of_store
from keyedwm.operators.messages.store_description import STORE
from keyedwm.operators.state.description import KIND
from keyedwm.operators.summary import summary
from keyedwm.savepoint_files import Files, OperatorState


def print_state(out: Console, checkpoint: str) -> None:
    """Print a table for each aggregate, processor and join. Raises InputError if the checkpoint has none."""
    from keyedwm.spark.api.savepoint import read_operators

    files = Files(checkpoint)
    if files.names("state") is None:
        if not files.exists():
            raise InputError(f"{checkpoint} does not exist: the checkpoint of a query with an aggregate is expected")
        raise InputError(f"{checkpoint} is no checkpoint with state: that of a query with an aggregate is expected")
    with checkpoint_session() as spark:
        for operator, _ in read_operators(spark, files):
            out.print(_table(operator))


def _table(operator: OperatorState) -> Table:
    title = f"{operator.kind.capitalize()} {operator.name}, plan {operator.digest}"
    description = operator.description or {}
    is_store = description.get(KIND) == STORE
    counted = ("windows", "messages") if is_store else ("frames", "rows")
    table = Table("bucket", "watermark", *counted, "bytes", "oldest", title=title)
    for number, (manifest, state) in enumerate(zip(operator.manifests, operator.states, strict=True)):
        held = of_store(description, manifest["blobs"], state) if is_store else summary(manifest["blobs"], state)
        of_frames = "sessions" if held.frames is None else str(held.frames)
        frames = of_frames if operator.kind == "aggregate" else "-"
        table.add_row(
            str(number), _time(_watermark_ms(description, state)), frames,
            str(held.rows), str(held.size_bytes), _time(held.oldest_ms),
        )  # fmt: skip
    return table


def _watermark_ms(description: Mapping[str, Any], state: Mapping[str, Any]) -> int | None:
    """Where event time stands, in a join the lowest of its sides; a store notes it with its windows of time."""
    if "received" in state:
        return min(state["received"].values(), default=None)
    of_time = (
        state.get("axes", {}).get("0", {}).get("horizon")
        if "rows" not in description.get("window", {}).get(KIND, "")
        else None
    )
    return state.get("watermark_ms", state.get("watermark", of_time))


def _time(time_ms: int | None) -> str:
    return "none" if time_ms is None else instant_text(time_ms)
