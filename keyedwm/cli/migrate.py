"""`keyedwm migrate CHECKPOINT`: the `startingOffsets` that continue a query of Spark's own Kafka source.

Rule: it only reads the checkpoint, and counts a batch only if its commit is there. The JSON goes to stdout, on one
line; all texts for people go to stderr. A checkpoint that it does not understand is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keyedwm.config.secrets import pairs_of, refuse_login_in
from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import short_repr
from pyspark_wm_sink.places.paths import local_directory

HELP = "print startingOffsets that resume a query of Spark's own Kafka source"
EXAMPLE = "keyedwm migrate /data/old.checkpoint --bootstrap localhost:9092"
PAGE = "docs/how-to/migrate.md"
_VERSION = "v1"
_KAFKA = "kafka."
_NO_OFFSET = "-"  # Spark's mark of a source without an offset
_EARLIEST = -2
_EXPECTED = {"CHECKPOINT": "the checkpointLocation of the stopped query", "--bootstrap": "host:port of a broker"}
Offsets = dict[str, dict[str, int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CHECKPOINT, --source, --bootstrap, --option and --write."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpointLocation of the stopped query")
    parser.add_argument("--source", type=int, metavar="N", help="number of the source, from 0, if there are several")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka, to add newer partitions from their start")
    parser.add_argument(
        "--option", action="append", default=[], metavar="kafka.NAME=VALUE",
        help="with --bootstrap: an option of a login, with secrets as NAME=env:VARIABLE or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the JSON to this new file")


def run(args: argparse.Namespace) -> int:
    """Print the JSON; raises InputError or FormatError with one sentence about what is not understood."""
    # An unset variable of the shell would otherwise mean this directory, or no request to the cluster.
    for name, value in (("CHECKPOINT", args.checkpoint), ("--bootstrap", args.bootstrap)):
        if value is not None and not value.strip():
            raise OptionError(f"{name} is empty: {_EXPECTED[name]} is expected")
    refuse_login_in("CHECKPOINT", args.checkpoint)
    properties = _properties(args)
    directory = local_directory(args.checkpoint)
    if directory is None:
        raise InputError(f"{args.checkpoint} is not a local directory: copy the checkpoint here first")
    batch, unfinished = committed_batch(directory)
    offsets = offsets_of(directory, batch, args.source)
    if properties:
        offsets = with_new_partitions(offsets, _partitions_at(properties, offsets))
    text = json.dumps(offsets, sort_keys=True)
    if args.write:
        try:
            with args.write.open("x") as file:
                file.write(text + "\n")
        except OSError as error:
            raise OptionError(f"--write: {args.write} cannot be written ({error.strerror}): name a new file") from error
    print(f"batch {batch} is the last one that was committed; give this to the option startingOffsets, with a new "
          f"checkpointLocation", file=sys.stderr)  # fmt: skip
    if unfinished:
        print(
            f"batch {batch + 1} was planned and not committed: its rows are written again; to avoid that, let "
            f"the old query finish it first",
            file=sys.stderr,
        )
    print(text)
    return 0


def _properties(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties of the client, without the prefix `kafka.`; empty if no broker is asked."""
    options = pairs_of("--option", args.option, "kafka.security.protocol=SASL_SSL")
    other = next((name for name in options if not name.lower().startswith(_KAFKA)), None)
    if other is not None:
        raise OptionError(f"--option: {short_repr(other)} is no option of a login: kafka.NAME=VALUE is expected")
    if not args.bootstrap:
        if options:
            raise OptionError("--option needs --bootstrap: host:port of a broker is expected")
        return {}
    options["kafka.bootstrap.servers"] = args.bootstrap
    return {name[len(_KAFKA) :]: value for name, value in options.items()}


def committed_batch(checkpoint: Path) -> tuple[int, bool]:
    """Return the last committed batch, and whether Spark planned another one after it."""
    for name in ("offsets", "commits"):
        if not (checkpoint / name).is_dir():
            raise InputError(f"{checkpoint} has no directory {name}: the checkpointLocation of a query is expected")
    planned, committed = (_batches(checkpoint / name) for name in ("offsets", "commits"))
    if not committed:
        raise InputError(f"the query of {checkpoint} has committed no batch: start again with its own startingOffsets")
    return max(committed), bool(planned) and max(planned) > max(committed)


def _batches(log: Path) -> list[int]:
    return [int(path.name) for path in log.iterdir() if path.name.isascii() and path.name.isdecimal()]


def offsets_of(checkpoint: Path, batch: int, source: int | None) -> Offsets:
    """Return the next offsets of a batch's Kafka source, in the shape of startingOffsets."""
    path = checkpoint / "offsets" / str(batch)
    try:
        version, _, *lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read as an offset log of Spark: {error}") from error
    if version != _VERSION:
        raise FormatError(f"{path} has version {version!r}; this command reads {_VERSION} only")
    by_number = {number: _kafka_offsets(line) for number, line in enumerate(lines)}
    if any(_is_ours(line) for line in lines):
        raise InputError(f"{checkpoint} belongs to a query of keyedwm already: start it with its own checkpoint")
    kafka = {number: offsets for number, offsets in by_number.items() if offsets}
    if source is None and len(kafka) == 1:
        return next(iter(kafka.values()))
    if source is not None and kafka.get(source):
        return kafka[source]
    listing = "; ".join(f"{number} ({', '.join(sorted(offsets))})" for number, offsets in kafka.items()) or "none"
    if source is not None:
        raise OptionError(f"--source {source}: {path} has no Kafka offsets of that number; it has those of: {listing}")
    raise InputError(f"{path} holds {len(kafka)} sources with Kafka offsets: {listing}; choose one with --source")


def _parsed(line: str) -> Any:
    try:
        return None if line == _NO_OFFSET else parse_json(line)
    except ValueError:
        return None


def _is_ours(line: str) -> bool:
    parsed = _parsed(line)
    return isinstance(parsed, dict) and "state_key" in parsed


def _kafka_offsets(line: str) -> Offsets:
    """Read topic -> partition -> next offset; empty for the offset of another source."""
    parsed = _parsed(line)
    if not isinstance(parsed, dict) or not parsed:
        return {}
    for partitions in parsed.values():
        if not isinstance(partitions, dict) or not partitions:
            return {}
        if not all(name.isascii() and name.isdecimal() and type(offset) is int for name, offset in partitions.items()):
            return {}
    return parsed


def with_new_partitions(offsets: Offsets, now: Mapping[str, tuple[int, ...]]) -> Offsets:
    """Add the partitions that a topic has got since, from their earliest offset, as Spark would."""
    return {
        topic: {str(number): _EARLIEST for number in now.get(topic, ())} | partitions
        for topic, partitions in offsets.items()
    }


def _partitions_at(properties: Mapping[str, str], offsets: Offsets) -> dict[str, tuple[int, ...]]:
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster

    cluster = Cluster.connect(ClientConfig.from_options(properties))
    try:
        return cluster.partitions(offsets)
    finally:
        cluster.close()
