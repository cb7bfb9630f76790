"""One warning when no event time of a topic can be read, or all in the wrong unit: an example, and the right option.

Rule: the reading task warns, since only reading tasks read records. A process warns once for each time axis and topic,
and only while a channel has no watermark. Rows are kept (`onBadEventTime=null`). Rows from upstream without their event
times cause one warning, too: their time of writing is ahead of the watermark, so they are never late.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.instants import iso_text
from keyedwm.arrow.json_scan import Path, find
from keyedwm.arrow.places import EventTimeReader, EventTimes
from keyedwm.core.places import EventTime, Place, Unit, column_of
from keyedwm.core.text import short_repr
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.task.empty_fields import json_advice

_log = logging.getLogger("keyedwm.source")
_warned: set[tuple[str, EventTime]] = set()
_long_ago: set[tuple[str, EventTime]] = set()
_unwritten: set[tuple[str, EventTime]] = set()
# A unit is advised only if it gives a time of these years, since most numbers can be read in several units.
_YEAR_1990_MS, _YEAR_2100_MS = 631_152_000_000, 4_102_444_800_000
# A time of these years, read in too large a unit, is before this day of February 1970.
_NEXT_UNIT = 1_000
_TEXT_SHOWN = 40  # most characters shown of a text that is no event time


def warn_unreadable(topic: str, channel: str, spec: EventTime, records: Records) -> None:
    """Warn once that none of these records' event times can be read."""
    if (topic, spec) not in _warned:
        _warned.add((topic, spec))
        _log.warning("%s", sentence(channel, spec, records))


def warn_undecoded(topic: str, channel: str, spec: EventTime, count: int) -> None:
    """Warn once that none of `count` values with a schema has an event time."""
    if (topic, spec) not in _warned:
        _warned.add((topic, spec))
        _log.warning(
            "%s: none of the first %d event times could be read from %s (unit %s), so there is no watermark: check the "
            "path against the schema, and eventTimeUnit where the schema has no logical type",
            channel, count, spec.text, spec.unit.value,
        )  # fmt: skip


def warn_if_long_ago(topic: str, channel: str, spec: EventTime, records: Records, times: EventTimes) -> None:
    """Warn once if all readable times are of 1970, but of our years in another unit."""
    warning = None if (topic, spec) in _long_ago else long_ago(channel, spec, records, times)
    if warning is not None:
        _long_ago.add((topic, spec))
        _log.warning("%s", warning)


def long_ago(channel: str, spec: EventTime, records: Records, times: EventTimes) -> str | None:
    """Return a warning that the unit is too small, None unless the records' own timestamps show it."""
    ms, valid = times
    read = np.ones(len(ms), bool) if valid is None else valid
    if not read.any() or ms[read].max() >= _YEAR_2100_MS // _NEXT_UNIT or ms[read].min() < 0:
        return None
    some = only(records, read)
    unit = _plausible_unit(spec, some) if some.timestamp_ms.min() >= _YEAR_1990_MS else None
    if unit is None:
        return None
    right_ms, _ = _read_as(unit, spec, only(some, np.arange(some.count) == 0))
    return (
        f"{channel}: all {some.count} event times that were read first from {spec.text} (unit {spec.unit.value}) are "
        f"of {iso_text(int(ms[read].max()))} or before, while the records' own timestamps begin at "
        f"{iso_text(int(some.timestamp_ms.min()))}; the record at offset {int(some.offset[0])} has "
        f"{_example(spec, some)}, and eventTimeUnit={unit.value} would read it as {iso_text(int(right_ms[0]))}"
    )


def only(records: Records, mask_of_rows: NDArray[np.bool_]) -> Records:
    """Return the records that a mask selects."""
    mask = pa.array(mask_of_rows)
    return replace(
        records,
        count=int(np.count_nonzero(mask_of_rows)),
        key=None if records.key is None else records.key.filter(mask),
        value=None if records.value is None else records.value.filter(mask),
        headers=None if records.headers is None else records.headers.filter(mask),
        offset=records.offset[mask_of_rows],
        timestamp_ms=records.timestamp_ms[mask_of_rows],
        timestamp_type=records.timestamp_type[mask_of_rows],
    )


def warn_unwritten(topic: str, channel: str, spec: EventTime, count: int) -> None:
    """Warn once that `count` records have no event time from upstream."""
    if (topic, spec) not in _unwritten:
        _unwritten.add((topic, spec))
        _log.warning(
            "%s: records without the header %s were read, %d so far; their event time is their timestamp, and if that "
            "is the time of writing, windows buffer them until upstream's watermark reaches it: keep the column %s in "
            "the frame that the sink writes (keyedwm 0.3.0 or later), or set eventTime to the place of the event time",
            channel, spec.path[0], count, column_of(str(spec.path[0])),
        )  # fmt: skip


def sentence(channel: str, spec: EventTime, records: Records) -> str:
    """Return a sentence with the text in the first record, and the option that would read it."""
    count = records.count
    return (
        f"{channel}: none of the first {count} event times could be read from {spec.text} "
        f"(unit {spec.unit.value}), so there is no watermark; the record at offset {int(records.offset[0])} has "
        f"{_example(spec, records)}; {_advice(spec, records)}"
    )


def refusal(channel: str, spec: EventTime, record: Records) -> str:
    """Return a sentence with the text of one record that is no event time, and the text expected there."""
    unit = _plausible_unit(spec, record)
    hint = "" if unit is None else f", and eventTimeUnit={unit.value} would read it"
    return (
        f"{channel}: the record at offset {int(record.offset[0])} has no usable event time in {spec.text} (unit "
        f"{spec.unit.value}): it has {_example(spec, record)}, where {_expected(spec)}{hint}; onBadEventTime=null "
        f"would keep it with a null event time"
    )


def _expected(spec: EventTime) -> str:
    if spec.place is Place.TIMESTAMP:
        return "a time from 1970 to 9999 is expected"
    if spec.unit is Unit.ISO:
        return "ISO 8601 is expected, such as 2024-01-02T03:04:05.678Z"
    return f"a number of {spec.unit.name.lower()} since 1970 is expected"


def _example(spec: EventTime, records: Records) -> str:
    """Return the text at the place in the first record, without the rest of the record, which may be secret."""
    if spec.place is Place.TIMESTAMP:
        return f"the timestamp {int(records.timestamp_ms[0])}"
    if spec.place in (Place.HEADER, Place.SINK_HEADER):
        headers = records.headers[0].as_py() or [] if records.headers is not None else []
        texts = [header["value"] for header in headers if header["key"] == spec.path[0]]
        if texts:
            return f"the text {_excerpt(texts[-1] or b'')} there"
        names = ", ".join(sorted({str(header["key"]) for header in headers}))
        return f"the headers {short_repr(names)}" if headers else "no headers"
    texts = _json_texts(spec, records).slice(0, 1)
    if texts.null_count:
        return f"no {spec.place.name.lower()}"
    data, start, end = find(texts, Path(spec.path))
    if start[0] >= 0:
        return f"the text {_excerpt(bytes(data[start[0] : end[0]]))} there"
    return f"nothing there: {json_advice(spec.place.value, texts, spec.path)}"


def _excerpt(text: bytes) -> str:
    return short_repr(text.decode(errors="replace"), _TEXT_SHOWN)


def _json_texts(spec: EventTime, records: Records) -> pa.Array:
    """The JSON texts in which the event times lie."""
    column = records.key if spec.place is Place.KEY else records.value
    return pa.nulls(records.count, pa.binary()) if column is None else column


def _advice(spec: EventTime, records: Records) -> str:
    """Name a unit that reads every record, if there is one."""
    if spec.place in (Place.TIMESTAMP, Place.SINK_HEADER):
        return "set eventTime to where the event time is: json:$.a.b, avro:$.a.b, proto:$.a.b, key:$.a or header:NAME"
    unit = _plausible_unit(spec, records)
    if unit is not None:
        return f"eventTimeUnit={unit.value} would read it"
    return "set eventTime to the path or header of the event time, and eventTimeUnit to s, ms, us, ns or iso"


def _plausible_unit(spec: EventTime, records: Records) -> Unit | None:
    """Return the unit that gives every record a time of our years, None if there is none."""
    for unit in Unit:
        ms, valid = _read_as(unit, spec, records)
        plausible = (ms >= _YEAR_1990_MS) & (ms < _YEAR_2100_MS)
        if np.all(plausible if valid is None else plausible & valid):
            return unit
    return None


def _read_as(unit: Unit, spec: EventTime, records: Records) -> EventTimes:
    other = EventTime(spec.place, spec.path, unit)
    return EventTimeReader(other).read(records.timestamp_ms, records.key, records.value, records.headers)
