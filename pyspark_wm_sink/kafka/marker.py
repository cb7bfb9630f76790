"""The marker: the cluster's own note of the batch that was decided last.

Rule: it is a committed offset of the query's own consumer group, and the query's fencing producer commits it. So a run
that another run has fenced cannot write it. A lost or older ledger contradicts it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from keyedwm.core.errors import FencedError, FormatError, InputError, KeyedwmError, UnavailableError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import short_repr
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.transactional_offsets import commit_as
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.advice import NO_OTHER, Published
from pyspark_wm_sink.batch.record import Record, reads_of, reads_value
from pyspark_wm_sink.kafka.ledger import Entry, Ledger

FENCE_TIMEOUT_MS = 60_000
SUFFIX = "-ledger"  # of the groups of markers
_VERSION = 2
_MOST_CHARS = 3_500  # of metadata: brokers take 4,096 bytes (offset.metadata.max.bytes)
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """The batch that was decided last; since version 2 also the checksum of its decision and the run that decided.

    If rows name their own topic, there can be several markers: an aborted attempt of the same batch may have written
    one at another topic. topics: the topics of the markers. published: how far the query had read with the batch. It is
    None in markers of version 0.3.0 and before, for too many partitions, and if attempts differ.
    """

    batch: int
    checksums: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    published: Published | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """The marker of a query; it stands at partition 0 of a topic that the batch wrote to.

    is_required: the ledger has no lock that reaches other machines, so only the marker separates two drivers. is_own:
    it is the asking query's own marker. In another group an offset that is no marker causes no warning.
    """

    group: str
    is_required: bool = False
    is_own: bool = True

    @staticmethod
    def of(stem: str, ledger: Ledger) -> Marker:
        """Return the marker of the query whose transactional ids begin with `stem`."""
        return Marker(group=f"{stem}{SUFFIX}", is_required=ledger.files.is_shared)

    def read(self, cluster: Cluster, topic: str | None) -> Decided | None:
        """Return the last decision, None if there is none or we may not ask. topic: the topic in the newest entry.

        The read names this topic, too: then brokers wait for a commit that is still pending there. Raises FormatError
        for a marker of a later version.
        """
        try:
            offsets = cluster.fetch_offsets(self.group, None)
            if topic is not None:
                offsets |= cluster.fetch_offsets(self.group, [(topic, 0)])
        except AccessError as error:
            self._warn(str(error))
            return None
        parsed = [decided for tp, of in offsets.items() if (decided := self._parsed(tp, of)) is not None]
        newest = max((decided.batch for decided in parsed), default=None)
        if newest is None:
            return None
        latest = [decided for decided in parsed if decided.batch == newest]
        published = latest[0].published
        return Decided(
            batch=newest,
            checksums=frozenset().union(*(decided.checksums for decided in latest)),
            runs=frozenset().union(*(decided.runs for decided in latest)),
            topics=frozenset().union(*(decided.topics for decided in parsed)),
            published=published if all(decided.published == published for decided in latest) else None,
        )

    def write(self, cluster: Cluster, fence: Transaction, entry: Entry) -> None:
        """Write the marker of a decision that stands in the ledger.

        Raises FencedError: the decision does not hold, a later run has fenced this one. Raises UnavailableError: the
        same decision can be written again. If the rights are missing, the method warns instead: the decision holds.
        """
        if entry.topic is None:
            return
        run = entry.record.run
        value = {"version": _VERSION, "batch": entry.batch, "checksum": entry.checksum, "run": run}
        position = Committed(entry.batch + 1, marker_text(value, entry.record))
        try:
            commit_as(cluster, fence, self.group, TopicPartition(entry.topic, 0), position, timeout_ms=FENCE_TIMEOUT_MS)
        except FencedError as error:
            raise FencedError(f"{error.message}; {NO_OTHER}") from error
        except UnavailableError:
            raise
        except KeyedwmError as error:
            self._warn(str(error))

    def _parsed(self, tp: TopicPartition, committed: Committed) -> Decided | None:
        """Return the decision in a committed offset; ignore an offset that is no marker, with a warning.

        Others may write to the group. Raises FormatError for a marker of a later version.
        """
        try:
            value = parse_json(committed.metadata)
        except ValueError:
            value = None
        version = value.get("version") if isinstance(value, dict) else None
        if type(version) is int and version > _VERSION:
            raise FormatError(
                f"group {self.group} holds at {tp} a marker of format version {short_repr(version)}, this "
                f"keyedwm reads versions 1 and {_VERSION}: a later version has written with this query: use that"
            )
        if isinstance(value, dict) and type(value.get("batch")) is int:
            runs, topics = frozenset([value["run"]] if isinstance(value.get("run"), str) else []), frozenset([tp.topic])
            if version == 1 and type(version) is int:
                return Decided(batch=value["batch"], runs=runs, topics=topics)
            if version == _VERSION and isinstance(value.get("checksum"), str):
                return Decided(
                    batch=value["batch"], checksums=frozenset([value["checksum"]]), runs=runs, topics=topics,
                    published=_published(value),
                )  # fmt: skip
        if self.is_own:
            _log.warning("group %s holds an offset of %s that is no marker of a known version, it is ignored",
                         self.group, tp)  # fmt: skip
        return None

    def _warn(self, why: str) -> None:
        if self.is_required:
            raise InputError(
                f"the marker of the last decided batch (group {self.group}) cannot be used, and a ledger at an address "
                f"has no lock besides it: grant Read on the group and the topic, or set ledger to a directory of the "
                f"driver: {why}"
            )
        _log.warning(
            "the marker of the last decided batch (group %s) cannot be used: a lost ledger, or a copy of the "
            "checkpoint, would not be noticed; grant Read on the group and the topic: %s", self.group, why,
        )  # fmt: skip


def marker_text(value: dict[str, Any], record: Record) -> str:
    """Return the text of a marker, with how far the query has read if that is short enough."""
    plain = json.dumps(value, separators=(",", ":"))
    published = Published.of(record)
    if published is None or published.reads.sources is None:
        return plain
    reads = {"reads": reads_value(published.reads), "operators": sorted(published.operators)}
    text = json.dumps({**value, **reads}, separators=(",", ":"))
    return text if len(text.encode()) <= _MOST_CHARS else plain


def _published(value: dict[str, Any]) -> Published | None:
    """Return how far the query had read; None if the marker does not have it in a known format."""
    try:
        return Published(
            batch=value["batch"], reads=reads_of(value["reads"]), operators=frozenset(map(str, value["operators"]))
        )
    except (FormatError, ValueError, KeyError, TypeError, AttributeError):
        return None  # the rest of the marker decides
