"""The option stage: the first step of an operator inside the reading tasks, as values.

Rule: a `StageSpec` is what an operator asks for, and is passed through Spark as JSON; a `Stage` is what a reading task
does. Users never write the option: `aggregate` and joins over `keyedwm.spark.source` do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.places import FieldReader, read_fields
from keyedwm.config.places import field_of
from keyedwm.config.validation import boolean, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.parsing import parse_json
from keyedwm.core.places import Field
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.exchange_input import ExchangeInput, ExchangeMessages
from keyedwm.operators.frames.partials import ExchangePartials
from keyedwm.operators.join.exchange_side import ExchangeSide

if TYPE_CHECKING:
    from keyedwm.arrow.rows import Events, RowBuilder
    from pyspark_wm_source.options.axes import TimeAxis
    from pyspark_wm_source.options.selected_columns import SelectedColumns

STAGE = "stage"
_INPUTS: Mapping[str, type[ExchangeInput]] = {
    one.kind: one for one in (ExchangePartials, ExchangeMessages, ExchangeSide)
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The steps of the reading tasks on their records.

    columns: the source's columns that they read. readers: the readers of the fields in these columns. axes: the time
    axes whose event times in ms follow the fields. shipped: stage one, which transforms the rows. number: the number of
    the operator's input.
    """

    columns: pa.Schema
    readers: tuple[FieldReader, ...]
    axes: tuple[str, ...]
    shipped: ExchangeInput
    buckets: int
    number: int

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)

    def rows(self, events: Events, builder: RowBuilder) -> pa.RecordBatch:
        """Return the rows of stage one; builder: of `columns`."""
        rows, schema = builder.events(events), self.shipped.schema
        read = read_fields(self.readers, rows.column, events.decoded)
        arrays = [values.cast(field.type) for values, field in zip(read, schema, strict=False)]
        for ms, valid in map(events.event_ms.__getitem__, self.axes):
            arrays.append(pa.array(ms, mask=None if valid is None else ~valid))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """What an operator asks of the reading tasks.

    fields: column of its rows → field of the source. times: column behind these → time axis. exchange: the description
    of the input (`ExchangeInput`). number: the number of the input. buckets: how many buckets its rows are spread over.
    """

    fields: Mapping[str, str]
    times: Mapping[str, str]
    exchange: Mapping[str, Any]
    number: int
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the option."""
        return {STAGE: json.dumps(asdict(self))}

    def stage(self, every: pa.Schema, axes: Sequence[str], selected: Mapping[str, Field]) -> Stage:
        """Return the step of the reading tasks. Raises OptionError for what the source does not have.

        every: the columns of the source. axes: its time axes. selected: columns that are fields of keys and values.
        """
        unknown = next((axis for axis in self.times.values() if axis not in axes), None)
        if unknown is not None:
            raise OptionError(f"option {STAGE}: axis must be one of {', '.join(map(repr, axes))}, not {unknown!r}")
        fields = {name: field_of(STAGE, text, every.names, selected) for name, text in self.fields.items()}
        readers = {name: FieldReader(field, every) for name, field in fields.items()}
        names = {field.column for field in fields.values()}
        schema = [pa.field(name, reader.type) for name, reader in readers.items()]
        schema += [pa.field(name, pa.int64()) for name in self.times]
        return Stage(
            columns=pa.schema([column for column in every if column.name in names]),
            readers=tuple(readers.values()),
            axes=tuple(self.times.values()),
            shipped=_INPUTS[self.exchange["kind"]].of(self.exchange, pa.schema(schema)),
            buckets=self.buckets,
            number=self.number,
        )


def stage_of(
    settings: Mapping[str, str], axes: Mapping[str, TimeAxis], selection: SelectedColumns, *, headers: bool
) -> Stage:
    """Return the stage that the options ask for, and reject options that contradict it. settings: lower-case names."""
    for name in ("emitControl", "barriers"):
        if not boolean(name, settings.get(name.lower(), "true")):
            raise OptionError(
                f"option {name}: false contradicts the operator over this read, which needs control rows: set true"
            )
    text, every = settings[STAGE], selection.every(tuple(axes), headers=headers)
    try:
        return StageSpec(**parse_json(text)).stage(every, tuple(axes), selection.fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise wrong(STAGE, text, "what an operator over keyedwm.spark.source writes is expected") from error
