"""Planted bugs that only a week shows: losses at a deployment, and sizes that grow from day to day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.system.world.planted import Bug


def _no_states(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args: {}


def _keeps_all(_right: Callable[..., Any]) -> Callable[..., Any]:
    def keep(planner: Any, offset_json: Any, offset: Any) -> Any:
        planner._read_lately = [*planner._read_lately, (offset_json, offset)]
        return offset

    return keep


def _deletes_none(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args: None


WEEKLY = (
    Bug("a watermark is lost when a setting changes", "pyspark_wm_source.driver.changed_settings:carried_axes",
        _no_states),
    Bug("the planner keeps every offset", "pyspark_wm_source.driver.planner:Planner._keep", _keeps_all),
    Bug("the ledger keeps every entry", "pyspark_wm_sink.kafka.ledger:Ledger.delete_old", _deletes_none, "kafka"),
)  # fmt: skip
