"""The ledger: the transactions of each batch that are to be committed, stored durably before the first is committed.

Rule: an entry that can be read is a decision, and its reader completes it: its marker, then its transactions.
Files carry a version and a checksum, and change only under the ledger's lock. Format version 1:

    BATCH.decided.json     the decision; renamed to
    BATCH.published.json   when every transaction is committed
    epoch.json             the drivers that have started a writer here; their number is the epoch
    run.json               the query, the runs that have written here, and the latest run's fencing transaction
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.places.notes import LedgerDirectory, checksum

MOST_ENTRIES = 100  # published entries kept for inspection; only the newest is needed
_NAME = re.compile(r"(\d+)\.(decided|published)\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One batch's decision; `control`: the transaction of its control rows, committed after the others.

    topic: a topic that the batch wrote to, which has its marker; None if it wrote nothing. replaces: the checksum of an
    earlier decision of this batch, of which the brokers have aborted every transaction.
    """

    batch: int
    record: Record
    transactions: tuple[Transaction, ...]
    control: tuple[Transaction, ...] = ()
    published: bool = False
    topic: str | None = None
    replaces: str | None = None

    @property
    def checksum(self) -> str:
        """A checksum of the transactions that it commits: it differs between decisions, even of one batch."""
        parts = [self.batch, self.record.attempt, self.transactions, self.control]
        return checksum(json.dumps(parts, separators=(",", ":")))[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunHistory:
    """The writers of a ledger: the query, its runs, the latest last, and the fencing transaction of the latest."""

    query: str
    runs: tuple[str, ...]
    fence: Transaction


@dataclass(frozen=True, slots=True)
class Ledger(LedgerDirectory):
    """Decisions in a directory of this machine, or at an address; created when the first one is written."""

    def newest(self, up_to: int | None = None) -> Entry | None:
        """Return the newest entry, or the newest entry of batch `up_to` or before."""
        batches = [batch for batch in self._batches() if up_to is None or batch <= up_to]
        return self._entry(max(batches)) if batches else None

    def entries(self, most: int) -> list[Entry]:
        """Return the newest entries, at most `most`, oldest first."""
        return [self._entry(batch) for batch in sorted(self._batches())[-most:]]

    def decide(self, entry: Entry) -> None:
        """Write a decision durably; raises UnavailableError if that fails, and then nothing is decided."""
        value = {
            "batch": entry.batch,
            "record": entry.record.to_json(),
            "transactions": [list(transaction) for transaction in entry.transactions],
            "control": [list(transaction) for transaction in entry.control],
            **({} if entry.topic is None else {"topic": entry.topic}),
            **({} if entry.replaces is None else {"replaces": entry.replaces}),
        }
        self.write_note(entry_name(entry.batch, published=False), value)

    def mark_published(self, entry: Entry) -> Entry:
        """Record that all transactions of an entry are committed, and delete entries that are no longer needed."""
        self.files.rename(entry_name(entry.batch, published=False), entry_name(entry.batch, published=True))
        self.delete_old(MOST_ENTRIES)
        return replace(entry, published=True)

    def delete_old(self, most: int) -> None:
        """Delete all entries but the newest `most`."""
        for batch in sorted(self._batches())[:-most]:
            for published in (True, False):  # both, if a rename at an address was broken off
                self.files.delete(entry_name(batch, published=published))

    def run_history(self) -> RunHistory | None:
        """Return the runs that have written here; None in a new ledger."""
        value = self.read_note("run.json")
        if value is None:
            return None
        return self.parsed(
            "run.json",
            lambda: RunHistory(query=value["query"], runs=tuple(value["runs"]), fence=_transaction(value["fence"])),
        )

    def write_run_history(self, runs: RunHistory) -> None:
        """Store the run that writes here from now on."""
        self.write_note("run.json", {"query": runs.query, "runs": list(runs.runs), "fence": list(runs.fence)})

    def _batches(self) -> dict[int, bool]:
        """Return every batch with an entry, and whether it is published; during a rename both files exist."""
        matches = [match for name in self.files.names() if (match := _NAME.fullmatch(name))]
        return {int(match[1]): match[2] == "published" for match in matches}

    def _entry(self, batch: int) -> Entry:
        published = self._batches()[batch]
        name = entry_name(batch, published=published)
        value = self.read_note(name)
        return self.parsed(
            name,
            lambda: Entry(
                batch=value["batch"],
                record=Record.from_json(value["record"]),
                transactions=tuple(_transaction(part) for part in value["transactions"]),
                control=tuple(_transaction(part) for part in value.get("control", ())),
                published=published,
                topic=value.get("topic"),
                replaces=value.get("replaces"),
            ),
        )


def entry_name(batch: int, *, published: bool) -> str:
    """Return the file of a batch's entry."""
    return f"{batch:012d}.{'published' if published else 'decided'}.json"


def _transaction(value: Any) -> Transaction:
    name, producer_id, epoch = value
    return Transaction(str(name), int(producer_id), int(epoch))
