"""The description of a source that is not loaded: `source` returns it, and functions accept it in place of a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keyedwm.config.places import field_of
from keyedwm.core.errors import OptionError
from keyedwm.plugin import FORMAT
from keyedwm.spark.arguments import argument_text
from keyedwm.spark.setup.conf import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Options of the number of reading tasks.
_OF_TASKS = frozenset({"minpartitions", "maxrecordsperpartition", "maxpartitions"})
_CLIENT = "pyspark.sql.connect."  # the modules of Spark Connect's client
_Value = bool | float | int | str


@dataclass(frozen=True, slots=True)
class Source:
    """Options of `spark.readStream.format("keyedwm")`; each call returns a new description."""

    spark: SparkSession = field(repr=False)
    set_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # values may be secrets

    def option(self, key: str, value: _Value) -> Source:
        """Set an option of the source, as DataStreamReader does: names are case-insensitive, the last one counts."""
        if not isinstance(value, (bool, float, int, str)):
            raise OptionError(f"option {key}: a text, number or boolean is expected, not {type(value).__name__}")
        others = {name: text for name, text in self.set_options.items() if name.lower() != key.lower()}
        return Source(self.spark, others | {key: str(value).lower() if isinstance(value, bool) else str(value)})

    def options(self, **options: _Value) -> Source:
        """Set several options."""
        described = self
        for key, value in options.items():
            described = described.option(key, value)
        return described

    if not TYPE_CHECKING:  # else type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError: a read that is not loaded has no columns, and none of a frame's methods."""
            raise AttributeError(
                f"a keyedwm Source has no attribute {name!r}: it describes a read, which the options columns and where "
                f"make smaller; load() returns its rows"
            )

    def checked(self) -> Source:
        """Return this description; raises OptionError for the first option that is wrong."""
        from pyspark_wm_source.options.source_options import SourceOptions

        SourceOptions.parse(self.set_options).for_stream()
        return self

    def load(self) -> DataFrame:
        """Return the source's rows, as `spark.readStream` does. Raises OptionError for a wrong option."""
        from pyspark_wm_source.reader import row_schema

        self.checked()  # the same error from Spark has many lines
        options = {**self._most_tasks(), **self.set_options}
        rows = self.spark.readStream.format(FORMAT).options(**options).load()
        return with_schema(rows, row_schema(self.set_options))

    def _most_tasks(self) -> dict[str, str]:
        """Return the option maxPartitions: as many reading tasks as the session has tasks after a shuffle.

        A task costs as much as tens of thousands of rows, so more tasks than cores take longer. Without
        `session_conf(cores)` the session has 200, which joins few tasks or none.
        """
        if any(name.lower() in _OF_TASKS for name in self.set_options):
            return {}
        tasks = str(self.spark.conf.get(PARTITIONS)).strip()
        return {"maxPartitions": tasks} if tasks.isdecimal() else {}  # Databricks knows "auto"


def with_schema(df: DataFrame, schema: StructType) -> DataFrame:
    """Return the frame. schema: its schema, which a client of Spark Connect then does not ask the server for.

    The server answers no such request in a decorated function of a pipeline.
    """
    return df.to(schema) if type(df).__module__.startswith(_CLIENT) else df


def frame_of(one: object, called: str, caller: str) -> DataFrame:
    """Return the frame of an argument; a source that is not loaded is loaded."""
    stream = stream_of(one, called, caller)
    return stream.load() if isinstance(stream, Source) else stream


def stream_of(one: object, called: str, caller: str) -> DataFrame | Source:
    """Return an argument that is a frame or a source; raises OptionError for anything else."""
    from pyspark.sql import DataFrame

    if not isinstance(one, (DataFrame, Source)):
        raise OptionError(
            f"{caller}: {called}={argument_text(one)}: a frame, or keyedwm.spark.kafka(...), is expected; load() a "
            "reader"
        )
    return one


def fields_read(read: Source) -> tuple[str, ...]:
    """Return a text with name and place of each column that a read takes out of keys and values."""
    from pyspark_wm_source.options.source_options import SourceOptions

    fields = SourceOptions.parse(read.set_options).selection.fields
    return tuple(f"{name} {field.text}" for name, field in fields.items())


def named_fields(by: Mapping[str, str] | Sequence[str], columns: Sequence[str]) -> Mapping[str, str]:
    """Return result column -> field of each key. A plain field may lack a name. columns: the source's."""
    return by if isinstance(by, Mapping) else {_name_of(text, columns): text for text in by}


def _name_of(text: str, columns: Sequence[str]) -> str:
    """Return the field's column as the name of a key; raise OptionError if the field has a path."""
    field = field_of("by", text, columns)
    if field.path:
        raise OptionError(f"option by: {text!r} needs a name for its result column: by={{'name': {text!r}}}")
    return field.column
