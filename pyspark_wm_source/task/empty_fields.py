"""One warning when the first records have no value of a field, or no value of its type.

Rule: the reading task warns, since only reading tasks read records. A process warns once for each topic, asker and
field.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from keyedwm.arrow.json_scan import Path, find
from keyedwm.arrow.places import FieldReader
from keyedwm.arrow.rows import Events
from keyedwm.arrow.text_values import strings
from keyedwm.core.parsing import parse_json
from keyedwm.core.places import Field, path_advice
from keyedwm.core.rows import KEY
from pyspark_wm_source.task.items import EventRun, Item

_log = logging.getLogger("keyedwm.source")
# Fewer records may lack a path by chance; more records are not examined.
_ENOUGH, _MOST = 10, 1_000
_ADVISED_TEXTS = 10
_warned: set[tuple[str, str, str]] = set()


class Asker(Enum):
    """The reader of a field, and the consequence if the field is null in all records."""

    COLUMNS = ("option columns", "so its column is null there")
    WHERE = ("option where", "which is right if it asks for IS NULL")
    OPERATOR = ("the operator", "so it is null there")


def with_warnings(items: Iterable[Item], fields: Sequence[Field], asker: Asker) -> Iterator[Item]:
    """Yield the items, and warn of fields that none of the first records has."""
    for item in items:
        if isinstance(item, EventRun):
            warn_of_missing(item.events, fields, asker)
        yield item


def warn_of_missing(events: Events, fields: Iterable[Field], asker: Asker) -> None:
    """Warn of each field that none of these records has, once per field. Too few records cause no warning."""
    name, meaning = asker.value
    for field in fields:
        subject = (events.topic, name, field.text)
        if not field.path or field in events.decoded or subject in _warned:
            continue
        texts = _texts(events, field)
        if len(texts) < _ENOUGH:
            continue
        _warned.add(subject)
        why = _missing(texts, field)
        if why is not None:
            _log.warning(
                "%s-%d: %s is null in all of the %d records in which %s looked for it first, %s; %s",
                events.topic, events.partition, field.text, len(texts), name, meaning, why,
            )  # fmt: skip


def _texts(events: Events, field: Field) -> pa.Array:
    """Return the first keys or values that are not null."""
    column = events.key if field.column == KEY else events.value
    return pa.nulls(0, pa.binary()) if column is None else column.slice(0, _MOST).drop_null()


def _missing(texts: pa.Array, field: Field) -> str | None:
    """Return why the field is null in all texts. None if some text has a value, or all have JSON's null."""
    spans = find(texts, Path(field.path))
    count = int(np.count_nonzero(spans[1] >= 0))
    if not count:
        head, _, _ = field.text.partition(":")
        return f"the path is in none of them: {json_advice(head, texts, field.path)}"
    read = FieldReader(field, pa.schema([])).read(texts, spans)
    if field.kind is None or read.null_count < len(read) or strings(*spans).null_count == len(read):
        return None
    return f"{count} of them have it, and none of these values reads as {field.kind.value}: check the type"


def json_advice(head: str, texts: pa.Array, steps: Sequence[str | int]) -> str:
    """Name the likely path, or the present ones. head: `json` or `key`. steps: the path that no text has."""
    for depth in range(len(steps) - 1, -1, -1):
        data, start, end = find(texts, Path(steps[:depth]))
        (rows,) = np.nonzero(start >= 0)
        values = [_value(bytes(data[start[row] : end[row]])) for row in rows[:_ADVISED_TEXTS]]
        if (values and depth) or any(isinstance(value, (dict, list)) for value in values):
            names = {name for value in values if isinstance(value, dict) for name in value}
            sizes = [len(value) for value in values if isinstance(value, list)]
            return path_advice(head, steps, depth, sorted(names), max(sizes, default=None))
    return "check that the records are JSON"


def _value(text: bytes) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return None
