"""Stage one of an aggregation inside the reading tasks, as `aggregate` over a source asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.arrow.schema import row_schema
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.partials import ExchangePartials
from keyedwm.operators.frames.plan import WindowPlan, tumbling
from keyedwm.operators.shuffle import TIME
from keyedwm.spark.api.source import HIDDEN_ORDER, field_texts, plan_readers, plan_schema
from pyspark_wm_source.options.stage import StageSpec

SOURCE = row_schema([""], headers=False, control=False)


def frame_stage(
    by: Mapping[str, str], aggregates: Mapping[str, AggregateSpec], window: Any = None, buckets: int = 2, **how: Any
) -> StageSpec:
    """Return what `aggregate` asks of the reading tasks; by: result column → field; how: for the plan."""
    readers = plan_readers(by, aggregates.values(), SOURCE, {})
    plan = WindowPlan(
        schema=plan_schema(readers), by=tuple(by), order=HIDDEN_ORDER, window=window or tumbling(1_000), time=TIME,
        aggregates=tuple(aggregates.items()), **how,
    ).trimmed()  # fmt: skip
    exchange = ExchangePartials(plan).description()
    return StageSpec(fields=field_texts(plan, by), times={TIME: ""}, exchange=exchange, number=0, buckets=buckets)
