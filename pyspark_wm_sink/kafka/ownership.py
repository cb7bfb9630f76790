"""The right to publish: the query's latest writer has it, if no later decision contradicts its ledger.

Rule: fence first, look second, decide third. The ledger's epoch, which every driver takes when its writer starts, stops
older drivers on one ledger. The fence is a transactional id of the query, which every new run initializes. The fence
stops runs on copies of the ledger: only the run that initialized it last can write the marker. So after a fence the
marker does not change before this run's own decision. A decision is valid only with its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from keyedwm.core.errors import FencedError, InputError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.transactions import IdHolder, Transaction, begin, holder
from pyspark_wm_sink.batch.advice import NO_OTHER, Published, new_checkpoint
from pyspark_wm_sink.kafka.ledger import Entry, Ledger, RunHistory
from pyspark_wm_sink.kafka.marker import FENCE_TIMEOUT_MS, Marker
from pyspark_wm_sink.places.notes import Claim

_MAX_RUNS = 1_000
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class FencedLedger:
    """A query's ledger and marker, and the fence of the run that may write both. is_new: nothing was published before.

    Only `decide` makes a decision: the entry, then its marker, which the brokers accept only with the newest fence.
    """

    cluster: Cluster
    ledger: Ledger
    marker: Marker
    query: str
    fence: Transaction
    is_new: bool = False

    def decide(self, entry: Entry) -> None:
        """Store a decision.

        Raises UnavailableError, or FencedError: a later run fenced this run, so the decision does not hold.
        """
        self.ledger.decide(entry)
        self.write_marker(entry)

    def write_marker(self, entry: Entry) -> None:
        """Write the marker of a decision that stands in the ledger; raises as `decide`."""
        self.marker.write(self.cluster, self.fence, entry)

    def require_fence(self) -> IdHolder:
        """Raise FencedError if another run has fenced this run; else return whether the brokers know its fence."""
        owner_of_fence = holder(self.cluster, self.fence)
        if owner_of_fence is IdHolder.ANOTHER:
            raise FencedError(
                f"another run of query {self.query} writes with another ledger than {self.ledger.directory}: two "
                f"queries run from copies of one checkpoint; continue with one of them, and delete the checkpoint and "
                f"ledger of the other; {NO_OTHER}"
            )
        return owner_of_fence


def take_ownership(
    cluster: Cluster, ledger: Ledger, *, stem: str, query: str, run: str, claim: Claim | None, batch: int | None = None
) -> FencedLedger:
    """Make sure that this run is the latest that writes here.

    A new run fences the run before, also in a driver that was replaced: its query was started again. Raises FencedError
    for a run that was replaced; InputError for a ledger of another query, or a ledger that the marker contradicts.
    batch: the present batch.
    """
    known = ledger.run_history()
    is_new = known is None or run not in known.runs
    if claim is not None and claim.epoch != ledger.epoch() and not (is_new and claim.epoch is None):
        raise FencedError(
            f"a later start of query {query} has taken over the ledger {ledger.directory}: this one is not its owner"
        )
    if known is not None and known.query != query:
        newest = ledger.newest()
        published = None if newest is None else Published.of(newest.record)
        raise InputError(
            f"the ledger {ledger.directory} belongs to query {known.query}, this is query {query}: if the checkpoint "
            f"of that query was lost, restore it, or {new_checkpoint(published, None, 'topic')}, with another ledger; "
            f"if they are two queries, give each a ledger of its own"
        )
    if known is None or is_new:
        if claim is not None and claim.epoch is None:
            ledger.retake_epoch(claim.owner)
        runs = () if known is None else known.runs
        return fence_others(cluster, ledger, stem, query, runs, run, batch=batch)
    if known.runs[-1] != run:
        raise FencedError(f"run {known.runs[-1]} of query {query} has taken over the ledger {ledger.directory}")
    marker = Marker.of(stem, ledger)
    fenced = FencedLedger(cluster=cluster, ledger=ledger, marker=marker, query=query, fence=known.fence)
    if fenced.require_fence() is IdHolder.THIS_PRODUCER:
        return fenced
    # The brokers have dropped the id, since no batch came for transactional.id.expiration.ms.
    return fence_others(cluster, ledger, stem, query, known.runs, batch=batch)


def fence_others(
    cluster: Cluster, ledger: Ledger, stem: str, query: str, known: tuple[str, ...], *new: str, batch: int | None = None
) -> FencedLedger:
    """Fence every other run, also on copies of this ledger; raises InputError as `take_ownership` does.

    known: the runs that have written to this ledger, new: the one that begins.
    """
    fenced = FencedLedger(
        cluster=cluster, ledger=ledger, marker=Marker.of(stem, ledger), query=query,
        fence=begin(cluster, f"{stem}-fence", FENCE_TIMEOUT_MS), is_new=bool(new),
    )  # fmt: skip
    _check_marker(fenced, known, batch)
    ledger.write_run_history(RunHistory(query=query, runs=(*known, *new)[-_MAX_RUNS:], fence=fenced.fence))
    return fenced


def _check_marker(fenced: FencedLedger, runs: Collection[str], batch: int | None) -> None:
    """Reject a ledger that lacks the batch which was decided last, or holds another decision of it.

    runs: the runs that have written to the ledger. If its entries were deleted by hand, as the runbook says, the ledger
    still has its run.json. It is accepted if run.json has the run that decided last, which a copy from before that run
    has not. It is rejected if `batch`, the present batch or None, was already decided: Spark runs a batch again that it
    has not noted, and no other state shows the batch.
    """
    ledger, marker, query = fenced.ledger, fenced.marker, fenced.query
    newest = ledger.newest()
    decided = marker.read(fenced.cluster, None if newest is None else newest.topic)
    if decided is None or (newest is not None and newest.batch > decided.batch):
        return
    way_on = f"{new_checkpoint(decided.published, None, 'topic')}, with another ledger"
    if newest is not None and newest.batch == decided.batch:
        if not decided.checksums or decided.checksums & {newest.checksum, newest.replaces}:
            return
        raise InputError(
            f"the ledger {ledger.directory} holds batch {newest.batch}, but query {query} has decided that batch with "
            f"other transactions, by a copy of this checkpoint: this run would write the batch twice; continue with "
            f"the copy, or {way_on}, or, if duplicate rows are acceptable, delete the consumer group {marker.group}"
        )
    if newest is None and (decided.runs.intersection(runs) or (not decided.runs and runs)):
        if batch is not None and batch <= decided.batch:
            raise InputError(
                f"the ledger {ledger.directory} has no entries any more, and batch {batch}, which query {query} has "
                f"decided (its last one is {decided.batch}), is replayed: this run would write it twice; restore the "
                f"entry of batch {decided.batch}, or {way_on}, or, if duplicate rows are acceptable, delete the "
                f"consumer group {marker.group}"
            )
        _log.warning("the ledger %s has no entries any more: checks start again", ledger.directory)
        return
    state = "is empty" if newest is None else f"ends at batch {newest.batch}"
    raise InputError(
        f"the ledger {ledger.directory} {state}, but query {query} has decided batch {decided.batch}: the ledger was "
        f"lost or replaced by an older copy, as with an older copy of the checkpoint, and this run would write batches "
        f"twice; restore the newest copy, or {way_on}, or, if duplicate rows are acceptable, delete the consumer group "
        f"{marker.group}"
    )
