"""The Arrow type of a record's headers, as Spark's Kafka source has it: of rows read, and of rows written."""

from __future__ import annotations

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
