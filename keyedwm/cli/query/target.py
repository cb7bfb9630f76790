"""The last batch that a query has published: from the ledger of a Kafka target, or from the records in a table.

Rule: it only reads. A table has the records of several queries; the id in the checkpoint selects this query's records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keyedwm.cli.query.picture import Publication
from keyedwm.cli.query.tables import Reach, table_at
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.parsing import parse_json
from keyedwm.last_error import PACKAGE_DIRECTORY
from keyedwm.savepoint_files import Files
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.kafka.ledger import Ledger, entry_name
from pyspark_wm_sink.places.paths import local_directory

_METADATA = "metadata"
_MOST_COMMITS = 64  # of a table that several queries write to: the search for this query's record reads this number


class Target(Protocol):
    """The place where a query publishes."""

    def newest(self) -> Publication | None:
        """Return the last batch, None before the first. Raises InputError, UnavailableError, FormatError."""


@dataclass(frozen=True, slots=True)
class LedgerTarget:
    """A Kafka target, by its ledger."""

    ledger: Ledger
    files: Files

    def newest(self) -> Publication | None:
        """Return the newest entry of the ledger as a publication."""
        entry = self.ledger.newest()
        if entry is None:
            return None
        at_ms = self.files.written_ms(entry_name(entry.batch, published=entry.published))
        return Publication(
            kind="ledger", batch=entry.batch, snapshot=entry.record.snapshot, rows=entry.record.rows,
            is_published=entry.published, at_ms=at_ms, version=None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A table. query: the query whose records count, None for the newest record of any query."""

    path: str
    reach: Reach
    query: str | None

    def newest(self) -> Publication | None:
        """Return the newest record of the query in the table as a publication."""
        table = table_at(self.path, self.reach, _MOST_COMMITS)
        if table is None:  # it was there when the command began
            raise InputError(f"there is no {self.reach.kind} {self.path} any more")
        own = [
            one for one in table.records
            if one.record.batch is not None and self.query in (None, one.record.query)
        ]  # fmt: skip
        if not own:
            return None
        record, batch = own[-1].record, own[-1].record.batch
        return None if batch is None else Publication(
            kind=self.reach.kind, batch=batch, snapshot=record.snapshot, rows=record.rows, is_published=True,
            at_ms=own[-1].at_ms, version=own[-1].version,
        )  # fmt: skip


def target_of(files: Files, target_name: str | None, reach: Reach) -> Target | None:
    """Return the place where a query publishes: the user's, or the ledger in its checkpoint.

    Raises InputError for a place that is neither a ledger nor a table.
    """
    if target_name is None:
        ledger = ledger_of(files)
        return None if ledger is None else LedgerTarget(ledger, files.below(PACKAGE_DIRECTORY))
    if reach.catalog:
        if table_at(target_name, reach, 1) is None:
            raise InputError(f"--target {target_name}: there is no such table in the catalog")
        return TableTarget(target_name, reach, _query_id(files))
    place = Files(target_name)
    directory = local_directory(target_name)
    if not reach.storage and (directory is None or directory.is_dir()):
        names = place.names() or ()
        if any(name.endswith((".decided.json", ".published.json")) or name == "run.json" for name in names):
            return LedgerTarget(Ledger(target_name if directory is None else directory), place)
    if directory is not None and not directory.exists():
        raise InputError(
            f"--target {target_name} does not exist: the Delta table or the ledger of the query is expected, or the "
            "name of an Iceberg table and its --catalog"
        )
    if table_at(target_name, reach, 1) is None:
        raise InputError(f"--target {target_name} is neither a Delta table nor a ledger")
    return TableTarget(target_name, reach, _query_id(files))


def ledger_of(files: Files) -> Ledger | None:
    """Return the ledger in a checkpoint; a query into Kafka has it there, unless the option `ledger` is set."""
    if files.names(PACKAGE_DIRECTORY) is None:
        return None
    place = files.below(PACKAGE_DIRECTORY)
    return Ledger(Path(place.path) if place.is_local else place.place)


def _query_id(files: Files) -> str:
    """Return the id that Spark gave the query of a checkpoint."""
    try:
        return str(parse_json(files.read(_METADATA) or "")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{files.place}/{_METADATA} names no query: it is not as Spark writes it") from error


def in_order(channel: str) -> tuple[str, int, str]:
    """Sort t-2 before t-10."""
    topic, _, number = channel.rpartition("-")
    return (topic, int(number), channel) if number.isascii() and number.isdecimal() else (channel, -1, channel)


def lowest_of_channels(record: Record) -> Mapping[int, int]:
    """Return the lowest watermark (ms) of the active channels for each key that all of them have."""
    active = [channel.watermarks for channel in record.channels.values() if not channel.idle]
    keys = set.intersection(*map(set, active)) if active else set()
    return {key: min(of_key[key] for of_key in active) for key in keys}
