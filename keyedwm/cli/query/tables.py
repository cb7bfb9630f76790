"""A table that queries publish to, as commands read it: Delta by place, Iceberg by name and catalog.

Rule: it only reads, and imports only the library of the table's format.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from keyedwm.config.secrets import pairs_of, settings_of
from keyedwm.core.errors import InputError, OptionError
from pyspark_wm_sink.batch.record import Published
from pyspark_wm_sink.options.iceberg_target import CATALOG, IcebergTarget
from pyspark_wm_sink.places.paths import local_directory

DELTA, ICEBERG = "Delta table", "Iceberg table"
_MAIN = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The access to a table: storage for Delta, catalog (PyIceberg's properties) and branch for Iceberg."""

    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str = _MAIN

    @property
    def kind(self) -> str:
        """The rows that the table has."""
        return ICEBERG if self.catalog else DELTA

    @property
    def is_given(self) -> bool:
        """Return whether any option was set: a checkpoint and a ledger need none."""
        return bool(self.storage or self.catalog)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTable:
    """A table. about: its version and partitioning. records: the newest records, oldest first."""

    about: str
    records: Sequence[Published]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --storage, --catalog and --branch."""
    parser.add_argument(
        "--storage", action="append", default=[], metavar="NAME=VALUE",
        help="an option of a Delta table's object store; secrets as NAME=env:VARIABLE or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument(
        "--catalog", action="append", default=[], metavar="NAME=VALUE",
        help="a property of an Iceberg table's catalog (type, uri, ...), as the sink's options catalog.*; secrets as "
        "for --storage. The table is a name such as db.orders",
    )  # fmt: skip
    parser.add_argument("--branch", metavar="NAME", help=f"branch of an Iceberg table (default: {_MAIN})")


def reach_of(args: argparse.Namespace) -> Reach:
    """Check the three options. Raises OptionError."""
    storage = pairs_of("--storage", args.storage, "aws_region=eu-west-1")
    catalog = settings_of("--catalog", args.catalog, "type=rest")
    if storage and catalog:
        raise OptionError("--storage is of a Delta table and --catalog of an Iceberg table: leave one of them out")
    if args.branch is not None and not catalog:
        raise OptionError("--branch is of an Iceberg table: give its --catalog as well, such as --catalog type=rest")
    return Reach(storage=storage, catalog=catalog, branch=_MAIN if args.branch is None else args.branch)


def table_at(place: str, reach: Reach, most: int) -> FoundTable | None:
    """Read a table; None if there is none. Raises OptionError, InputError, UnavailableError."""
    if reach.catalog:
        return _iceberg(place, reach, most)
    directory = local_directory(place)
    if directory is not None and not directory.is_dir():
        return None
    from pyspark_wm_sink.delta.table import DeltaLog, open_table
    from pyspark_wm_sink.tables.log import newest_records

    table = open_table(place, reach.storage)
    if table is None:
        return None
    by = ", ".join(table.metadata().partition_columns) or "nothing"
    about = f"version {table.version()}, partitioned by {by}"
    return FoundTable(about=about, records=newest_records(DeltaLog(table), most))


def _iceberg(name: str, reach: Reach, most: int) -> FoundTable | None:
    target = IcebergTarget.parse(
        {"table": name, "branch": reach.branch, **{f"{CATALOG}{key}": value for key, value in reach.catalog.items()}}
    )
    from pyspark_wm_sink.iceberg.catalog import open_table
    from pyspark_wm_sink.iceberg.partitions import spec_terms
    from pyspark_wm_sink.iceberg.table import IcebergLog
    from pyspark_wm_sink.tables.log import newest_records

    table = open_table(target.name, target.catalog_name, target.catalog)
    if table is None:
        return None
    if target.branch not in table.refs() and target.branch != _MAIN:
        raise OptionError(f"--branch {target.branch}: the Iceberg table {name} has {', '.join(sorted(table.refs()))}")
    by = ", ".join(spec_terms(table.spec(), table.schema())) or "nothing"
    head = table.snapshot_by_name(target.branch)
    about = f"branch {target.branch}, snapshot {'none' if head is None else head.snapshot_id}, partitioned by {by}"
    return FoundTable(about=about, records=newest_records(IcebergLog(table, target.branch), most))


def require_records(place: str, reach: Reach, table: FoundTable) -> None:
    """Raise InputError for a table that no query of ours wrote to."""
    if not table.records:
        raise InputError(
            f"the {reach.kind} {place} holds no record of keyedwm: no batch is published there yet, or another "
            "program wrote it: name a table that a query of keyedwm writes"
        )
