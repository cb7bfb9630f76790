"""The record of a published batch, in the commit of its table or in the ledger; the next batch is checked against it.

Format 1 is plain JSON. Format 2 is the same with the channels compressed, for records that would otherwise be too long
for each commit. `reads` has a version of its own: earlier versions of keyedwm ignore it, and continue in the table.

Rule: no state survives in the writer's process, so this record is the sink's entire state. In a table it stands under
`keyedwm` in the metadata of the commit (Iceberg: of the snapshot) that adds the rows. Equal records have equal text.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.core.errors import FormatError
from keyedwm.core.parsing import inflated, parse_json, whole_number, whole_number_or_none
from keyedwm.core.rows import is_of_operator
from keyedwm.core.text import error_text, short_repr
from pyspark_wm_sink.limits import LIMITS, Limits

METADATA_KEY = "keyedwm"
VERSION = 2  # of a long record; a short one is still written as version 1
_PLAIN = 1
_READS_VERSION = 1
_WHERE = f"the commit metadata {METADATA_KEY} of the table, or the record in a ledger's entry,"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRecord:
    """One channel's position: its last snapshot, the next offset at that barrier, its watermark (ms) of each key.

    idle: its last control row was an idle marker. source: the source of the last barrier that it delivered, None if the
    barrier named none.
    """

    snapshot: int | None = None
    offset: int | None = None
    idle: bool = False
    source: str | None = None
    watermarks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reads:
    """How far a query has read with a batch: for each source, in Spark's order, channel → next offset.

    sources: None if the plan of the batch was unknown; an entry is None if its source is not keyedwm's. is_stateful:
    the checkpoint holds state of operators, which a new checkpoint would lack.
    """

    sources: tuple[Mapping[str, int] | None, ...] | None
    is_stateful: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is known how far each source was read."""
        return self.sources is not None and None not in self.sources

    def furthest(self) -> dict[str, int]:
        """Return how far each channel was read; the higher offset if two sources read it."""
        ends: dict[str, int] = {}
        for source in self.sources or ():
            for channel, offset in (source or {}).items():
                ends[channel] = max(offset, ends.get(channel, offset))
        return ends


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One published batch.

    query, batch: None for a batch write. run, attempt: which run and which commit call published it. snapshot: the
    highest id that this batch closed, None before the first barrier. It is never below the id of the record before, and
    above if the batch is not empty. In a union each source counts its own snapshots. channels: each known channel, but
    none that the last whole cut of its source lacks, if barriers name the source. sources: the last snapshot of each
    source, None if no barrier has named a source. coalesced: the highest coalesced watermark (ms) of each key that the
    rows have shown. ignored: watermark regressions ignored (at-least-once) in this batch. tops: a digest of the highest
    offset of each channel's rows in this batch. It is None without offsets, and in records of earlier versions.
    content: as in BatchReport. reads: None for a batch write, and in records of version 0.3.0 and before.
    """

    query: str | None
    run: str | None
    batch: int | None
    attempt: str
    snapshot: int | None
    rows: int
    ignored: int
    channels: Mapping[str, ChannelRecord]
    coalesced: Mapping[int, int]
    tops: str | None = None
    content: str | None = None
    sources: Mapping[str, int] | None = None
    reads: Reads | None = None

    def ends(self) -> dict[str, int] | None:
        """Return how far each channel was read with this batch, by the plan or else by barriers; None if unknown."""
        if self.reads is not None and self.reads.sources is not None:
            return self.reads.furthest()
        known = {name: channel.offset for name, channel in self.channels.items() if channel.offset is not None}
        return {name: offset for name, offset in known.items() if not is_of_operator(name)} or None

    def to_json(self, limits: Limits = LIMITS) -> str:
        """Return compact text with sorted names; in format 2 if format 1 would be too long."""
        channels = {
            name: {
                "snapshot": channel.snapshot,
                "offset": channel.offset,
                "idle": channel.idle,
                "watermarks": {str(key): ms for key, ms in channel.watermarks.items()},
                **({} if channel.source is None else {"source": channel.source}),
            }
            for name, channel in self.channels.items()
        }
        value = {
            "version": _PLAIN,
            "query": self.query,
            "run": self.run,
            "batch": self.batch,
            "attempt": self.attempt,
            "snapshot": self.snapshot,
            "rows": self.rows,
            "swallowed": self.ignored,
            "channels": channels,
            "coalesced": {str(key): ms for key, ms in self.coalesced.items()},
            **({} if self.tops is None else {"tops": self.tops}),
            **({} if self.content is None else {"content": self.content}),
            **({} if self.sources is None else {"sources": dict(self.sources)}),
            **({} if self.reads is None else {"reads": reads_value(self.reads)}),
        }
        text = _dumped(value)
        return text if len(text) <= limits.record_chars else _dumped(_packed(value))

    @staticmethod
    def from_json(text: str, limits: Limits = LIMITS) -> Record:
        """Inverse of `to_json`; raises FormatError for another version or for text that is no record."""
        try:
            value = parse_json(text)
            version = whole_number(value["version"], "its version")
            if version == _PLAIN:
                return _record(value)
            if version == VERSION:
                return _record(_unpacked(value, limits.unpacked_bytes))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{_WHERE} is damaged: {error_text(error)}") from error
        raise FormatError(
            f"{_WHERE} has format version {short_repr(version)}, this keyedwm reads versions {_PLAIN} and {VERSION}"
        )


@dataclass(frozen=True, slots=True)
class Published:
    """A record and the commit of a table with it: a version of Delta, or the id of a snapshot of Iceberg.

    at_ms: the time of the commit, None if the table does not have the commit any more.
    """

    version: int
    at_ms: int | None
    record: Record


def _dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _packed(value: dict) -> dict:
    packed = {**value, "version": VERSION, "channels": _compressed(value["channels"])}
    if "reads" in value:
        packed["reads"] = {**value["reads"], "sources": _compressed(value["reads"]["sources"])}
    return packed


def _unpacked(value: dict, most_bytes: int) -> dict:
    unpacked = {**value, "channels": _decompressed(value["channels"], most_bytes)}
    if isinstance(value.get("reads"), dict) and value["reads"].get("version") == _READS_VERSION:
        unpacked["reads"] = {**value["reads"], "sources": _decompressed(value["reads"]["sources"], most_bytes)}
    return unpacked


def _compressed(value: object) -> str:
    return base64.b64encode(zlib.compress(_dumped(value).encode())).decode()


def _decompressed(text: str, most_bytes: int) -> Any:
    return parse_json(inflated(base64.b64decode(text, validate=True), most_bytes))


def reads_value(reads: Reads) -> dict:
    """Return the value for JSON."""
    sources = None if reads.sources is None else [None if source is None else dict(source) for source in reads.sources]
    stateful = {"stateful": True} if reads.is_stateful else {}
    return {"version": _READS_VERSION, "sources": sources, **stateful}


def reads_of(value: dict) -> Reads:
    """Return the inverse of `reads_value`; raises FormatError for another version."""
    version = whole_number(value["version"], "the version of reads")
    if version != _READS_VERSION:
        raise FormatError(
            f"{_WHERE} has reads of format version {short_repr(version)}, this keyedwm reads version {_READS_VERSION}"
        )
    sources = None
    if value["sources"] is not None:
        sources = tuple(
            None
            if source is None
            else {name: whole_number(offset, "an offset of reads") for name, offset in source.items()}
            for source in value["sources"]
        )
    return Reads(sources=sources, is_stateful=value.get("stateful") is True)


def _record(value: dict) -> Record:
    return Record(
        query=value["query"],
        run=value["run"],
        batch=whole_number_or_none(value["batch"], "its batch"),
        attempt=value["attempt"],
        snapshot=whole_number_or_none(value["snapshot"], "its snapshot"),
        rows=whole_number(value["rows"], "its number of rows"),
        ignored=whole_number(value["swallowed"], "its number of ignored watermarks"),
        channels={
            name: ChannelRecord(
                snapshot=whole_number_or_none(channel["snapshot"], "the snapshot of a channel"),
                offset=whole_number_or_none(channel["offset"], "the offset of a channel"),
                idle=channel.get("idle", False),
                source=channel.get("source"),
                watermarks=_by_key(channel["watermarks"]),
            )
            for name, channel in value["channels"].items()
        },
        coalesced=_by_key(value["coalesced"]),
        tops=value.get("tops"),
        content=value.get("content"),
        sources=None if value.get("sources") is None else _sources(value["sources"]),
        reads=None if value.get("reads") is None else reads_of(value["reads"]),
    )


def _by_key(value: dict) -> dict[int, int]:
    return {int(key): whole_number(ms, "a watermark") for key, ms in value.items()}


def _sources(value: dict) -> dict[str, int]:
    return {name: whole_number(snapshot, "the snapshot of a source") for name, snapshot in value.items()}
