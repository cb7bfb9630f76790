"""The made-up events of `keyedwm demo --devices`: some devices lose their network and upload up to a day late.

Rule: the same numbers in every run. An event reaches Kafka up to five minutes after it happened, or when its device has
its network again. A partition has the devices whose number gives it, each in order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints

HOUR_MS = 3_600_000
BEGIN_MS = 1_750_000_000_000 // HOUR_MS * HOUR_MS
HOURS = 36
PARTITIONS = 4
LATE_SHARE = 0.05
LONGEST_MS = 24 * HOUR_MS
_SLOWEST_MS = 5 * 60_000
CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Events:
    """Events in order of arrival: the device of each, when it happened and when it reaches Kafka, in ms."""

    devices: Ints
    event_ms: Ints
    reach_ms: Ints

    def __len__(self) -> int:
        return len(self.devices)

    def where(self, is_chosen: Flags) -> Events:
        """Return some of them."""
        return Events(self.devices[is_chosen], self.event_ms[is_chosen], self.reach_ms[is_chosen])

    def as_kafka(self) -> dict[int, pa.Table]:
        """Return the records by partition, with the columns that the wire takes."""
        tables = {}
        for partition in range(PARTITIONS):
            indices = np.flatnonzero(self.devices % PARTITIONS == partition)
            if len(indices):
                keys = pa.array([name(device).encode() for device in self.devices[indices].tolist()], pa.binary())
                tables[partition] = pa.table(
                    {"key": keys, "value": pa.nulls(len(indices), pa.binary()), "timestamp": self.event_ms[indices]}
                )
        return tables


def name(device: int) -> str:
    """Return the name of a device."""
    return f"device-{device:05}"


def made_up(devices: int) -> tuple[Events, set[str]]:
    """Return an event of each device an hour, and the names of the devices that are late."""
    rng = np.random.default_rng(2013)
    late = np.sort(rng.permutation(devices)[: round(LATE_SHARE * devices)])
    begin = np.full(devices, BEGIN_MS + 2 * HOURS * HOUR_MS)
    begin[late] = BEGIN_MS + rng.integers(0, (HOURS - 24) * HOUR_MS, len(late))
    length = np.zeros(devices, np.int64)
    length[late] = rng.integers(HOUR_MS, LONGEST_MS, len(late))
    of = np.tile(np.arange(devices), HOURS)
    hour_ms = BEGIN_MS + np.repeat(np.arange(HOURS) * HOUR_MS, devices)
    event_ms = hour_ms + rng.integers(0, HOUR_MS, len(of))
    reach_ms = event_ms + rng.integers(0, _SLOWEST_MS, len(of))
    offline = (event_ms >= begin[of]) & (event_ms < begin[of] + length[of])
    reach_ms[offline] = np.maximum(reach_ms[offline], (begin + length)[of[offline]])
    order = np.argsort(reach_ms, kind="stable")
    return Events(of[order], event_ms[order], reach_ms[order]), {name(device) for device in late.tolist()}


def steps(events: Events, count: int) -> list[tuple[int, Events]]:
    """Cut the events into spans of equal simulated time; return the end of each and its events."""
    ends_ms = np.linspace(BEGIN_MS, int(events.reach_ms.max()) + 1, count + 1).astype(np.int64)[1:]
    step = np.searchsorted(ends_ms, events.reach_ms, side="right")
    return [(int(end_ms), events.where(step == number)) for number, end_ms in enumerate(ends_ms)]


def closing() -> dict[int, pa.Table]:
    """Return a record for each partition, a week behind everything, which closes all windows but its own."""
    end_ms = BEGIN_MS + (HOURS + 7 * 24) * HOUR_MS
    record = {"key": [CLOSING.encode()], "value": pa.nulls(1, pa.binary()), "timestamp": [end_ms]}
    return {partition: pa.table(record) for partition in range(PARTITIONS)}
