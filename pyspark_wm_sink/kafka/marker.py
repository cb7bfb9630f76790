"""The marker: what the cluster itself holds about the batch that was decided last.

Rule: it is a committed offset of a consumer group of the query's own, and it is committed by the query's fencing
producer. So a run that another one has fenced cannot write it, and a ledger that was lost, or is older, is contradicted
by it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from keyedwm.core.errors import FencedError, FormatError, InputError, KeyedwmError, UnavailableError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import shown
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.transactional_offsets import commit_as
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.kafka.ledger import Entry, Ledger

FENCE_TIMEOUT_MS = 60_000
_VERSION = 2
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """The batch that was decided last, the checksum of its decision, and the run that made it; version 1 had neither.

    Where rows name their own topic, an attempt that was aborted may have left a marker of the same batch at another
    topic, so there can be several.
    """

    batch: int
    checksums: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """The marker of a query; it stands at partition 0 of a topic that the batch wrote to.

    is_required: the ledger has no lock that reaches other machines, so nothing else keeps two drivers apart.
    """

    group: str
    is_required: bool = False

    @staticmethod
    def of(stem: str, ledger: Ledger) -> Marker:
        """Return the marker of the query whose transactional ids begin with `stem`."""
        return Marker(group=f"{stem}-ledger", is_required=ledger.files.is_shared)

    def read(self, cluster: Cluster, topic: str | None) -> Decided | None:
        """Return what was decided last, None if nothing was or we may not ask; topic: where the newest entry has it.

        A place that is named is also asked for by name: then brokers wait for a commit that is still pending there.
        Raises FormatError for a marker of a later version.
        """
        try:
            found = cluster.fetch_offsets(self.group, None)
            if topic is not None:
                found |= cluster.fetch_offsets(self.group, [(topic, 0)])
        except AccessError as error:
            self._warn(str(error))
            return None
        parsed = [decided for tp, of in found.items() if (decided := self._parsed(tp, of)) is not None]
        newest = max((decided.batch for decided in parsed), default=None)
        if newest is None:
            return None
        latest = [decided for decided in parsed if decided.batch == newest]
        return Decided(
            batch=newest,
            checksums=frozenset().union(*(decided.checksums for decided in latest)),
            runs=frozenset().union(*(decided.runs for decided in latest)),
        )

    def write(self, cluster: Cluster, fence: Transaction, entry: Entry) -> None:
        """Write the marker of a decision that stands in the ledger.

        Raises FencedError: the decision does not hold, a later run has fenced this one. Raises UnavailableError: the
        same decision can be written again. Where the rights are missing a warning takes its place: the decision holds.
        """
        if entry.topic is None:
            return
        run = entry.record.run
        value = {"version": _VERSION, "batch": entry.batch, "checksum": entry.checksum, "run": run}
        position = Committed(entry.batch + 1, json.dumps(value, separators=(",", ":")))
        try:
            commit_as(cluster, fence, self.group, TopicPartition(entry.topic, 0), position, timeout_ms=FENCE_TIMEOUT_MS)
        except (FencedError, UnavailableError):
            raise
        except KeyedwmError as error:
            self._warn(str(error))

    def _parsed(self, tp: TopicPartition, committed: Committed) -> Decided | None:
        """Others may write to the group: what is no marker is ignored with a warning, not so one of a later version."""
        try:
            value = parse_json(committed.metadata)
        except ValueError:
            value = None
        version = value.get("version") if isinstance(value, dict) else None
        if type(version) is int and version > _VERSION:
            raise FormatError(
                f"group {self.group} holds at {tp} a marker of format version {shown(version)}, this "
                f"keyedwm reads versions 1 and {_VERSION}: a later version has written with this query: use that"
            )
        if isinstance(value, dict) and type(value.get("batch")) is int:
            runs = frozenset([value["run"]] if isinstance(value.get("run"), str) else [])
            if version == 1 and type(version) is int:
                return Decided(batch=value["batch"], runs=runs)
            if version == _VERSION and isinstance(value.get("checksum"), str):
                return Decided(batch=value["batch"], checksums=frozenset([value["checksum"]]), runs=runs)
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
