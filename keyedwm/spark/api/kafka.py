"""`kafka`: the source with its options as arguments, which editors complete and type checkers know.

Rule: it knows no option by itself. Arguments are the options of the source in Python's spelling (`watermark_lag` is
`watermarkLag`). The source's own parser gives them their meaning and their errors; a test compares both lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import argument_text, require_session
from keyedwm.spark.hosting.source_description import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Duration: TypeAlias = str | timedelta
Partitions: TypeAlias = Mapping[str, Mapping[str, int] | Mapping[int, int]]
Policy: TypeAlias = Literal["fixedLag", "lagAndDelay", "lagAndLull", "timestampAndWallClockLag", "realTimeLag", "none"]
ValueFormat: TypeAlias = Literal[
    "avro",
    "avro-confluent",
    "avro-apicurio",
    "avro-glue",
    "avro-single-object",
    "protobuf",
    "protobuf-confluent",
    "json-confluent",
]
_MS = timedelta(milliseconds=1)
_UPPER = re.compile(r"(?<!^)(?=[A-Z])")
_KAFKA = "kafka."
_WHERE = "where"
_COLUMNS = "columns"  # whose names are paths, in which commas can stand in quotes


def kafka(
    spark: SparkSession,
    bootstrap_servers: str | Sequence[str],
    *,
    subscribe: str | Sequence[str] | None = None,
    subscribe_pattern: str | None = None,
    assign: str | Mapping[str, Sequence[int]] | None = None,
    starting_offsets: Literal["earliest", "latest"] | str | Partitions | None = None,
    starting_timestamp: int | None = None,
    starting_offsets_by_timestamp: str | Partitions | None = None,
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] | None = None,
    max_offsets_per_trigger: int | None = None, min_offsets_per_trigger: int | None = None,
    max_trigger_delay: Duration | None = None, max_records_per_partition: int | None = None,
    min_partitions: int | None = None, max_partitions: int | None = None,
    continue_from: str | None = None,
    fail_on_data_loss: bool | None = None,
    include_headers: bool | None = None,
    group_id_prefix: str | None = None, group_id: str | None = None,
    event_time: str | None = None,
    event_time_unit: Literal["s", "ms", "us", "ns", "iso"] | None = None,
    on_bad_event_time: Literal["null", "fail", "reject"] | None = None,
    max_event_time_ahead: Duration | None = None,
    on_future_time: Literal["ignore", "null", "fail"] | None = None,
    on_future_watermark: Literal["keep", "reset"] | None = None,
    watermark_policy: Policy | str | None = None,
    watermark_lag: Duration | None = None,
    watermark_delay: Duration | None = None,
    watermark_lull: Duration | None = None,
    wall_clock_lag: Duration | None = None,
    watermark_throttle: Literal["batch", "frame", "step", "none"] | None = None,
    frame_size: Duration | None = None, frame_offset: Duration | None = None,
    watermark_step: Duration | None = None,
    watermarks: str | Mapping[str, Mapping[str, str | int]] | None = None,
    idle_timeout: Duration | None = None,
    max_watermark_retention: Duration | None = None,
    emit_control: bool | None = None,
    barriers: bool | None = None,
    guarantee: Literal["exactly-once", "at-least-once"] | None = None,
    columns: str | Sequence[str] | None = None,
    where: str | None = None,
    value_format: ValueFormat | None = None, value_schema: str | None = None,
    key_format: ValueFormat | None = None, key_schema: str | None = None,
    on_bad_value: Literal["fail", "null", "reject"] | None = None,
    schema_registry_url: str | Sequence[str] | None = None,
    schema_registry_user: str | None = None, schema_registry_password: str | None = None,
    schema_registry_token: str | None = None, schema_registry_token_provider: str | None = None,
    schema_registry_cache: str | None = None, schema_registry_timeout: Duration | None = None,
    propagate: bool | None = None, propagate_from: str | None = None,
    control_secret: str | None = None, state_secret: str | None = None,
    properties: Mapping[str, str | int | bool] | None = None,
) -> Source:  # fmt: skip
    """Describe a read of Kafka: `source(spark)` with these options, checked now; `load()` gives its rows.

    Each argument is the option of that name; None leaves it out. Durations are Spark's texts ("10 seconds") or
    timedeltas. properties: properties of Kafka's clients, such as {"security.protocol": "SSL"}. Raises OptionError in
    one sentence.
    """
    arguments = {name: value for name, value in locals().items() if value is not None}
    require_session(arguments.pop("spark", None), "kafka")
    return Source(spark, options_of(arguments)).checked()


def options_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the source for arguments of `kafka` that are not None."""
    from pyspark_wm_source.options.source_options import STREAM_OPTIONS

    options = {argument_of(option): option for option in ("kafka.bootstrap.servers", *STREAM_OPTIONS)}
    result = {options[name]: _text(options[name], value) for name, value in arguments.items() if name != "properties"}
    properties = arguments.get("properties", {})
    if not isinstance(properties, Mapping):
        raise OptionError(
            f"kafka: properties={argument_text(properties)}: a mapping from Kafka's property to its value is expected"
        )
    for name, value in properties.items():
        option = name if name.lower().startswith(_KAFKA) else f"{_KAFKA}{name}"
        if option.lower() in {name_in_use.lower() for name_in_use in result}:
            raise OptionError(f"kafka: {name} stands among properties and is an argument, too: leave one of them out")
        result[option] = _text(option, value)
    return result


def argument_of(option: str) -> str:
    """Return the argument's name: watermarkLag is watermark_lag, kafka.group.id is group_id."""
    return _UPPER.sub("_", option.removeprefix(_KAFKA)).lower().replace(".", "_")


def _text(option: str, value: object) -> str:
    """Return a value as the option's text."""
    if option == _WHERE and not isinstance(value, str):
        raise OptionError(f"option {option}: a text such as \"key = 'a'\" is expected, not {argument_text(value)}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        if value % _MS:
            raise OptionError(f"option {option}: {value!r} is wrong; a whole number of milliseconds is expected")
        return f"{value // _MS} ms"
    if isinstance(value, Mapping) and option != _COLUMNS:
        return json.dumps(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return ",".join(_name(option, one) for one in value)
    if not isinstance(value, (str, int, float)):
        expected = "a list of texts" if option == _COLUMNS else "a text, number or boolean"
        raise OptionError(f"option {option}: {expected} is expected, not {argument_text(value)}")
    return str(value)


def _name(option: str, value: object) -> str:
    if not isinstance(value, str) or ("," in value and option != _COLUMNS):
        raise OptionError(f"option {option}: a list of names is expected, {argument_text(value)} is none")
    return value
