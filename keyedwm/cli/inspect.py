"""`keyedwm inspect PATH`: what the sink has written down, read back from a Kafka ledger or a Delta table.

Rule: it only reads. Snapshots come first, oldest at the top, then where each channel stood at the newest one; whatever
cannot be read is one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from keyedwm.core.errors import InputError, OptionError
from pyspark_wm_sink.ledger import Entry, Ledger
from pyspark_wm_sink.monotone import shown
from pyspark_wm_sink.places import local_directory
from pyspark_wm_sink.record import Record
from pyspark_wm_sink.table import newest_records, open_table

HELP = "print the snapshots, watermarks and offsets that a sink has written down"
_MOST = 10
_WIDE = 160  # columns where there is no terminal to ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, --last and --storage."""
    parser.add_argument("path", metavar="PATH", help="a ledger, a checkpoint that holds one, or a Delta table")
    parser.add_argument("--last", type=int, default=_MOST, metavar="N", help=f"how many batches (default: {_MOST})")
    parser.add_argument(
        "--storage", action="append", default=[], metavar="NAME=VALUE", help="how to reach the table's object store"
    )


def run(args: argparse.Namespace) -> int:
    """Print what is there; raises InputError, FormatError or UnavailableError with one sentence."""
    if args.last < 1:
        raise OptionError(f"--last: {args.last} is wrong, a whole number from 1 up is wanted")
    out = Console()
    if not out.is_terminal:
        out = Console(width=_WIDE)
    ledger = _ledger(args.path)
    if ledger is not None:
        _print_ledger(out, ledger, args.last)
    else:
        _print_table(out, args.path, _storage(args.storage), args.last)
    return 0


def _ledger(path: str) -> Path | None:
    """Find the ledger at a place, or under it where the place is a checkpoint."""
    directory = local_directory(path)
    for place in () if directory is None else (directory, directory / "keyedwm"):
        if place.is_dir() and (next(place.glob("*.decided.json"), None) or next(place.glob("*.published.json"), None)):
            return place
        if (place / "run.json").exists():
            return place
    return None


def _storage(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not separator or not name for name, separator, _ in pairs):
        raise OptionError("--storage: NAME=VALUE is wanted, for example aws_region=eu-west-1")
    return {name: value for name, _, value in pairs}


def _print_ledger(out: Console, place: Path, most: int) -> None:
    ledger = Ledger(place)
    runs, entries = ledger.runs(), ledger.entries(most)
    who = "no run yet" if runs is None else f"query {runs.query}, {len(runs.runs)} runs, the latest {runs.runs[-1]}"
    out.print(f"ledger {place}: {who}", highlight=False)
    _print_records(out, [(_state(entry), entry.record) for entry in entries], "state")


def _state(entry: Entry) -> str:
    """Say what became of a decision: a decided batch is carried out at the query's next start."""
    count = len(entry.transactions) + len(entry.control)
    return f"{'published' if entry.published else 'decided'}, {count} transactions"


def _print_table(out: Console, path: str, storage: Mapping[str, str], most: int) -> None:
    directory = local_directory(path)
    if directory is not None and not directory.exists():
        raise InputError(f"{path} does not exist: a ledger, a checkpoint that holds one, or a Delta table is wanted")
    table = open_table(path, storage) if directory is None or directory.is_dir() else None
    if table is None and directory is not None and (directory / "offsets").is_dir():
        raise InputError(
            f"the checkpoint {path} holds no ledger: give the option ledger of its query, or the Delta table it writes"
        )
    if table is None:
        raise InputError(f"{path} is neither a ledger (or a checkpoint that holds one) nor a Delta table")
    records = newest_records(table, most)
    if not records:
        raise InputError(f"the Delta table {path} holds no record of keyedwm: it was written by somebody else")
    by = ", ".join(table.metadata().partition_columns) or "nothing"
    out.print(f"Delta table {path}: version {table.version()}, partitioned by {by}", highlight=False)
    for query in sorted({record.query or "" for _, record in records}):
        out.print(f"query {query}" if query else "batch writes", highlight=False)
        own = [(str(version), record) for version, record in records if (record.query or "") == query]
        _print_records(out, own, "version")


def _print_records(out: Console, records: Sequence[tuple[str, Record]], where: str) -> None:
    if not records:
        out.print("no batch yet")
        return
    batches = Table("batch", "snapshot", "rows", "let pass", "coalesced watermark", where, title="Snapshots")
    for place, record in records:
        batches.add_row(
            _or_none(record.batch), _or_none(record.snapshot), str(record.rows), str(record.swallowed),
            _watermarks(record.coalesced), place,
        )  # fmt: skip
    out.print(batches)
    newest = records[-1][1]
    if newest.channels:
        out.print(_channels(newest))


def _channels(record: Record) -> Table:
    """Where each channel stood at the end of a batch."""
    named = "a batch write" if record.batch is None else f"batch {record.batch}"
    table = Table("channel", "snapshot", "next offset", "status", "watermark", title=f"Channels after {named}")
    for name, channel in sorted(record.channels.items(), key=lambda item: _in_order(item[0])):
        status = "idle" if channel.idle else "active"
        table.add_row(
            name, _or_none(channel.snapshot), _or_none(channel.offset), status, _watermarks(channel.watermarks)
        )
    return table


def _in_order(channel: str) -> tuple[str, int, str]:
    """Sort t-2 before t-10."""
    topic, _, number = channel.rpartition("-")
    return (topic, int(number), channel) if number.isdigit() else (channel, -1, channel)


def _watermarks(of_key: Mapping[int, int]) -> str:
    """Show one watermark bare, several with their keys."""
    if set(of_key) <= {0}:
        return _joined(shown(ms) for ms in of_key.values())
    return _joined(f"{key}: {shown(ms)}" for key, ms in sorted(of_key.items()))


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
