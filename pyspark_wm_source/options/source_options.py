"""The source's options, checked once at load (docs/design/rules.md).

Rule: each option has its effect or is rejected with an error. No option is ignored silently.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keyedwm.arrow.schema import row_schema
from keyedwm.config.secrets import secret_of
from keyedwm.config.validation import boolean, choice, duration_ms, refuse_unknown, whole, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.idleness import Idleness
from keyedwm.core.places import OnBadTime, OnFutureWatermark
from keyedwm.core.rows import CONTROL
from keyedwm.core.text import nearest
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.properties import KNOWN
from keyedwm.kafka.client.values import Isolation
from keyedwm.registry.options import INSTEAD as REGISTRY_INSTEAD
from keyedwm.registry.options import OPTIONS as REGISTRY_OPTIONS
from pyspark_wm_source.options.axes import AXIS_OPTIONS, NO_LIMIT, TimeAxis, axes_of
from pyspark_wm_source.options.selected_columns import SelectedColumns, selected_columns
from pyspark_wm_source.options.start_offsets import (
    EARLIEST,
    ENDING,
    LATEST,
    STARTING,
    OffsetBound,
    Topics,
    bound_of,
    refuse_word,
    topics_of,
)
from pyspark_wm_source.options.value_format import FORMAT_OPTIONS, Formats, check_places, formats_of
from pyspark_wm_source.values.control_authors import ControlAuthors

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_wm_source.options.record_filter import RecordFilter
    from pyspark_wm_source.options.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """offsets_per_task: small ranges share a task up to this number, which costs about as much as a Python task.

    most_tasks: the option maxPartitions. recovery_slice_s: how long one call of the planner reads for a recovery read.
    """

    offsets_per_task: int = 50_000
    most_tasks: int | None = None
    recovery_slice_s: float = 5.0


LIMITS = Limits()


LOG = logging.getLogger("keyedwm.source")

# Options of Spark's own Kafka source that have no effect here: requests are retried by time, not by count.
_NO_EFFECT = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs")
_SPARK = ("checkpointLocation", "queryName")
_OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "maxPartitions", "continueFrom",
    "failOnDataLoss", "includeHeaders", "groupIdPrefix", "kafka.group.id",
    *AXIS_OPTIONS, "watermarks", "onFutureWatermark", "onBadEventTime", "idleTimeout", "maxWatermarkRetention",
    "emitControl", "barriers",
    "guarantee", "columns", "where", *FORMAT_OPTIONS, *REGISTRY_OPTIONS,
    "propagate", "propagateFrom", "controlSecret", "stateSecret", "stage", "testClock",
)  # fmt: skip
# Options of streams for users. Operators set `stage`, and tests of pipelines set `testClock`.
STREAM_OPTIONS = tuple(name for name in _OPTIONS if name not in {"stage", "testClock"} and ".ssl." not in name)
# A propagated stream has the watermarks, idleness and ranges of its upstream query, so users cannot set these options.
_NOT_PROPAGATED = (
    *(name for name in AXIS_OPTIONS if not name.startswith("eventTime")), "onFutureWatermark", "idleTimeout",
    "minPartitions", "maxRecordsPerPartition",
)  # fmt: skip
# Names of the same options in our sink and in Spark → our name.
_INSTEAD = {
    "topic": "subscribe",
    "topics": "subscribe",
    "filter": "where",
    "withwatermark": "watermarkLag",
    "eventtimeformat": "eventTimeUnit",
    **REGISTRY_INSTEAD,
    # A source in Python cannot read Spark's state; these calls use Spark's own state reader.
    "checkpoint": "keyedwm.spark.held_windows(spark, CHECKPOINT)",
    "windows": "keyedwm.spark.held_windows(spark, CHECKPOINT, NAME)",
    "messages": "keyedwm.spark.held_messages(spark, CHECKPOINT, NAME)",
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_FORBIDDEN_KAFKA = (
    "auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes",
)  # fmt: skip

DEFAULT_GROUP_PREFIX = "keyedwm"
_MAX_TRIGGER_DELAY = "15 minutes"
_IDLE_TIMEOUT = "60 seconds"
_FINGERPRINT_DIGITS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """The parsed options. Times are in ms. None turns a timeout or a limit off."""

    client: ClientConfig
    topics: Topics
    start: OffsetBound
    end: OffsetBound
    axes: Mapping[str, TimeAxis]
    idle_timeout_ms: int | None
    retention_ms: int | None
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    least_tasks: int | None
    most_records: int | None
    fail_on_data_loss: bool
    on_bad: OnBadTime
    include_headers: bool
    group_prefix: str
    group_id: str | None
    emit_control: bool
    barriers: bool
    selection: SelectedColumns
    where: tuple[RecordFilter, ...]
    formats: Formats
    guarantee: Guarantee
    propagate: bool = False
    control_authors: ControlAuthors = field(default_factory=ControlAuthors)
    state_secret: bytes | None = field(default=None, repr=False)
    continue_from: str | None = None
    on_future_watermark: OnFutureWatermark = OnFutureWatermark.KEEP
    stage: Stage | None = None
    test_clock: str | None = None
    limits: Limits = LIMITS

    @property
    def settings(self) -> str:
        """A fingerprint of the options that channel states depend on. A state with another fingerprint is rejected."""
        axes = [(name, *axis.settings) for name, axis in sorted(self.axes.items())]
        # With reject and several axes, a record without a time on one axis moves no axis at all..
        rejects = (OnBadTime.REJECT.value,) if self.on_bad is OnBadTime.REJECT and len(self.axes) > 1 else ()
        settings = repr((axes, self.propagate, self.guarantee.value, *rejects))
        return hashlib.sha256(settings.encode()).hexdigest()[:_FINGERPRINT_DIGITS]

    def state_key(self, key_part: str) -> bytes:
        """Return the key that signs committed states.

        key_part: the part of the key in the offset, in hex, which is not secret.
        """
        key_bytes = bytes.fromhex(key_part)
        return key_bytes if self.state_secret is None else hmac.digest(self.state_secret, key_bytes, "sha256")

    @property
    def every_column(self) -> pa.Schema:
        """All columns of an event's row, selected or not."""
        return self.selection.every(tuple(self.axes), headers=self.include_headers)

    @property
    def has_rejected_column(self) -> bool:
        """Whether the column `rejected` returns records that cannot be read."""
        return self.on_bad is OnBadTime.REJECT or self.formats.has_rejected_column

    @property
    def aligned(self) -> bool:
        """Whether a batch must contain whole snapshots of the upstream query."""
        return self.propagate and self.guarantee is Guarantee.EXACTLY_ONCE

    def for_stream(self) -> SourceOptions:
        """Return the options for a stream. Raises OptionError for an option of batch reads only."""
        if self.end.option_name is not None:
            raise OptionError(f"option {self.end.option_name} is for batch reads, a stream has no end: leave it out")
        return self

    def for_batch(self) -> SourceOptions:
        """Return the options for a batch read, without control rows.

        Raises OptionError for an option of streams only.
        """
        if any(axis.future is not None and not axis.future.is_default for axis in self.axes.values()):
            raise OptionError("option maxEventTimeAhead is for streams, a batch read has no watermarks: leave it out")
        if self.on_future_watermark is not OnFutureWatermark.KEEP:
            raise OptionError("option onFutureWatermark is for streams, a batch read has no watermarks: leave it out")
        refuse_word(self.start, LATEST)
        refuse_word(self.end, EARLIEST)
        if self.propagate:
            raise OptionError("option propagate is for streams, a batch read has no watermarks: leave it out")
        if self.stage is not None:
            raise OptionError(
                "an operator over a source that is not loaded (option stage) is for streams, which have watermarks, "
                "not for batch reads"
            )
        if self.continue_from is not None:
            raise OptionError("option continueFrom is for streams, a batch read has no earlier run: leave it out")
        for name, limit in (("maxOffsetsPerTrigger", self.max_offsets), ("minOffsetsPerTrigger", self.min_offsets)):
            if limit is not None:
                LOG.warning("option %s has no effect on a batch read", name)
        return replace(self, emit_control=False, barriers=False)

    @staticmethod
    def parse(options: Mapping[str, str]) -> SourceOptions:
        """Parse and check every option. Raises OptionError about the first wrong option."""
        settings = {name.lower(): value for name, value in options.items()}
        refuse_unknown(
            options, (*_OPTIONS, *_NO_EFFECT, *_SPARK, *_BATCH_ONLY), side="source", kafka=KNOWN, instead=_INSTEAD
        )
        topics = topics_of(settings)
        smallest, largest = _count(settings, "minOffsetsPerTrigger"), _count(settings, "maxOffsetsPerTrigger")
        kafka = {name[len("kafka.") :]: value for name, value in settings.items() if name.startswith("kafka.")}
        _refuse_kafka(kafka)
        if smallest is not None and largest is not None and smallest > largest:
            raise OptionError(f"option minOffsetsPerTrigger: {smallest} is above maxOffsetsPerTrigger ({largest})")
        axes = axes_of(settings)
        propagate = boolean("propagate", settings.get("propagate", "false"))
        guarantee = choice("guarantee", settings.get("guarantee", Guarantee.EXACTLY_ONCE.value), Guarantee)
        client = ClientConfig.from_options(kafka)
        if propagate:
            client = _propagated(settings, client, guarantee)
        emit_control = boolean("emitControl", settings.get("emitcontrol", "true"))
        headers = boolean("includeHeaders", settings.get("includeheaders", "false"))
        on_bad = choice("onBadEventTime", settings.get("onbadeventtime", OnBadTime.NULL.value), OnBadTime)
        formats = formats_of(settings)
        rejected = on_bad is OnBadTime.REJECT or formats.has_rejected_column
        rows = row_schema(tuple(axes), headers=headers, control=emit_control, rejected=rejected)
        selection = selected_columns(settings.get("columns"), rows.names)
        return SourceOptions(
            client=client,
            topics=topics,
            start=bound_of(settings, STARTING),
            end=bound_of(settings, ENDING),
            axes=axes,
            idle_timeout_ms=Idleness(_optional_ms(settings, "idleTimeout", _IDLE_TIMEOUT)).timeout_ms,
            retention_ms=_optional_ms(settings, "maxWatermarkRetention", "none"),
            max_offsets=largest,
            min_offsets=smallest,
            max_trigger_delay_ms=duration_ms("maxTriggerDelay", settings.get("maxtriggerdelay", _MAX_TRIGGER_DELAY)),
            least_tasks=_count(settings, "minPartitions"),
            most_records=_count(settings, "maxRecordsPerPartition"),
            limits=replace(LIMITS, most_tasks=_most_tasks(settings)),
            fail_on_data_loss=boolean("failOnDataLoss", settings.get("failondataloss", "true")),
            on_bad=on_bad,
            include_headers=headers,
            group_prefix=settings.get("groupidprefix", DEFAULT_GROUP_PREFIX),
            group_id=kafka.get("group.id"),
            # An operator's first step ships control rows too, whichever columns are selected for events.
            emit_control=emit_control
            and ("stage" in settings or selection.names is None or CONTROL in selection.names),
            barriers=boolean("barriers", settings.get("barriers", "true")),
            selection=selection,
            where=_where(settings, selection.every(tuple(axes), headers=headers), selection),
            formats=formats,
            guarantee=guarantee,
            propagate=propagate,
            control_authors=_control_authors(settings, propagate=propagate),
            state_secret=secret_of("stateSecret", settings["statesecret"]) if "statesecret" in settings else None,
            continue_from=_continue_from(settings),
            on_future_watermark=_on_future_watermark(settings, axes),
            stage=_stage(settings, axes, selection, headers=headers),
            test_clock=settings.get("testclock"),
        ).checked()

    def checked(self) -> SourceOptions:
        """Return the options. Raises OptionError for fields and event times that no format of keys or values has."""
        check_places(self.formats, "columns", self.selection.fields.values())
        check_places(self.formats, "eventTime", [axis.event_time for axis in self.axes.values()])
        check_places(self.formats, "where", [field for one in self.where for field in one.fields.values()])
        if self.stage is not None:
            check_places(self.formats, "by", [reader.field for reader in self.stage.readers])
        return self


def _propagated(settings: Mapping[str, str], client: ClientConfig, guarantee: Guarantee) -> ClientConfig:
    """Return the client's options with `propagate=true`: by default it reads committed records only.

    Raises OptionError for options that contradict `propagate`.
    """
    for name in _NOT_PROPAGATED:
        if name.lower() in settings or f'"{name.lower()}"' in settings.get("watermarks", "").lower():
            raise OptionError(
                f"option {name} has no effect with propagate=true, which reads watermarks from the topic: leave it out"
            )
    if "kafka.isolation.level" not in settings:
        return replace(client, isolation=Isolation.READ_COMMITTED)
    if client.isolation is not Isolation.READ_COMMITTED and guarantee is Guarantee.EXACTLY_ONCE:
        raise OptionError(
            "option kafka.isolation.level: propagate=true under exactly-once needs 'read_committed': leave it out"
        )
    return client


def _control_authors(settings: Mapping[str, str], *, propagate: bool) -> ControlAuthors:
    for name in ("propagateFrom", "controlSecret"):
        if name.lower() in settings and not propagate:
            raise OptionError(
                f"option {name} has no effect without propagate=true: leave it out, or add propagate=true"
            )
    query, secret = settings.get("propagatefrom"), settings.get("controlsecret")
    if query is not None and not query.strip():
        raise wrong("propagateFrom", query, "the id of the query that writes the topic is expected")
    return ControlAuthors(
        query=None if query is None else query.strip(),
        secret=None if secret is None else secret_of("controlSecret", secret),
    )


def _where(settings: Mapping[str, str], every: pa.Schema, selection: SelectedColumns) -> tuple[RecordFilter, ...]:
    """Parse the option `where`. A source without the option does not import the parser of conditions."""
    if "where" not in settings:
        return ()
    from pyspark_wm_source.options.record_filter import record_filters

    return record_filters(settings["where"], every, selection.fields)


def _stage(
    settings: Mapping[str, str], axes: Mapping[str, TimeAxis], selection: SelectedColumns, *, headers: bool
) -> Stage | None:
    """Parse the option `stage`. A source without the option does not import windows and joins."""
    if "stage" not in settings:
        return None
    from pyspark_wm_source.options.stage import stage_of

    return stage_of(settings, axes, selection, headers=headers)


def _on_future_watermark(settings: Mapping[str, str], axes: Mapping[str, TimeAxis]) -> OnFutureWatermark:
    value = settings.get("onfuturewatermark", OnFutureWatermark.KEEP.value)
    on = choice("onFutureWatermark", value, OnFutureWatermark)
    if on is OnFutureWatermark.RESET and all(axis.future is None for axis in axes.values()):
        raise OptionError(
            f"option onFutureWatermark has no effect with maxEventTimeAhead={NO_LIMIT}: leave one of them out"
        )
    return on


def _continue_from(settings: Mapping[str, str]) -> str | None:
    place = settings.get("continuefrom")
    start = bound_of(settings, STARTING).option_name
    if place is not None and not place.strip():
        raise wrong("continueFrom", place, "the place of a savepoint is expected (keyedwm savepoint makes one)")
    if place is not None and start is not None:
        raise OptionError(
            f"option {start} has no effect with continueFrom, which sets the start of each partition: leave it out"
        )
    return place


def _refuse_kafka(kafka: Mapping[str, str]) -> None:
    for name in _FORBIDDEN_KAFKA:
        if name in kafka:
            raise OptionError(f"option kafka.{name} is set by the source itself: leave it out (Spark rejects it too)")
    if not kafka.get("bootstrap.servers", "").strip():
        similar_name = nearest("bootstrap.servers", kafka, similarity=0.8)
        hint = ""
        if similar_name and similar_name != "bootstrap.servers":
            hint = f"; kafka.{similar_name} is set, did you mean kafka.bootstrap.servers?"
        raise OptionError(f"option kafka.bootstrap.servers is missing: a comma list of host:port is expected{hint}")
    if not kafka.get("group.id", "-").strip():
        raise wrong("kafka.group.id", kafka["group.id"], "the name of a consumer group is expected")


def _most_tasks(settings: Mapping[str, str]) -> int | None:
    """Return the option maxPartitions; raise OptionError beside an option that asks for more tasks."""
    most_tasks = _count(settings, "maxPartitions")
    for name in ("minPartitions", "maxRecordsPerPartition"):
        if most_tasks is not None and name.lower() in settings:
            raise OptionError(
                f"option maxPartitions has no effect with {name}, which adds tasks: leave one of them out"
            )
    return most_tasks


def _count(settings: Mapping[str, str], name: str) -> int | None:
    value = settings.get(name.lower())
    return None if value is None else whole(name, value)


def _optional_ms(settings: Mapping[str, str], name: str, default: str) -> int | None:
    value = settings.get(name.lower(), default)
    return None if value.strip().lower() == "none" else duration_ms(name, value)
