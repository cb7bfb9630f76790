"""What a published batch leaves in its Delta commit, and what the next batch builds on: format version 1.

Rule: no state survives in the writer's process, so this record is the sink's whole memory. It is written under
`keyedwm` in the commit's metadata, in the same commit as the rows; equal records have equal text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from keyedwm.core.errors import FormatError

METADATA_KEY = "keyedwm"
VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRecord:
    """How far one channel got: its last snapshot, the next offset at that cut, its watermark (ms) of each key.

    idle: its last control row was an idle marker.
    """

    snapshot: int | None = None
    offset: int | None = None
    idle: bool = False
    watermarks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One published batch.

    query, batch: None for a batch write. run, attempt: which run and which commit call published it. snapshot: the
    highest id that this batch closed, None without barriers. channels: every channel seen so far. coalesced: the
    highest coalesced watermark (ms) of each key that the rows have shown. swallowed: regressions let pass
    (at-least-once) in this batch.
    """

    query: str | None
    run: str | None
    batch: int | None
    attempt: str
    snapshot: int | None
    rows: int
    swallowed: int
    channels: Mapping[str, ChannelRecord]
    coalesced: Mapping[int, int]

    def to_json(self) -> str:
        """Compact text with sorted names."""
        channels = {
            name: {
                "snapshot": channel.snapshot,
                "offset": channel.offset,
                "idle": channel.idle,
                "watermarks": {str(key): ms for key, ms in channel.watermarks.items()},
            }
            for name, channel in self.channels.items()
        }
        value = {
            "version": VERSION,
            "query": self.query,
            "run": self.run,
            "batch": self.batch,
            "attempt": self.attempt,
            "snapshot": self.snapshot,
            "rows": self.rows,
            "swallowed": self.swallowed,
            "channels": channels,
            "coalesced": {str(key): ms for key, ms in self.coalesced.items()},
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Record:
        """Inverse of `to_json`; raises FormatError for another version or for text that is no record."""
        try:
            value = json.loads(text)
            version = value["version"]
            if version == VERSION:
                return _record(value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"the commit metadata {METADATA_KEY} of the table is damaged: {error!r}") from error
        raise FormatError(
            f"the commit metadata {METADATA_KEY} of the table has format version {version!r}, "
            f"this keyedwm reads version {VERSION}"
        )


def _record(value: dict) -> Record:
    return Record(
        query=value["query"],
        run=value["run"],
        batch=value["batch"],
        attempt=value["attempt"],
        snapshot=value["snapshot"],
        rows=value["rows"],
        swallowed=value["swallowed"],
        channels={
            name: ChannelRecord(
                snapshot=channel["snapshot"],
                offset=channel["offset"],
                idle=channel.get("idle", False),
                watermarks=_by_key(channel["watermarks"]),
            )
            for name, channel in value["channels"].items()
        },
        coalesced=_by_key(value["coalesced"]),
    )


def _by_key(value: dict) -> dict[int, int]:
    return {int(key): ms for key, ms in value.items()}
