"""The in-band row format, version 2 (docs/design/rows.md): names only, so that every package can use them.

Rule: a row is an event (control null) or a control row; the order inside a channel is (offset, ORDER of the kind).
"""

from __future__ import annotations

from enum import Enum

# The version of the format in docs/design/rows.md; a change that readers of the rows would notice raises it.
ROW_FORMAT_VERSION = 2


class ControlKind(str, Enum):
    """The kinds of control rows."""

    WATERMARK = "watermark"
    IDLE = "idle"
    ACTIVE = "active"
    BARRIER = "barrier"
    RESET = "reset"


# Where a row stands among rows of its channel with the same offset: reset, active, watermark before the event, the
# event, then the watermark that ends the batch, idle, barrier. Both kinds of watermark have 1: the second carries the
# next offset, so it sorts after the event. Idle and barrier carry the next offset, too.
ORDER = {
    ControlKind.RESET: -1,
    ControlKind.ACTIVE: 0,
    ControlKind.WATERMARK: 1,
    ControlKind.IDLE: 4,
    ControlKind.BARRIER: 5,
}

KEY, VALUE, HEADERS = "key", "value", "headers"
# The id of a value's schema, if the format has one.
SCHEMA_ID = "schema_id"
SCHEMA_GUID = "schema_guid"
EVENT_TIME = "event_time"
WATERMARK = "watermark"
CONTROL = "control"
# REJECTED: the column with a rejected record or message (a row of its own). REASON: its field with the reason.
REJECTED, REASON = "rejected", "reason"
# In the metadata of an axis's watermark column: the axis's watermark key (absent: 0).
AXIS_KEY = "keyedwm.key"
# In the metadata of an event-time column whose lateness Spark decides by the coalesced watermark.
FOLLOWS_COALESCED = "keyedwm.coalesced"
CONTROL_FIELDS = ("kind", "key", "watermark", "channel", "snapshot", "channels", "source")
CONTROL_FIELDS_1 = CONTROL_FIELDS[:-1]  # of version 1, and of tables


def channel_name(topic: str, partition: int) -> str:
    """The channel of a topic-partition, as Kafka writes it: `TOPIC-PARTITION`."""
    return f"{topic}-{partition}"


def is_of_operator(channel: str) -> bool:
    """Whether a channel is a bucket of an operator (`NAME#BUCKET`): no topic of Kafka has a # in its name."""
    return "#" in channel


def topic_partition(channel: str) -> tuple[str, int]:
    """The topic and partition of a source's channel: the inverse of `channel_name`."""
    topic, _, partition = channel.rpartition("-")
    return topic, int(partition)
