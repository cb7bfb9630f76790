"""Rejected messages as records of the topic that `errorsTo` names.

Rule: a message with a value is written unchanged, with key, value and headers, and with added headers for reason and
origin. A text that the query has made of the message (`to_json(rejected)`) is the record's value.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from keyedwm.core.errors import InputError
from keyedwm.core.rows import HEADERS, KEY, REASON, REJECTED, VALUE
from pyspark_wm_sink.kafka.headers import with_headers

REASON_HEADER, CHANNEL_HEADER, OFFSET_HEADER = "keyedwm.reason", "keyedwm.channel", "keyedwm.offset"
TIMESTAMP_HEADER = "keyedwm.timestamp"
_MS = pa.timestamp("ms", "UTC")
_NEEDED_FIELDS = (VALUE, REASON, "topic", "partition", "offset")


def check_error_column(kind: DataType) -> None:
    """Reject a column of messages that cannot become records. kind: the type of the column `rejected`."""
    if isinstance(kind, (StringType, BinaryType)):
        return
    names = kind.fieldNames() if isinstance(kind, StructType) else []
    missing = next((name for name in _NEEDED_FIELDS if name not in names), None)
    if missing is not None or not isinstance(kind, StructType):
        raise InputError(
            f"option errorsTo: the messages in column {REJECTED} have no {missing}: keep the columns key, value, "
            f"topic, partition and offset before the aggregate, or make a text of the message with to_json({REJECTED}) "
            f"AS {REJECTED}"
        )
    for name in (KEY, VALUE):
        if name in names and not isinstance(kind[name].dataType, (StringType, BinaryType)):
            type_name = kind[name].dataType.simpleString()
            raise InputError(
                f"option errorsTo: {name} of the messages in column {REJECTED} has type {type_name}, a record has "
                f"string or binary: leave it as the source has it, or make a text of the message with "
                f"to_json({REJECTED}) AS {REJECTED}"
            )


def error_records(rows: pa.Table) -> pa.Table:
    """Return key, value and headers of the records for rows with rejected messages."""
    messages = rows.column(REJECTED).combine_chunks()
    if not pa.types.is_struct(messages.type):
        names = [name for name in (KEY, HEADERS) if name in rows.column_names]
        return rows.select(names).append_column(VALUE, messages)
    whole = pa.Table.from_struct_array(messages).combine_chunks()
    records = whole.select([name for name in (KEY, VALUE, HEADERS) if name in whole.column_names])
    if not whole.num_rows:
        return records
    channel = pc.binary_join_element_wise(whole["topic"], whole["partition"].cast(pa.string()), "-")
    columns = {REASON_HEADER: whole[REASON], CHANNEL_HEADER: channel, OFFSET_HEADER: whole["offset"]}
    if "timestamp" in whole.column_names and pa.types.is_timestamp(whole["timestamp"].type):
        columns[TIMESTAMP_HEADER] = whole["timestamp"].cast(_MS).cast(pa.int64())
    values = [one.combine_chunks().cast(pa.string()).cast(pa.binary()) for one in columns.values()]
    return with_headers(records, tuple(columns), values)
