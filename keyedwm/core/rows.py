"""The in-band row format, version 1 (DESIGN sections 4 and 12): names only, so that every room can speak of it.

Rule: a row is an event (control null) or a control row; the order inside a channel is (offset, ORDER of the kind).
"""

from __future__ import annotations

from enum import Enum

# Of the format that DESIGN section 4 lays down; a change that a reader of the rows would notice raises it.
ROW_FORMAT_VERSION = 1


class Kind(str, Enum):
    """What a control row says."""

    WATERMARK = "watermark"
    IDLE = "idle"
    ACTIVE = "active"
    BARRIER = "barrier"


# Where a row stands among rows of its channel with the same offset: active, watermark before the event, the event,
# then the watermark that ends the batch, idle, barrier (these three carry the next offset, so no event shares it).
ORDER = {Kind.ACTIVE: 0, Kind.WATERMARK: 1, Kind.IDLE: 4, Kind.BARRIER: 5}

KEY, VALUE, HEADERS = "key", "value", "headers"
EVENT_TIME = "event_time"
WATERMARK = "watermark"
CONTROL = "control"
# In the metadata of an axis's watermark column: the axis's watermark key (absent: 0).
AXIS_KEY = "keyedwm.key"
CONTROL_FIELDS = ("kind", "key", "watermark", "channel", "snapshot", "channels")


def channel_name(topic: str, partition: int) -> str:
    """The channel of a topic-partition, as Kafka writes it: `TOPIC-PARTITION`."""
    return f"{topic}-{partition}"
