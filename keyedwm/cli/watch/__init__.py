"""`keyedwm watch CHECKPOINT`: where a query stands, who holds its watermark and why, once or again and again.

Rule: it reads the query's checkpoint, its consumer group and its topics, never the query; nothing is committed. What
cannot be read at the start is one sentence and exit code 2; a broker that goes away later is shown in the view.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace

from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.log import newest_planned
from keyedwm.cli.query.picture import Picture, as_json
from keyedwm.cli.query.reader import QueryReader
from keyedwm.cli.watch.live import show_live
from keyedwm.cli.watch.table import layout
from keyedwm.config.secrets import pairs_of, refuse_login_in
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.savepoint_files import Files
from pyspark_wm_source.options.source_options import SourceOptions

HELP = "watch a query: its partitions, its watermark, who holds it and why"
_EVERY_S = 2.0
_LIMIT_MS = 5_000
_FETCH_BYTES = 64 << 10  # a picture reads single records only, for their times
_OURS = ("statesecret", "idletimeout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CHECKPOINT, --bootstrap, --option, --once, --json and --every."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpointLocation of the query, stopped or not")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="the Kafka that it reads (default: only the checkpoint is looked at)"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="an option of its source: kafka.* for the login, stateSecret, idleTimeout; secrets as NAME=env:VARIABLE "
        "or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    parser.add_argument("--json", action="store_true", help="with --once: as one JSON document")
    parser.add_argument(
        "--every", type=float, default=_EVERY_S, metavar="SECONDS", help=f"how often it looks (default: {_EVERY_S:g})"
    )


def run(args: argparse.Namespace) -> int:
    """Print a picture, or show them until `q`; raises InputError, OptionError or UnavailableError with one sentence."""
    files, options = _checked(args)
    out = PlainConsole.open()
    if not args.once and not out.is_terminal:
        raise OptionError("the output is no terminal: give --once to print one picture, or --once --json")
    with _reader(files, options) as reader:
        first = reader.picture(_now_ms())
        if args.json:
            print(json.dumps(as_json(first)))
        elif args.once:
            out.print(layout(first, width=out.width))
        else:
            show_live(out, first, lambda: _look(reader), args.every)
    return 0


def _checked(args: argparse.Namespace) -> tuple[Files, Mapping[str, str]]:
    for name, value, right in (
        ("CHECKPOINT", args.checkpoint, "the checkpointLocation of a query"),
        ("--bootstrap", args.bootstrap, "host:port of a broker"),
    ):
        if value is not None and not value.strip():  # a variable of the shell that is not set
            raise OptionError(f"{name} is empty: {right} is expected")
    if args.json and not args.once:
        raise OptionError("--json needs --once: one picture is one document")
    if not 0 < args.every < float("inf"):
        raise OptionError(f"--every: {args.every:g} is wrong, seconds above 0 are expected")
    refuse_login_in("CHECKPOINT", args.checkpoint)
    options = pairs_of("--option", args.option, "kafka.security.protocol=SASL_SSL")
    for name in options:
        if not name.lower().startswith("kafka.") and name.lower() not in _OURS:
            raise OptionError(f"--option {name}: kafka.* options, stateSecret and idleTimeout are expected")
    if args.bootstrap:
        options["kafka.bootstrap.servers"] = args.bootstrap
    elif options:
        raise OptionError("--option needs --bootstrap: host:port of a broker is expected")
    return Files(args.checkpoint), options


@contextmanager
def _reader(files: Files, options: Mapping[str, str]) -> Iterator[QueryReader]:
    """Connect, if there are options; the topics are those of the checkpoint."""
    newest = newest_planned(files) if options else None
    topics = sorted({tp.topic for one in newest.sources.values() for tp in one.channels}) if newest else []
    if not topics:
        yield QueryReader(files)  # it says what the checkpoint lacks
        return
    parsed = SourceOptions.parse({"subscribe": ",".join(topics), **options})
    config = replace(
        parsed.client, api_timeout_ms=min(_LIMIT_MS, parsed.client.api_timeout_ms), fetch_bytes=_FETCH_BYTES,
        partition_fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    with closing(Cluster.connect(config, _LIMIT_MS)) as cluster:
        yield QueryReader(files, cluster, parsed)


def _look(reader: QueryReader) -> Picture:
    """Take a picture; without log ends while the broker is away."""
    try:
        return reader.picture(_now_ms())
    except UnavailableError as error:
        return reader.picture_without_broker(_now_ms(), error.message)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
