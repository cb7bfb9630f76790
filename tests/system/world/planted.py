"""Planted bugs: what the code did, or could do, wrong; and at which seed the world notices each.

Rule: a bug is a change of one function, made while the world runs. One that is not noticed within the given seeds is a
hole in the world, not in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertCreate

from keyedwm.core.errors import UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.records.batches import Batches, BatchField
from keyedwm.kafka.requests.fetch import _Part
from keyedwm.kafka.requests.transactions import Fate, TransactionStatus
from pyspark_wm_sink.iceberg.table import IcebergLog
from pyspark_wm_sink.kafka.marker import Marker
from pyspark_wm_sink.kafka.ownership import FencedLedger
from pyspark_wm_sink.tables.log import NewestBatch
from tests.system.world.simulate import run
from tests.system.world.world import Outcome, World

Wrong = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Bug:
    """What is broken, where (MODULE:NAME), and how. target: of the seeds that look for it, None for each its own."""

    name: str
    place: str
    wrong: Wrong
    target: str | None = None


def _nothing(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args, **_named: None


def _constant(value: Any) -> Wrong:
    return lambda _right: lambda *_args, **_named: value


def _never(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_args, **_named: False


def _result(change: Callable[[Any], Any]) -> Wrong:
    return lambda right: lambda *args, **named: change(right(*args, **named))


def _done_by_nothing(right: Callable[..., Any]) -> Callable[..., Any]:
    def part(fetcher: Any, reader: Any, data: Any, leader: Any) -> Any:
        found, start = right(fetcher, reader, data, leader), reader.position
        if found is not None or data.high_watermark < reader.end:
            return found
        reader.position = reader.end
        nothing = Batches(reader.tp, b"", np.empty((0, len(BatchField)), np.int64), reader.end)
        return _Part(reader, start, nothing, [], done=True)

    return part


def _open_for_all(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _cluster, transactions: dict.fromkeys(transactions, TransactionStatus(Fate.OPEN, 0, 0))


def _always_active(status: Callable[..., Any]) -> Callable[..., Any]:
    """Idleness by the readable end alone."""
    return lambda *args, **named: status(*args, **{**named, "awaited": False})


def _stays_idle(status: Callable[..., Any]) -> Callable[..., Any]:
    """A channel that is idle stays so, whatever is to be read."""

    def stays(before: Any, *args: Any, **named: Any) -> Any:
        found = status(before, *args, **named)
        return Status.IDLE if before is not None and before.status is Status.IDLE else found

    return stays


def _higher(offset: Any) -> Any:
    raised = {key: ms + 5_000 for key, ms in offset.coalesced.emitted.items()}
    return replace(offset, coalesced=replace(offset.coalesced, emitted=raised))


def _same_id(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda plan, task: f"{plan.stem_of(task.query)}-{task.batch}-{task.partition}"


def _decided_first(right: Callable[..., Any]) -> Callable[..., Any]:
    """A ledger that says published before anything is committed."""

    def decide(ledger: Any, entry: Any) -> None:
        right(ledger, entry)
        ledger.mark_published(entry)

    return decide


def _once_published(right: Callable[..., Any]) -> Callable[..., Any]:
    """mark_published after a decision that is published already."""

    def mark(ledger: Any, entry: Any) -> Any:
        try:
            return right(ledger, entry)
        except Exception:  # noqa: BLE001  the file is renamed already
            return replace(entry, published=True)

    return mark


def _no_sequences(right: Callable[..., Any]) -> Callable[..., Any]:
    """Batches that a broker cannot tell from new ones."""

    def encode(*args: Any, producer: Any = None, **named: Any) -> Any:
        if producer is not None and not producer.transactional:
            producer = None
        return right(*args, producer=producer, **named)

    return encode


def _aborted_seen(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda batches, span, wanted, _aborted, limits: right(batches, span, wanted, [], limits)


def _next_sequence(right: Callable[..., Any]) -> Callable[..., Any]:
    """A batch without an answer is taken for written."""

    def outcome(sender: Any, sent: Any, *, following: bool = False) -> Any:
        found = right(sender, sent, following=following)
        return None if found is not None and "lost" in found else found

    return outcome


def _raised(_right: Callable[..., Any]) -> Any:
    """What was deleted after it was processed fails the recovery read."""

    def raise_it(error: Exception) -> None:
        raise error

    return staticmethod(raise_it)


def _deleted_in_doubt(right: Callable[..., Any]) -> Callable[..., Any]:
    """The files of an append of which nobody knows whether it happened."""

    def resolve(commit: Any, error: Exception) -> None:
        try:
            right(commit, error)
        except UnavailableError:
            commit._discard()
            raise

    return resolve


def _no_claim(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: right(*args, **{**named, "claim": None})


def _not_new(right: Callable[..., Any]) -> Callable[..., Any]:
    """A ledger that takes every run for its latest."""

    def take(cluster: Any, ledger: Any, **named: Any) -> FencedLedger:
        known = ledger.run_history()
        if known is None:
            return right(cluster, ledger, **named)
        marker = Marker.of(named["stem"], ledger)
        return FencedLedger(cluster=cluster, ledger=ledger, marker=marker, query=named["query"], fence=known.fence)

    return take


def _unfenced(_right: Callable[..., Any]) -> Callable[..., Any]:
    """A marker outside of any transaction."""
    return lambda cluster, _producer, group, where, position, **_named: cluster.commit_offsets(group, {where: position})


def _no_property(right: Callable[..., Any]) -> Callable[..., Any]:
    """The record stands in the snapshot alone."""

    def commit(*args: Any, **named: Any) -> None:
        with mock.patch.object(Transaction, "set_properties"):
            right(*args, **named)

    return commit


def _by_itself(right: Callable[..., Any]) -> Callable[..., Any]:
    """A commit that is refused is made again, without a look for the batch."""

    def commit(table: Table, *args: Any, **named: Any) -> None:
        try:
            right(table, *args, **named)
        except CommitFailedException:
            right(table.refresh(), *args, **named)

    return commit


def _without_requirements(right: Callable[..., Any]) -> Callable[..., Any]:
    """But for a table that is created."""

    def commit(table: Table, updates: Any, requirements: Any) -> None:
        right(table, updates, tuple(one for one in requirements if isinstance(one, AssertCreate)))

    return commit


def _by_snapshots(_right: Callable[..., Any]) -> Callable[..., Any]:
    """The newest batch by the summaries of the snapshots that have not expired."""

    def newest(log: IcebergLog, query: str) -> NewestBatch | None:
        first = next(((one.version, record) for one in log.commits() if (record := one.record_of(query))), None)
        return None if first is None else NewestBatch(batch=first[1].batch or 0, record=first[1], version=first[0])

    return newest


_PLAN = "pyspark_wm_source.driver.plan"
_PUBLISH = "pyspark_wm_sink.kafka.publish"
_OWNERSHIP = "pyspark_wm_sink.kafka.ownership"
_TABLES = "pyspark_wm_sink.tables.publish"
_ICEBERG = "pyspark_wm_sink.iceberg.table"
_LEDGER = "pyspark_wm_sink.kafka.ledger:Ledger"
BUGS = (
    Bug("an empty answer ends a range", "keyedwm.kafka.requests.fetch:_Fetcher._part", _done_by_nothing),
    Bug("what was processed is needed again", "pyspark_wm_source.driver.recover_state:Recovery._pass_over", _raised),
    Bug("a recreated topic goes on where the old one ended", "pyspark_wm_source.driver.assignment:Assignment.recreated",
        _constant([])),
    Bug("an open transaction counts as idleness", f"{_PLAN}:BrokerAnswers.uncommitted", _constant(0)),
    Bug("a backlog does not keep a channel from being idle", f"{_PLAN}:_status", _always_active),
    Bug("an idle channel never wakes", f"{_PLAN}:_status", _stays_idle),
    Bug("one stale answer is a deleted partition", "pyspark_wm_source.driver.stale_answers:PAUSES_S", lambda _: ()),
    Bug("the coalesced watermark is too high", "pyspark_wm_source.driver.planner:plan", _result(_higher)),
    Bug("the last record of a range is passed over", "pyspark_wm_source.driver.splits:equal_ranges",
        lambda right: lambda start, end, parts: right(start, max(end - 1, start), parts)),
    Bug("a channel's watermark is above its promise", "keyedwm.arrow.axis:AxisRun.end",
        _result(lambda ms: None if ms is None else ms + 1_500)),
    Bug("aborted records are read", "keyedwm.kafka.requests.fetch:read_records", _aborted_seen),
    Bug("a batch is decided although a transaction has expired", f"{_PUBLISH}:statuses", _open_for_all),
    Bug("a batch that was half committed goes on", f"{_PUBLISH}:_require_committed", _nothing),
    Bug("open transactions of dead tasks stay", f"{_PUBLISH}:sweep", _nothing),
    Bug("what a dead run decided is forgotten", f"{_PUBLISH}:_finish_pending",
        lambda _right: lambda fenced, batch: fenced.ledger.newest(up_to=batch - 1)),
    Bug("nothing is decided before it is committed", f"{_LEDGER}.decide", _nothing),
    Bug("a decision counts as published at once", f"{_LEDGER}.decide", _decided_first),
    Bug("attempts of a task share a transactional id", "pyspark_wm_sink.kafka.stage:_transactional_id", _same_id),
    Bug("a replaced driver goes on", f"{_PUBLISH}:take_ownership", _not_new),
    Bug("a driver that was taken for dead takes the ledger back", f"{_PUBLISH}:take_ownership", _no_claim),
    Bug("a driver that was fenced writes its marker", "pyspark_wm_sink.kafka.marker:commit_as", _unfenced),
    Bug("a ledger that is lost or older is believed", f"{_OWNERSHIP}:_check_marker", _nothing),
    Bug("a write without an answer is taken for written", "keyedwm.kafka.requests.produce:Sender._outcome",
        _next_sequence),
    Bug("nothing is committed", f"{_PUBLISH}:end",
        lambda _right: lambda _cluster, transactions, *, commit: dict.fromkeys(
            transactions, Fate.COMMITTED if commit else Fate.ABORTED)),
    Bug("a task begins no transaction of its own", "pyspark_wm_sink.kafka.stage:add_partitions", _nothing),
    Bug("the files of an append in doubt are deleted", f"{_TABLES}:_Commit._resolve_failed_append", _deleted_in_doubt),
    Bug("an append in doubt counts as done", f"{_TABLES}:_Commit._resolve_failed_append", _nothing),
    Bug("a table that is gone is made anew", f"{_TABLES}:_check_lacks_nothing", _nothing),
    Bug("a batch of a copy counts as this one's", f"{_TABLES}:check_replay", _nothing),
    Bug("no table property holds the record of a batch", f"{_ICEBERG}:_commit", _no_property, "iceberg"),
    Bug("a refused append is made again by itself", f"{_ICEBERG}:_commit", _by_itself, "iceberg"),
    Bug("a commit asks nothing of the table", "pyiceberg.table:Table._do_commit", _without_requirements, "iceberg"),
    Bug("batches are forgotten with their snapshots", f"{_ICEBERG}:IcebergLog.newest", _by_snapshots, "iceberg"),
    Bug("a branch that was rolled back is taken on", f"{_ICEBERG}:IcebergLog._is_restored_behind", _never,
        "iceberg"),
)  # fmt: skip


@contextmanager
def planted(bug: Bug) -> Any:
    """The product with this bug."""
    module, _, names = bug.place.partition(":")
    owner: Any = import_module(module)
    *holders, name = names.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    more: Mapping[str, Any] = (
        {"mark_published": _once_published(owner.mark_published)} if bug.wrong is _decided_first else {}
    )
    with mock.patch.multiple(owner, **{name: bug.wrong(getattr(owner, name)), **more}):
        yield


def falls_at(bug: Bug, first: int, seeds: int, kind: type[World] = World) -> Outcome | None:
    """The first outcome that shows the bug, of a seed that is clean without it; None if no seed does."""
    for seed in range(first, first + seeds):
        with planted(bug):
            outcome = run(seed, target=bug.target, kind=kind)
        if outcome.violation is not None and run(seed, target=bug.target, kind=kind).violation is None:
            return outcome
    return None
