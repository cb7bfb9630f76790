"""`keyedwm inspect PATH`: the records of sink and source, read from a ledger, a table or a checkpoint.

Rule: it only reads. Snapshots come first, oldest at the top, then the position of each channel at the newest snapshot.
A place that cannot be read is one sentence and exit code 2. A checkpoint is read from Spark's offset log alone, so this
works for every sink, and while the query is stopped. Its watermarks are those at the start of the newest planned batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from keyedwm.arrow.instants import instant_text, time_text
from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query import tables
from keyedwm.cli.query.alike import alike, slowest_of, title_of
from keyedwm.cli.query.log import is_checkpoint, newest_planned
from keyedwm.cli.query.tables import Reach
from keyedwm.cli.query.target import in_order, lowest_of_channels
from keyedwm.config.secrets import refuse_login_in
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.text import one_line
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_sink.places.ledger_files import is_address
from pyspark_wm_sink.places.paths import local_directory
from pyspark_wm_source.values.holding import emitted_ms, holders_of, keys_of
from pyspark_wm_source.values.offsets import Channel, QueryOffset


def print_checkpoint(out: Console, files: Files) -> bool:
    """Print the sources of the newest planned batch; False if there is none of keyedwm."""
    newest = newest_planned(files)
    if newest is None:
        out.print(one_line(f"checkpoint {files.place}: no batch was planned yet"), highlight=False, soft_wrap=True)
        return True
    done = "committed" if newest.is_committed else "planned, not committed yet"
    watermarks_ms = {
        number: [planned.watermark_ms(key) for key in keys_of(planned.channels)]
        for number, planned in newest.sources.items()
    }
    for numbers in alike(newest.sources):
        number = slowest_of(numbers, watermarks_ms)
        planned = newest.sources[number]
        if len(newest.sources) > 1:
            title = title_of(numbers, (tp.topic for tp in planned.channels), number)
            out.print(one_line(title), highlight=False, soft_wrap=True)
        line = f"checkpoint {files.place}: batch {newest.number}, {done}; source {number}, group {planned.group}"
        out.print(one_line(line), highlight=False, soft_wrap=True)
        if planned.outage:
            out.print(
                one_line(f"the group's coordinator did not answer: {planned.outage}"), highlight=False, soft_wrap=True
            )
        if not planned.channels:
            out.print("no partition is selected: its topics, or those of its pattern, are not there", highlight=False)
        for key in keys_of(planned.channels):
            out.print(one_line(_summary(planned, key)), highlight=False, soft_wrap=True)
        out.print(_table(planned))
    return bool(newest.sources)


def _summary(planned: QueryOffset, key: int) -> str:
    """Return a line with the coalesced watermark of a key, and the active channels that block it, in order."""
    holders = holders_of(planned.channels, key)
    lowest_ms = emitted_ms(planned.channels[holders[0]], key) if holders else None
    name = f"watermark {key}" if key else "watermark"
    if not holders:
        return f"{name}: {time_text(planned.watermark_ms(key))}, no channel is active"
    one = len(holders) == 1
    has, is_ = ("has", "is") if one else ("have", "are")
    why = f"{has} none" if lowest_ms is None else f"{is_} lowest, at {time_text(lowest_ms)}"
    return f"{name}: {time_text(planned.watermark_ms(key))}, held by {', '.join(map(str, holders))}, which {why}"


def _table(planned: QueryOffset) -> Table:
    has_bad_values = any(channel.counts.bad_values for channel in planned.channels.values())
    table = Table(
        "channel", "next offset", "status", "watermark", "last news", "null event times", "late events",
        *(["bad values"] if has_bad_values else []),
        title=f"Channels at the start of batch {planned.batch} of the source",
    )  # fmt: skip
    for tp, channel in sorted(planned.channels.items()):
        by_reason = "\n".join(f"{Fault(fault).label} {count}" for fault, count in channel.counts.bad_values)
        table.add_row(*_row(tp, channel), *([by_reason or "0"] if has_bad_values else []))
    return table


def _row(tp: TopicPartition, channel: Channel) -> tuple[str, ...]:
    watermarks = [
        f"{key}: {time_text(axis.emitted_ms)}" if len(channel.axes) > 1 else time_text(axis.emitted_ms)
        for key, axis in sorted(channel.axes.items())
    ]
    return (
        one_line(str(tp)), str(channel.start), channel.status.name.lower(), "\n".join(watermarks) or "none",
        time_text(channel.since_ms), str(channel.counts.bad), str(channel.counts.late),
    )  # fmt: skip


_CHECKPOINT_STORES = ("s3://", "s3a://")
HELP = "print the snapshots, watermarks and offsets of a sink or checkpoint"
EXAMPLE = "keyedwm inspect /data/rate --last 3"
PAGE = "docs/reference/sink.md"
_MOST = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, --last, --state, and how to reach a table."""
    parser.add_argument(
        "path", metavar="PATH",
        help="a ledger, a checkpoint, a Delta table's path, or an Iceberg table's name with --catalog",
    )  # fmt: skip
    parser.add_argument(
        "--last", type=int, default=_MOST, metavar="N", help=f"newest batches to print (default: {_MOST})"
    )
    parser.add_argument("--state", action="store_true", help="of a checkpoint: the state of its aggregates, by bucket")
    tables.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what is there; raises InputError, FormatError or UnavailableError with one sentence."""
    if args.last < 1:
        raise OptionError(f"--last: {args.last} is wrong, a whole number from 1 up is expected")
    if not args.path.strip():
        raise OptionError("PATH is empty: a ledger, a checkpoint, or a Delta table is expected")
    refuse_login_in("PATH", args.path)
    reach, out = tables.reach_of(args), PlainConsole.open()
    if reach.catalog:
        _print_table(out, args.path, reach, args.last)
        return 0
    if args.state:
        from keyedwm.cli.inspect_state import print_state  # it starts Spark

        print_state(out, args.path)
        return 0
    _require(args.path)
    ledger = _ledger(args.path)
    if ledger is not None:
        _print_ledger(out, ledger, args.last)
    else:
        _print_place(out, args.path, reach, args.last)
    return 0


def _require(path: str) -> None:
    if local_directory(path) is not None and not Files(path).exists():
        raise InputError(
            f"{path} does not exist: a ledger, a checkpoint that holds one, or a Delta table is expected, "
            f"or the name of an Iceberg table and its --catalog"
        )


def _ledger(path: str) -> Path | None:
    """Find the ledger at a place, or under it if the place is a checkpoint."""
    directory = local_directory(path)
    for place in () if directory is None else (directory, directory / "keyedwm"):
        if place.is_dir() and (next(place.glob("*.decided.json"), None) or next(place.glob("*.published.json"), None)):
            return place
        if (place / "run.json").exists():
            return place
    return None


def _print_ledger(out: Console, place: Path, most: int) -> None:
    ledger = Ledger(place)
    runs, entries = ledger.run_history(), ledger.entries(most)
    who = "no run yet" if runs is None else f"query {runs.query}, {len(runs.runs)} runs, the latest {runs.runs[-1]}"
    out.print(one_line(f"ledger {place}: {who}"), highlight=False, soft_wrap=True)
    _print_records(out, [(_state(entry), entry.record) for entry in entries], "state")


def _state(entry: Entry) -> str:
    """Describe the state of a decision: the query's next start carries out a decided batch."""
    count = len(entry.transactions) + len(entry.control)
    return f"{'published' if entry.published else 'decided'}, {count} transactions"


def _holds_checkpoint(path: str) -> bool:
    """Return whether a path is a checkpoint; False for an unreadable address, whose error reading a table reports."""
    # Without a login the clients of other stores query the machine for one, for minutes.
    if is_address(path) and not path.lower().startswith(_CHECKPOINT_STORES):
        return False
    try:
        return is_checkpoint(Files(path))
    except InputError:
        if not is_address(path):
            raise
        return False


def _print_place(out: Console, path: str, reach: Reach, most: int) -> None:
    directory = local_directory(path)
    # A checkpoint is reached without --storage, and by addresses that deltalake may not know.
    if (directory is not None or (is_address(path) and not reach.is_given)) and _holds_checkpoint(path):
        if print_checkpoint(out, Files(path)):
            return
        raise InputError(
            f"the checkpoint {path} holds no ledger: give the option ledger of its query, or the table that it "
            f"writes; nor has it a source of keyedwm"
        )
    _print_table(out, path, reach, most)


def _print_table(out: Console, path: str, reach: Reach, most: int) -> None:
    table = tables.table_at(path, reach, most)
    if table is None:
        problem = "no table of that catalog" if reach.catalog else (
            "neither a ledger (or a checkpoint that holds one) nor a Delta table"
        )  # fmt: skip
        raise InputError(f"{path} is {problem}")
    tables.require_records(path, reach, table)
    out.print(one_line(f"{reach.kind} {path}: {table.about}"), highlight=False, soft_wrap=True)
    for query in sorted({one.record.query or "" for one in table.records}):
        out.print(one_line(f"query {query}") if query else "batch writes", highlight=False, soft_wrap=True)
        own = [(str(one.version), one.record) for one in table.records if (one.record.query or "") == query]
        _print_records(out, own, "version" if reach.kind == tables.DELTA else "table snapshot")


def _print_records(out: Console, records: Sequence[tuple[str, Record]], where: str) -> None:
    if not records:
        out.print("no batch yet")
        return
    batches = Table("batch", "snapshot", "rows", "regressions ignored", "coalesced watermark", where, title="Snapshots")
    for place, record in records:
        batches.add_row(
            _or_none(record.batch), _or_none(record.snapshot), str(record.rows), str(record.ignored),
            _coalesced(record), place,
        )  # fmt: skip
    out.print(batches)
    newest = records[-1][1]
    if newest.channels:
        out.print(_channels(newest))


def _coalesced(record: Record) -> str:
    """Return the watermarks of a record's rows as text. Rows of an aggregate have none: use its channels' lowest."""
    if record.coalesced:
        return _watermarks(record.coalesced)
    lowest = lowest_of_channels(record)
    return f"{_watermarks(lowest)}, lowest of the channels" if lowest else "none"


def _channels(record: Record) -> Table:
    """Return a table of the channels' states at the end of a batch."""
    batch_text = "a batch write" if record.batch is None else f"batch {record.batch}"
    table = Table("channel", "snapshot", "next offset", "status", "watermark", title=f"Channels after {batch_text}")
    for name, channel in sorted(record.channels.items(), key=lambda item: in_order(item[0])):
        status = "idle" if channel.idle else "active"
        table.add_row(
            one_line(name),
            _or_none(channel.snapshot),
            _or_none(channel.offset),
            status,
            _watermarks(channel.watermarks),
        )
    return table


def _watermarks(of_key: Mapping[int, int]) -> str:
    """Show one watermark without its key, several with their keys."""
    if set(of_key) <= {0}:
        return _joined(instant_text(ms) for ms in of_key.values())
    return _joined(f"{key}: {instant_text(ms)}" for key, ms in sorted(of_key.items()))


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
