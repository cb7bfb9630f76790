"""The steps of a pipeline's test: records of one batch, silence, a restart.

Rule: a wrong record raises an error when the test creates it, not when a query reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import InputError
from keyedwm.kafka.records.record_columns import RecordColumns
from keyedwm.testing.schemas import Schemas, SchemaValue

TOPIC = "input"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the input.

    event_time: ISO text or a datetime (UTC without an offset), or ms since 1970; it becomes the record's timestamp.
    key, value: bytes or text, written as they are; None for null; a `SchemaValue`; other values are written as JSON.
    headers: name -> text or bytes.
    """

    event_time: str | datetime | int
    key: Any = None
    value: Any = None
    partition: int = 0
    topic: str = TOPIC
    headers: Mapping[str, str | bytes | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.partition, int) or isinstance(self.partition, bool) or self.partition < 0:
            raise InputError(f"Record: partition={self.partition!r}: a whole number from 0 on is expected")
        _ms(self.event_time)

    @property
    def timestamp_ms(self) -> int:
        """The event time in ms since 1970."""
        return _ms(self.event_time)


@dataclass(frozen=True, slots=True)
class Silence:
    """A step without records in which the clock advances, so that partitions become idle by `idleTimeout`."""

    span: str

    def __post_init__(self) -> None:
        duration_ms("Silence", self.span)

    @property
    def span_ms(self) -> int:
        """The span in ms."""
        return duration_ms("Silence", self.span)


class Restart(Enum):
    """A step in which the query is stopped, and started again from its checkpoint."""

    RESTART = "restart"


RESTART = Restart.RESTART
Step: TypeAlias = Sequence[Record] | Silence | Restart
Columns: TypeAlias = dict[tuple[str, int], RecordColumns]


def records_of(steps: Sequence[Step]) -> list[Record]:
    """Return the records of all steps; raises InputError for a value that is no step."""
    records: list[Record] = []
    for number, step in enumerate(steps):
        if isinstance(step, Silence | Restart):
            continue
        if isinstance(step, str | bytes | Record) or not all(isinstance(one, Record) for one in step):
            step_text = repr(step)[:60]
            raise InputError(
                f"run: step {number} is {step_text}: a list of records, Silence(...) or RESTART is expected"
            )
        records += step
    return records


def columns_of(records: Sequence[Record], schemas: Schemas) -> Columns:
    """Return the columns of each topic and partition that a step writes to; records keep their order."""

    def encoded(value: Any, option: str) -> bytes | None:
        return schemas.bytes_of(value, option) if isinstance(value, SchemaValue) else _bytes(value)

    by_partition: dict[tuple[str, int], list[Record]] = {}
    for one in records:
        by_partition.setdefault((one.topic, one.partition), []).append(one)
    return {
        tp: RecordColumns(
            np.array([one.timestamp_ms for one in of_partition], np.int64),
            key=pa.array([encoded(one.key, "key.format") for one in of_partition], pa.binary()),
            value=pa.array([encoded(one.value, "value.format") for one in of_partition], pa.binary()),
            headers=pa.array([_headers(one) for one in of_partition], _HEADERS),
        )
        for tp, of_partition in by_partition.items()
    }


def _headers(record: Record) -> list[dict[str, Any]]:
    return [{"key": name, "value": _bytes(value)} for name, value in record.headers.items()]


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def _ms(time: str | datetime | int) -> int:
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    if isinstance(time, str):
        with suppress(ValueError):
            time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    if not isinstance(time, datetime):
        raise InputError(
            f"Record: event_time={time!r}: a text such as '2026-01-01 10:00', a datetime, or ms since 1970 is expected"
        )
    zoned = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return round(zoned.timestamp() * 1_000)
