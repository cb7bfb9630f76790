"""The command line of `keyedwm watch`, checked before anything is read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.cli.query import tables
from keyedwm.cli.query.tables import Reach
from keyedwm.config.secrets import pairs_of, refuse_login_in
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.values import check_topics

_EVERY_S = 2.0
_IDLE_TIMEOUT = "idletimeout"
_WATCH_OPTIONS = ("statesecret", _IDLE_TIMEOUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchArguments:
    """The command's arguments. checkpoint: empty for a topic. options: the source's options, empty without a broker."""

    checkpoint: str
    topic: str | None
    options: Mapping[str, str]
    target: str | None
    reach: Reach
    once: bool
    json: bool
    state: bool
    every_s: float

    @property
    def has_idle_timeout(self) -> bool:
        """Whether the user gave an idleTimeout, which replaces the query's own."""
        return any(name.lower() == _IDLE_TIMEOUT for name in self.options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CHECKPOINT or --topic, --bootstrap, --option, --target and what leads to it, --state, --once, --json, --every."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?",
        help="the checkpointLocation of the query, stopped or not: a directory or an address",
    )  # fmt: skip
    parser.add_argument("--topic", metavar="NAME", help="instead of CHECKPOINT: a topic without a query")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="the Kafka that the query reads (default: read the checkpoint only)"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="an option of the query's source: kafka.* for the login, stateSecret, idleTimeout; secrets as "
        "NAME=env:VARIABLE or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument(
        "--target", metavar="PLACE",
        help="the table that the query writes (a Delta table's path, an Iceberg table's name), or its ledger (default: "
        "the ledger in CHECKPOINT)",
    )  # fmt: skip
    tables.add_arguments(parser)
    parser.add_argument("--state", action="store_true", help="also show the state of the operators (starts Spark)")
    parser.add_argument("--once", action="store_true", help="print the view once and end")
    parser.add_argument("--json", action="store_true", help="with --once: print one JSON document")
    parser.add_argument(
        "--every", type=float, default=_EVERY_S, metavar="SECONDS", help=f"time between reads (default: {_EVERY_S:g})"
    )


def given_of(args: argparse.Namespace) -> WatchArguments:
    """Check everything. Raises OptionError."""
    _check_words(args)
    options = pairs_of("--option", args.option, "kafka.security.protocol=SASL_SSL")
    for name in options:
        if not name.lower().startswith("kafka.") and name.lower() not in _WATCH_OPTIONS:
            raise OptionError(f"--option {name}: kafka.* options, stateSecret and idleTimeout are expected")
    if args.bootstrap:
        options["kafka.bootstrap.servers"] = args.bootstrap
    elif options:
        raise OptionError("--option needs --bootstrap: host:port of a broker is expected")
    reach = tables.reach_of(args)
    if reach.is_given and args.target is None:
        which = "--catalog" if reach.catalog else "--storage"
        raise OptionError(f"{which} needs --target: the {reach.kind} that it leads to is expected")
    return WatchArguments(
        checkpoint=args.checkpoint or "", topic=args.topic, options=options, target=args.target, reach=reach,
        once=args.once, json=args.json, state=args.state, every_s=args.every,
    )  # fmt: skip


def _check_words(args: argparse.Namespace) -> None:
    for name, value, right in (
        ("CHECKPOINT", args.checkpoint, "the checkpointLocation of a query"),
        ("--bootstrap", args.bootstrap, "host:port of a broker"),
        ("--target", args.target, "a table or a ledger"),
    ):
        if value is not None and not value.strip():  # a variable of the shell that is not set
            raise OptionError(f"{name} is empty: {right} is expected")
    if (args.checkpoint is None) == (args.topic is None):
        raise OptionError("CHECKPOINT, or --topic NAME in its place, is expected: a query or a topic can be watched")
    if args.topic is not None:
        check_topics("--topic", [args.topic])
        if not args.bootstrap:
            raise OptionError("--topic needs --bootstrap: host:port of a broker is expected")
        if args.state or args.target:
            raise OptionError("--state and --target are of a query: give its CHECKPOINT in the place of --topic")
    if args.json and not args.once:
        raise OptionError("--json needs --once: one picture is one document")
    if not 0 < args.every < float("inf"):
        raise OptionError(f"--every: {args.every:g} is wrong, seconds above 0 are expected")
    for name, address in (("CHECKPOINT", args.checkpoint), ("--target", args.target)):
        refuse_login_in(name, address or "")
