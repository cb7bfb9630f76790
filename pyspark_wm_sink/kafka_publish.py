"""The driver's commit to Kafka: the one place of decision (DESIGN section 8).

Rule: check, write the decision into the ledger, only then end transactions. From the decision on there is only forward:
whoever finds it commits what it names. A batch that is refused is aborted as a whole; a decided transaction that the
broker has aborted meanwhile is a loud error, unless nothing of its batch became visible and the batch is here again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keyedwm.core.errors import (
    DataLossError,
    FencedError,
    InputError,
    KeyedwmError,
    OutOfTurnError,
    UnavailableError,
)
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.cluster import Cluster, shared
from keyedwm.kafka.transactions import Fate, Transaction, begin, end, lingering, unchanged
from pyspark_wm_sink.inline import write_control
from pyspark_wm_sink.kafka_stage import KafkaPlan, Written
from pyspark_wm_sink.ledger import Entry, Ledger, Runs
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.seal import Brought, check_replay, seal
from pyspark_wm_sink.task import gather

_KNOWN_RUNS = 1_000
_FENCE_TIMEOUT_MS = 60_000
_log = logging.getLogger("keyedwm.sink")


class LostTransactionError(DataLossError):
    """A decided transaction was aborted by the broker, so rows of a decided batch are missing."""

    advice = "follow the runbook in docs/delivery.md: a decided transaction was lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaPublication:
    """How the batches of one query are published; `ledger` None: a batch write, or at-least-once without `inline`.

    inline: control rows go into the topic.
    """

    plan: KafkaPlan
    ledger: Path | None
    mode: SnapshotMode
    guarantee: Guarantee
    inline: bool = False


def publish_to_kafka(how: KafkaPublication, reports: Sequence[Written], *, batch: int | None) -> None:
    """Publish one batch; `batch` None for a batch write.

    Raises InputError, RegressionError, FencedError: nothing of this attempt becomes visible. LostTransactionError: see
    there. UnavailableError before the decision: nothing is decided; after it: the next start carries it out.
    """
    cluster = shared(how.plan.client)
    transactions = tuple(report.transaction for report in reports if report.transaction is not None)
    with _aborted_if_refused(cluster, transactions):
        brought = gather(reports, batch)
    if how.ledger is not None:
        with Ledger(how.ledger).locked():
            (_publish_once if how.plan.transactional else _publish_again)(
                how, cluster, Ledger(how.ledger), brought, transactions
            )
        return
    with _aborted_if_refused(cluster, transactions):
        record = seal(None, brought, how.mode, how.guarantee)
    _demand(end(cluster, transactions, commit=True), f"the batch write to {how.plan.topic or 'Kafka'}")
    _tell_swallowed(brought, record.swallowed)
    if how.plan.transactional:
        sweep(cluster, how.plan.stem_of(None), transactions)


def recover(cluster: Cluster, ledger: Ledger) -> None:
    """Carry out a decision that a dead run left behind, as far as it can be; what cannot is for the commit to judge."""
    ledger.check_place()
    if not ledger.directory.exists():
        return
    with ledger.locked():
        newest = ledger.newest()
        if newest is not None and not newest.published and not _lost(_carry_out(cluster, newest)):
            ledger.mark_published(newest)


@contextmanager
def _aborted_if_refused(cluster: Cluster, transactions: Sequence[Transaction]) -> Iterator[None]:
    """Abort this attempt when a check refuses it; only for what happens before the decision."""
    try:
        yield
    except UnavailableError:
        raise  # the same commit may be tried again
    except KeyedwmError:
        abort(cluster, transactions)
        raise


def _publish_once(
    how: KafkaPublication, cluster: Cluster, ledger: Ledger, brought: Brought, transactions: tuple[Transaction, ...]
) -> None:
    """Under the ledger's lock: finish what is decided, then decide and publish this batch, unless it is published."""
    if brought.query is None or brought.run is None or brought.batch is None:
        raise OutOfTurnError("the tasks of a stream name no query, run or batch: the ledger cannot tell who writes")
    entry = None
    with _aborted_if_refused(cluster, transactions):
        _enter(how, cluster, ledger, brought.query, brought.run)
        last = _finished(cluster, ledger, brought.batch)
        if last is not None and last.batch >= brought.batch:
            _leave_published(cluster, ledger, brought, transactions)
        else:
            record = seal(None if last is None else last.record, brought, how.mode, how.guarantee)
            control = write_control(how.plan, cluster, brought, record) if how.inline else ()
            entry = Entry(batch=brought.batch, record=record, transactions=transactions, control=control)
    if entry is not None:
        ledger.decide(entry)
        _demand(_carry_out(cluster, entry), f"batch {brought.batch} of the ledger {ledger.directory}")
        last = ledger.mark_published(entry)
        _tell_swallowed(brought, entry.record.swallowed)
    sweep(cluster, how.plan.stem_of(brought.query), () if last is None else (*last.transactions, *last.control))


def _publish_again(
    how: KafkaPublication, cluster: Cluster, ledger: Ledger, brought: Brought, transactions: tuple[Transaction, ...]
) -> None:
    """At-least-once with control rows: the ledger only remembers where each channel stood before this batch."""
    if brought.batch is None:
        raise OutOfTurnError("the tasks of a stream name no batch: the ledger cannot tell which comes before it")
    last = ledger.newest(up_to=brought.batch - 1)
    record = seal(None if last is None else last.record, brought, how.mode, how.guarantee)
    write_control(how.plan, cluster, brought, record)
    entry = Entry(batch=brought.batch, record=record, transactions=transactions)
    ledger.decide(entry)
    ledger.mark_published(entry)
    _tell_swallowed(brought, record.swallowed)


def _carry_out(cluster: Cluster, entry: Entry) -> dict[Transaction, Fate]:
    """Commit what an entry names; control rows only when all that they speak of is committed."""
    fates = end(cluster, entry.transactions, commit=True)
    if _lost(fates):
        abort(cluster, entry.control)
        return fates
    return {**fates, **end(cluster, entry.control, commit=True)} if entry.control else fates


def _enter(how: KafkaPublication, cluster: Cluster, ledger: Ledger, query: str, run: str) -> None:
    """Make sure that this run is the latest that writes here, taking over from the one before when it is new.

    The fence is a transactional id of the query that every new run makes its own: it tells copies of a ledger apart.
    """
    known = ledger.runs()
    if known is not None and known.query != query:
        raise InputError(
            f"the ledger {ledger.directory} belongs to query {known.query}, this is query {query}: "
            f"give each query a ledger of its own"
        )
    if known is None or run not in known.runs:
        before = () if known is None else known.runs
        fence = begin(cluster, f"{how.plan.stem_of(query)}-fence", _FENCE_TIMEOUT_MS)
        ledger.write_runs(Runs(query=query, runs=(*before, run)[-_KNOWN_RUNS:], fence=fence))
    elif known.runs[-1] != run:
        raise FencedError(f"run {known.runs[-1]} of query {query} has taken over the ledger {ledger.directory}")
    elif not unchanged(cluster, known.fence):
        raise FencedError(
            f"another run of query {query} writes with another ledger than {ledger.directory}: two queries run from "
            f"copies of one checkpoint; give one of them a checkpoint of its own"
        )


def _finished(cluster: Cluster, ledger: Ledger, batch: int) -> Entry | None:
    """Carry out the newest decision, then return the newest published entry."""
    newest = ledger.newest()
    if newest is None or newest.published:
        return newest
    fates = _carry_out(cluster, newest)
    if not _lost(fates):
        return ledger.mark_published(newest)
    if newest.batch == batch and set(fates.values()) == {Fate.ABORTED}:
        # Nothing of it is visible and its rows are here again: publishing them now loses and doubles nothing.
        _log.warning("batch %d was decided, but the broker had aborted all of it: this attempt takes its place", batch)
        return ledger.newest(up_to=newest.batch - 1)
    _demand(fates, f"batch {newest.batch} of the ledger {ledger.directory}")
    return newest


def _leave_published(cluster: Cluster, ledger: Ledger, brought: Brought, transactions: tuple[Transaction, ...]) -> None:
    """The batch is published already: hold it against its record, and drop this attempt."""
    there = ledger.newest(up_to=brought.batch)
    if there is None or there.batch != brought.batch:
        _log.warning("batch %s is published, but its entry is no longer in the ledger", brought.batch)
    else:
        check_replay(there.record, brought, f"the ledger {ledger.directory}")
    published = () if there is None else there.transactions
    end(cluster, [transaction for transaction in transactions if transaction not in published], commit=False)


def _demand(fates: Mapping[Transaction, Fate], what: str) -> None:
    """Raise LostTransactionError unless every transaction is committed."""
    lost = _lost(fates)
    if lost:
        raise LostTransactionError(
            f"{what}: {len(lost)} of {len(fates)} transactions were not committed before the broker ended them, "
            f"{lost[0].transactional_id} is {fates[lost[0]].value}; transactionTimeout must be longer than a batch "
            f"and a restart together"
        )


def _lost(fates: Mapping[Transaction, Fate]) -> list[Transaction]:
    return [transaction for transaction, fate in fates.items() if fate is not Fate.COMMITTED]


def sweep(cluster: Cluster, stem: str, kept: Sequence[Transaction]) -> None:
    """Abort whatever else this query has open after a publication: failed attempts, losers of a race, dead runs."""
    try:
        found = lingering(cluster, f"{stem}-")
    except KeyedwmError as error:
        _log.warning("open transactions of %s could not be listed, they wait for their time-out: %s", stem, error)
        return
    abort(cluster, [transaction for transaction in found if transaction not in kept])


def abort(cluster: Cluster, transactions: Sequence[Transaction]) -> None:
    """Abort, as a courtesy to waiting readers: the broker does it anyway when the time is up."""
    try:
        end(cluster, transactions, commit=False)
    except KeyedwmError as error:
        _log.warning("%d transactions could not be aborted and wait for their time-out: %s", len(transactions), error)


def _tell_swallowed(brought: Brought, swallowed: int) -> None:
    if swallowed:
        _log.warning("batch %s: %d watermark rows that did not increase were let pass", brought.batch, swallowed)
