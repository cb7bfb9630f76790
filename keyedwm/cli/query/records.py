"""Records of published batches, as commands show them: the order of channels, and the coalesced watermark."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_wm_sink.batch.record import Record


def in_order(channel: str) -> tuple[str, int, str]:
    """Sort t-2 before t-10."""
    topic, _, number = channel.rpartition("-")
    return (topic, int(number), channel) if number.isascii() and number.isdecimal() else (channel, -1, channel)


def lowest_of_channels(record: Record) -> Mapping[int, int]:
    """Return the lowest watermark (ms) of the active channels for each key that all of them have."""
    active = [channel.watermarks for channel in record.channels.values() if not channel.idle]
    keys = set.intersection(*map(set, active)) if active else set()
    return {key: min(of_key[key] for of_key in active) for key in keys}
