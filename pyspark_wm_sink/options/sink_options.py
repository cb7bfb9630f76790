"""The sink's options, checked once when the writer is created.

Rule: each option has its effect or is rejected with an error; no option is ignored silently. `storage.*` goes to the
table's object store as it stands (`storage.aws_region`), and its values never appear in a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from keyedwm.config.secrets import refuse_login_in
from keyedwm.config.validation import boolean, choice, refuse_unknown, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.properties import KNOWN
from keyedwm.registry.options import INSTEAD as REGISTRY_INSTEAD
from pyspark_wm_sink.options.iceberg_target import CATALOG, ICEBERG_NAMES, IcebergTarget, is_iceberg
from pyspark_wm_sink.options.kafka_target import EXACTLY_ONCE_NAMES, KAFKA_NAMES, KafkaTarget, is_kafka
from pyspark_wm_sink.options.record_format import REGISTER
from pyspark_wm_sink.places.paths import file_in_the_way, local_directory

STORAGE = "storage."
_ADDRESS_ONLY = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")
_UNREACHABLE = re.compile(r"[\x00-\x1f\x7f\\]")
_UNSAFE_STORES = ("aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "mount_allow_unsafe_rename")
_SPARK = ("checkpointLocation", "queryName")
_DELTA = ("path", "partitionBy", "mergeSchema", "sharedTable")
# Of Spark's Kafka source, of Confluent's serializers and of Spark's own Avro.
_INSTEAD = {
    "subscribe": "topic", "topics": "topic", "auto.register.schemas": REGISTER, "recordname": "value.recordName",
    "recordnamespace": "value.recordName", "avroschema": "value.schema", **REGISTRY_INSTEAD,
}  # fmt: skip
_OWN_OPTIONS = (*_DELTA, "errorsTo", "snapshot", "guarantee", "controlRows", "replayCheck")


class SnapshotMode(Enum):
    """The event that completes a snapshot: the barriers of all channels, or the end of each micro-batch."""

    BARRIER = "barrier"
    BATCH = "batch"


class ControlRows(Enum):
    """Whether control rows are dropped or written to the target."""

    DROP = "drop"
    INLINE = "inline"


class ReplayCheck(Enum):
    """The part of a published batch that is compared when Spark replays it, beside barriers: content or counts."""

    CONTENT = "content"
    COUNTS = "counts"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaTarget:
    """A Delta table, and how to reach its store.

    partition_by: None keeps the table's own partitioning. merge_schema: new columns are added to the table. errors_to:
    the table of rejected messages, in the same store. is_shared: other queries write rows of the same input to it.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    partition_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    errors_to: str | None = None
    is_shared: bool = False

    def of_errors(self) -> DeltaTarget | None:
        """Return the target of rejected messages, None if there is none. Queries may share it."""
        return None if self.errors_to is None else replace(self, path=self.errors_to, partition_by=None, is_shared=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """All options of a write; `snapshot` None: barrier if the rows have a control column, else batch.

    replay_check: None means content with snapshot=batch, else counts, since barriers show the offsets read. checkpoint:
    the checkpointLocation, if it is an option of this write.
    """

    target: DeltaTarget | IcebergTarget | KafkaTarget
    snapshot: SnapshotMode | None
    guarantee: Guarantee
    control_rows: ControlRows
    replay_check: ReplayCheck | None = None
    checkpoint: str | None = None

    def compares_content(self, mode: SnapshotMode) -> bool:
        """Return whether the content of each batch is recorded, and compared when Spark replays the batch."""
        default = ReplayCheck.CONTENT if mode is SnapshotMode.BATCH else ReplayCheck.COUNTS
        return self.guarantee is Guarantee.EXACTLY_ONCE and (self.replay_check or default) is ReplayCheck.CONTENT

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Check every option; raises OptionError about the first wrong option."""
        settings = {name.lower(): value for name, value in options.items()}
        refuse_unknown(
            (name for name in options if not name.lower().startswith((STORAGE, CATALOG))),
            (*_OWN_OPTIONS, *ICEBERG_NAMES, *_SPARK, *KAFKA_NAMES),
            side="sink",
            kafka=KNOWN,
            instead=_INSTEAD,
        )
        guarantee = choice("guarantee", settings.get("guarantee", Guarantee.EXACTLY_ONCE.value), Guarantee)
        control_rows = choice("controlRows", settings.get("controlrows", ControlRows.DROP.value), ControlRows)
        if guarantee is Guarantee.AT_LEAST_ONCE:
            for name in (*EXACTLY_ONCE_NAMES, "replayCheck"):
                needs_ledger = name == "ledger" and control_rows is ControlRows.INLINE
                if name.lower() in settings and not needs_ledger:
                    raise OptionError(f"option {name} has no effect with guarantee=at-least-once: leave it out")
        return SinkOptions(
            target=_target(options, settings),
            snapshot=choice("snapshot", settings["snapshot"], SnapshotMode) if "snapshot" in settings else None,
            guarantee=guarantee,
            control_rows=control_rows,
            replay_check=choice("replayCheck", settings["replaycheck"], ReplayCheck)
            if "replaycheck" in settings
            else None,
            checkpoint=settings.get("checkpointlocation", "").strip() or None,
        )


def _target(options: Mapping[str, str], settings: Mapping[str, str]) -> DeltaTarget | IcebergTarget | KafkaTarget:
    kafka = sorted(name for name in options if is_kafka(name))
    iceberg = sorted(name for name in options if is_iceberg(name))
    if iceberg:
        others = sorted(name for name in options if name.lower() == "path" or name.lower().startswith(STORAGE))
        if kafka or others:
            raise OptionError(
                f"options {iceberg[0]} and {(kafka or others)[0]} name two targets, an Iceberg table and "
                f"{'Kafka' if kafka else 'a Delta table'}: leave one of them out (settings of an Iceberg table's store "
                f"are options catalog.NAME)"
            )
        return IcebergTarget.parse(settings)
    if not kafka:
        storage = {name[len(STORAGE) :]: value for name, value in settings.items() if name.startswith(STORAGE)}
        for name in _UNSAFE_STORES:
            if boolean(STORAGE + name, storage.get(name, "false")):
                raise OptionError(
                    f"option {STORAGE}{name} switches off the atomic rename of the table's log: two writers could then "
                    f"commit the same version and lose rows; leave it out, and use a store with conditional put"
                )
        path = _location("path", settings.get("path", ""))
        errors_to = _beside(path, _location("errorsTo", settings["errorsto"])) if "errorsto" in settings else None
        _check_checkpoint(settings.get("checkpointlocation", ""), {"path": path, "errorsTo": errors_to})
        return DeltaTarget(
            path=path,
            errors_to=errors_to,
            storage=storage,
            partition_by=_columns(settings["partitionby"]) if "partitionby" in settings else None,
            merge_schema=boolean("mergeSchema", settings.get("mergeschema", "false")),
            is_shared=boolean("sharedTable", settings.get("sharedtable", "false")),
        )
    delta = {name.lower() for name in _DELTA}
    foreign = sorted(name for name in options if name.lower() in delta or name.lower().startswith(STORAGE))
    if foreign:
        raise OptionError(
            f"options {foreign[0]} and {kafka[0]} name two targets, a Delta table and Kafka: leave one of them out"
        )
    return KafkaTarget.parse(options)


def _beside(path: str, errors_to: str) -> str:
    """Return the place of a second table; one inside the other would lose its files to the other's VACUUM."""
    here, there = f"{path.rstrip('/')}/", f"{errors_to.rstrip('/')}/"
    if here == there:
        raise wrong("errorsTo", errors_to, "that is the table of the results, another one is expected")
    if here.startswith(there) or there.startswith(here):
        raise wrong(
            "errorsTo", errors_to,
            f"the one table lies in the other ({path}), whose VACUUM would delete its files: a place beside it is "
            "expected",
        )  # fmt: skip
    return errors_to


def _check_checkpoint(checkpoint: str, tables: Mapping[str, str | None]) -> None:
    """Raise OptionError for a table in the checkpoint's own directory, whose files the table's VACUUM would delete."""
    text = checkpoint.strip()
    local = local_directory(text) if text else None
    there = (text if local is None else str(local)).rstrip("/")
    for name, path in tables.items():
        if there and path is not None and path.rstrip("/") == there:
            raise wrong(
                name, path,
                "that is the query's checkpointLocation, whose files the table's VACUUM would delete: a place of its "
                "own is expected",
            )  # fmt: skip


def _columns(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise wrong("partitionBy", value, "a comma list of columns is expected")
    return names


def _location(name: str, path: str) -> str:
    """Return an address as it stands, and a local directory as an absolute path."""
    path = path.strip()
    if not path:
        raise OptionError(
            f"option {name} is missing: the directory or address of the Delta table is expected. For Iceberg set table "
            "and catalog.type, for Kafka kafka.bootstrap.servers and topic"
            "; toTable and INSERT INTO do not give it: write by start() or save(), and drop the empty table of toTable"
        )
    refuse_login_in(f"option {name}", path)
    local = local_directory(path)
    if local is None and "://" not in path:
        raise wrong(name, path, "a directory of this machine is expected, or an address such as s3://bucket/table")
    if _UNREACHABLE.search(path):
        raise wrong(
            name, path,
            "a table whose address holds a backslash or a control character cannot be reached (deltalake takes a "
            "backslash for a slash): a name without is expected",
        )  # fmt: skip
    if local is not None and _ADDRESS_ONLY.search(str(local)):
        raise wrong(name, path, "deltalake takes #, ? and %20 for parts of an address: a directory without is expected")
    if local is not None and (file := file_in_the_way(local)) is not None:
        raise wrong(name, path, f"{file} is a file, a directory is expected")
    return path if local is None else str(local)
