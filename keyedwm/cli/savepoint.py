"""`keyedwm savepoint CHECKPOINT TARGET`: the state of a stopped query, written for another query to continue from.

Rule: it changes nothing in the checkpoint; state that cannot be moved is one sentence and exit code 2.
"""

from __future__ import annotations

import argparse

from keyedwm.cli.query.held_state import checkpoint_session, session_settings

HELP = "save the state of a stopped query, for other buckets or aggregates"
EXAMPLE = "keyedwm savepoint CHECKPOINT TARGET"
PAGE = "docs/how-to/move-a-query.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CHECKPOINT, TARGET and --conf."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpoint of a stopped query")
    parser.add_argument("target", metavar="TARGET", help="a new directory or address for the savepoint")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, as for spark-submit; a secret as NAME=env:VARIABLE or NAME=file:PATH",
    )


def run(args: argparse.Namespace) -> int:
    """Write the savepoint; raises InputError, OptionError or FormatError with one sentence."""
    from keyedwm.spark.api.savepoint import check_places, savepoint

    session_settings(args.conf)
    check_places(args.checkpoint, args.target)  # both before Spark starts, which takes seconds
    with checkpoint_session(args.conf) as spark:
        written_savepoint = savepoint(spark, args.checkpoint, args.target)
    print(
        f"{args.target}: savepoint of {args.checkpoint} after batch {written_savepoint.batch}, "
        f"{len(written_savepoint.sources)} sources"
    )
    for name, operator in sorted(written_savepoint.operators.items()):
        size = sum(sum(manifest["blobs"].values()) for manifest in operator.manifests)
        print(f"{operator.kind} {name}: {len(operator.manifests)} buckets, {size} bytes")
    return 0
