"""The driver's commit to Kafka: the only place that decides what becomes visible.

Rule: check, write the decision into the ledger, then its marker into the cluster, only then end transactions. The
marker makes the decision hold, since a run that was fenced cannot write it. A decision is never revoked: a run that
finds it completes it. A run that was fenced changes nothing more: the later run aborts the rest. A rejected batch is
aborted as a whole. A decided transaction that the broker has aborted meanwhile is an error. It is no error if no
transaction of its batch was committed and Spark runs the batch again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from keyedwm.core.errors import (
    DataLossError,
    FencedError,
    FormatError,
    InputError,
    KeyedwmError,
    OutOfTurnError,
    UnavailableError,
)
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.kafka.requests.transactions import Fate, Transaction, end, lingering, statuses
from pyspark_wm_sink.batch.advice import Published, begin_behind
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.batch.reports import BatchReport, merge_reports
from pyspark_wm_sink.batch.seal import check_replay, seal
from pyspark_wm_sink.kafka.control_records import write_control
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_sink.kafka.marker import Marker
from pyspark_wm_sink.kafka.other_queries import check_topic_reads_nothing_again
from pyspark_wm_sink.kafka.ownership import FencedLedger, fence_others, take_ownership
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, StagedRecords
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.places.notes import Claim

_SWEEP_EVERY, _SWEEP_GAPS_EVERY = 20, 5  # batches
_WARN_AT_SHARE = 0.5  # of transactionTimeout, which runs from a task's first row
_log = logging.getLogger("keyedwm.sink")


class LostTransactionError(DataLossError):
    """A decided transaction was aborted by the broker, so rows of a decided batch are missing."""

    advice = "follow the runbook in docs/how-to/runbook.md: a decided transaction was lost"


class ExpiredTransactionError(UnavailableError):
    """The broker ended a transaction before the decision; all others of its batch were aborted."""

    advice = "start the query again: nothing was lost, the batch will be written again"


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaPublication:
    """How the batches of one query are published; `ledger` None: a batch write, or at-least-once without `inline`.

    inline: control rows are written to the topic, with codes if there is a `secret`. claim: the claim on the ledger
    when the writer was started, None if unknown. is_shared: other queries write rows of the same input to the topic.
    """

    plan: KafkaStagePlan
    ledger: Path | str | None
    mode: SnapshotMode
    guarantee: Guarantee
    inline: bool = False
    secret: bytes | None = field(default=None, repr=False)
    claim: Claim | None = None
    is_shared: bool = False


def publish_to_kafka(
    how: KafkaPublication, reports: Sequence[StagedRecords], *, batch: int | None, plan: BatchPlan | None = None
) -> None:
    """Publish one batch; `batch` None for a batch write. plan: the plan of its sources, None if unknown.

    Raises InputError, RegressionError: nothing of this attempt becomes visible. FencedError: this run makes no row
    visible. LostTransactionError: rows of a decided batch are missing. UnavailableError before the decision: nothing is
    decided; after it: the next start carries it out.
    """
    cluster = shared(how.plan.client)
    transactions = _transactions(reports)
    with _abort_on_refusal(cluster, transactions):
        report = replace(merge_reports(reports, batch), plan=plan)
    if how.ledger is not None:
        ledger = Ledger(how.ledger)
        with ledger.locked():
            publication = _publish_exactly_once if how.plan.transactional else _publish_at_least_once
            publication(how, cluster, ledger, report, reports)
        return
    with _abort_on_refusal(cluster, transactions):
        record = seal(None, report, how.mode, how.guarantee)
        _require_open(cluster, transactions, "the batch write")
    _require_committed(end(cluster, transactions, commit=True), f"the batch write to {how.plan.topic or 'Kafka'}")
    _log_regressions(report, record.ignored)
    if how.plan.transactional:
        sweep(cluster, how.plan.stem_of(None), transactions)


def recover(cluster: Cluster, ledger: Ledger, *, owner: str | None = None, prefix: str | None = None) -> Claim | None:
    """Start a writer: make this driver the owner of the ledger, and commit the decision that a dead run left behind.

    owner: identifies the driver; a new driver stops earlier drivers, and aborts the transactions that they left open.
    prefix: the option transactionalIdPrefix. Returns the driver's claim, None without an owner. If a decided
    transaction is gone, the batch's own commit handles it. A driver that was replaced by a later driver changes
    nothing: only a batch that names its run shows whether this is its old query or a new start.
    """
    ledger.files.check_writable()
    if owner is None and not ledger.files.exists():
        return None
    with ledger.locked():
        claim = None if owner is None else ledger.take_epoch(owner)
        known, newest = ledger.run_history(), ledger.newest()
        if known is None or (claim is not None and claim.epoch is None):
            return claim
        is_new = claim is not None and claim.is_new
        stem = "-".join(part for part in (prefix, known.query) if part)
        if is_new:  # before anything is committed or aborted: a run on a copy may be in the middle of its commit
            fenced = fence_others(cluster, ledger, stem, known.query, known.runs)
        else:
            marker = Marker.of(stem, ledger)
            fenced = FencedLedger(cluster=cluster, ledger=ledger, marker=marker, query=known.query, fence=known.fence)
        if newest is not None and not newest.published:
            try:
                fates = _resume_entry(fenced, newest)
            except FencedError:
                return claim  # the commit of the next batch reports it, unless it is the first of a new run
            if not _not_committed(fates):
                newest = ledger.mark_published(newest)
        if is_new:
            sweep(cluster, stem, () if newest is None else (*newest.transactions, *newest.control))
    return claim


@contextmanager
def _abort_on_refusal(
    cluster: Cluster, transactions: Sequence[Transaction], ledger: Ledger | None = None
) -> Iterator[None]:
    """If a check rejects this attempt, abort its transactions, except those that an earlier call has decided."""
    try:
        yield
    except KeyedwmError as error:
        if isinstance(error, UnavailableError) and not isinstance(error, ExpiredTransactionError):
            raise  # the same commit may be tried again
        newest = None if ledger is None or isinstance(error, FormatError) else ledger.newest()
        abort(cluster, [one for one in transactions if newest is None or one not in newest.transactions])
        raise


def _publish_exactly_once(
    how: KafkaPublication, cluster: Cluster, ledger: Ledger, report: BatchReport, tasks: Sequence[StagedRecords]
) -> None:
    """Under the ledger's lock, commit earlier decisions; then decide and publish this batch, unless it is published."""
    if report.query is None or report.run is None or report.batch is None:
        raise OutOfTurnError("the tasks of a stream name no query, run or batch: the ledger does not know who writes")
    transactions, entry = _transactions(tasks), None
    with _abort_on_refusal(cluster, transactions, ledger):
        stem = how.plan.stem_of(report.query)
        fenced = take_ownership(
            cluster, ledger, stem=stem, query=report.query, run=report.run, claim=how.claim, batch=report.batch
        )
        last = _finish_pending(fenced, report.batch)
        if last is not None and last.batch >= report.batch:
            _check_published(cluster, ledger, report, transactions, how.guarantee)
        else:
            record = seal(None if last is None else last.record, report, how.mode, how.guarantee)
            _check_follows(ledger, last, report.batch)
            if last is None and report.batch == 0 and not how.is_shared:
                check_topic_reads_nothing_again(cluster, fenced.marker, report, _topics(how, tasks))
            control = write_control(how.plan, cluster, report, record, how.secret) if how.inline else ()
            entry = Entry(
                batch=report.batch, record=record, transactions=transactions, control=control,
                topic=how.plan.topic or _first_topic(tasks), replaces=_replaced(ledger, report.batch),
            )  # fmt: skip
            try:
                _require_open(cluster, (*transactions, *control), f"batch {report.batch}")
            except ExpiredTransactionError:
                fenced.require_fence()  # a later run may have aborted them
                raise
    if entry is not None:
        fenced.decide(entry)
        _require_committed(_commit_entry(cluster, entry), f"batch {report.batch} of the ledger {ledger.directory}")
        last = ledger.mark_published(entry)
        _log_regressions(report, entry.record.ignored)
    # A task aborts its transaction when it fails; what a killed one left is looked for where one may have been killed.
    every = _SWEEP_GAPS_EVERY if report.has_gaps else _SWEEP_EVERY
    if fenced.is_new or report.is_retried or report.batch % every == 0:
        sweep(cluster, stem, () if last is None else (*last.transactions, *last.control))


def _publish_at_least_once(
    how: KafkaPublication, cluster: Cluster, ledger: Ledger, report: BatchReport, tasks: Sequence[StagedRecords]
) -> None:
    """Publish at-least-once with control rows: the ledger only stores each channel's position before this batch."""
    if report.batch is None:
        raise OutOfTurnError("the tasks of a stream name no batch: the ledger does not know which one is before it")
    last = ledger.newest(up_to=report.batch - 1)
    record = seal(None if last is None else last.record, report, how.mode, how.guarantee)
    write_control(how.plan, cluster, report, record, how.secret)
    entry = Entry(batch=report.batch, record=record, transactions=_transactions(tasks))
    ledger.decide(entry)
    ledger.mark_published(entry)
    _log_regressions(report, record.ignored)


def _commit_entry(cluster: Cluster, entry: Entry) -> dict[Transaction, Fate]:
    """Commit an entry's transactions; the control rows only after all rows that they refer to."""
    fates = end(cluster, entry.transactions, commit=True)
    if _not_committed(fates):
        abort(cluster, entry.control)
    elif entry.control and (not_committed := _not_committed(end(cluster, entry.control, commit=True))):
        # Every row is visible, and the next batch's barrier repeats the state of every channel.
        _log.warning(
            "batch %d: the control rows were lost, since the broker had ended their transaction %s; the next batch's "
            "barrier replaces them", entry.batch, not_committed[0].transactional_id,
        )  # fmt: skip
    return fates


def _resume_entry(fenced: FencedLedger, entry: Entry) -> dict[Transaction, Fate]:
    """Commit an entry that an earlier commit decided.

    If the broker aborted a transaction of it and committed none yet, abort the rest: then nothing is visible, and the
    batch can be written again.
    """
    cluster = fenced.cluster
    fenced.write_marker(entry)  # that commit may have ended between the two halves of its decision
    fates = {transaction: status.fate for transaction, status in statuses(cluster, entry.transactions).items()}
    if Fate.ABORTED in fates.values() and set(fates.values()) <= {Fate.ABORTED, Fate.OPEN}:
        abort(cluster, entry.control)
        return end(cluster, entry.transactions, commit=False)
    return _commit_entry(cluster, entry)


def _require_open(cluster: Cluster, transactions: Sequence[Transaction], subject: str) -> None:
    """Reject a batch of which the broker has ended a transaction; warn if half of the time-out has passed.

    Raises ExpiredTransactionError. Ages are measured by this machine's clock, so they only warn.
    """
    status_of = statuses(cluster, transactions)
    not_open = [transaction for transaction in transactions if status_of[transaction].fate is not Fate.OPEN]
    if not_open:
        raise ExpiredTransactionError(
            f"{subject} was not published: {len(not_open)} of {len(transactions)} transactions were ended by the "
            f"broker before the decision, {not_open[0].transactional_id} is {status_of[not_open[0]].fate.value}; all "
            f"were aborted: transactionTimeout must be longer than writing and committing a batch take together"
        )
    now_ms = time.time_ns() // 1_000_000
    shares = [(now_ms - of.started_ms) / of.timeout_ms for of in status_of.values() if of.started_ms and of.timeout_ms]
    if max(shares, default=0.0) > _WARN_AT_SHARE:
        _log.warning(
            "%s: a transaction has been open for %.0f %% of transactionTimeout: raise it, or use smaller batches",
            subject, 100 * max(shares),
        )  # fmt: skip


def _check_follows(ledger: Ledger, last: Entry | None, batch: int) -> None:
    """Reject a ledger that lacks batches before this one."""
    if last is not None and last.batch < batch - 1:
        raise InputError(
            f"the newest batch in the ledger {ledger.directory} is {last.batch}, and now comes batch {batch}: the "
            f"ledger was replaced by an older copy, or other batches were written at-least-once (see the runbook in "
            f"docs/how-to/runbook.md)"
        )


def _transactions(tasks: Sequence[StagedRecords]) -> tuple[Transaction, ...]:
    return tuple(of_task.transaction for of_task in tasks if of_task.transaction is not None)


def _topics(how: KafkaPublication, tasks: Sequence[StagedRecords]) -> set[str]:
    """The topics of the results."""
    if how.plan.topic is not None:
        return {how.plan.topic}
    return {topic for of_task in tasks for topic in of_task.topics} - {how.plan.errors_to or ""}


def _first_topic(tasks: Sequence[StagedRecords]) -> str | None:
    return min((topic for of_task in tasks for topic in of_task.topics), default=None)


def _replaced(ledger: Ledger, batch: int) -> str | None:
    """Return the checksum of this batch's decision in the ledger, if the brokers have aborted all of it."""
    newest = ledger.newest()
    return newest.checksum if newest is not None and newest.batch == batch else None


def _finish_pending(fenced: FencedLedger, batch: int) -> Entry | None:
    """Commit the newest decision, then return the newest published entry."""
    ledger = fenced.ledger
    newest = ledger.newest()
    if newest is None or newest.published:
        return newest
    fates = _resume_entry(fenced, newest)
    if not _not_committed(fates):
        return ledger.mark_published(newest)
    if newest.batch == batch and set(fates.values()) == {Fate.ABORTED}:
        # None of its rows is visible and Spark has staged them again: to publish them now loses and duplicates nothing.
        _log.warning("batch %d was decided, but the broker had aborted all of it: this attempt replaces it", batch)
        return ledger.newest(up_to=newest.batch - 1)
    _require_committed(fates, f"batch {newest.batch} of the ledger {ledger.directory}")
    return newest


def _check_published(
    cluster: Cluster,
    ledger: Ledger,
    report: BatchReport,
    transactions: tuple[Transaction, ...],
    guarantee: Guarantee,
) -> None:
    """The batch is published already: compare it with its record, and abort this attempt."""
    there = ledger.newest(up_to=report.batch)
    if there is None or there.batch != report.batch:
        _log.warning("batch %s is published, but its entry is no longer in the ledger", report.batch)
    else:
        newest, plan = ledger.newest(), report.plan
        published = None if newest is None else Published.of(newest.record)
        check_replay(
            there.record, report, f"the ledger {ledger.directory}", guarantee,
            lambda: begin_behind(published, plan, "topic"),
        )  # fmt: skip
    entry_transactions = () if there is None else there.transactions
    end(cluster, [transaction for transaction in transactions if transaction not in entry_transactions], commit=False)


def _require_committed(fates: Mapping[Transaction, Fate], subject: str) -> None:
    """Raise LostTransactionError unless every transaction is committed."""
    not_committed = _not_committed(fates)
    if not_committed:
        raise LostTransactionError(
            f"{subject}: {len(not_committed)} of {len(fates)} transactions were not committed before the broker ended "
            f"them, {not_committed[0].transactional_id} is {fates[not_committed[0]].value}; transactionTimeout must be "
            f"longer than a batch and a restart together"
        )


def _not_committed(fates: Mapping[Transaction, Fate]) -> list[Transaction]:
    return [transaction for transaction, fate in fates.items() if fate is not Fate.COMMITTED]


def sweep(cluster: Cluster, stem: str, exceptions: Sequence[Transaction]) -> None:
    """Abort this query's other open transactions after a publication: failed and speculative attempts, dead runs."""
    try:
        transactions = lingering(cluster, f"{stem}-")
    except KeyedwmError as error:
        _log.warning("open transactions of %s could not be listed, they stay open until they time out: %s", stem, error)
        return
    abort(cluster, [transaction for transaction in transactions if transaction not in exceptions])


def abort(cluster: Cluster, transactions: Sequence[Transaction]) -> None:
    """Abort, so that read_committed readers need not wait until the broker times the transactions out."""
    try:
        end(cluster, transactions, commit=False)
    except KeyedwmError as error:
        _log.warning(
            "%d transactions could not be aborted and stay open until they time out: %s", len(transactions), error
        )


def _log_regressions(report: BatchReport, ignored: int) -> None:
    if ignored:
        _log.warning("batch %s: %d watermark regressions ignored (at-least-once)", report.batch, ignored)
