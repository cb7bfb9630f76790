"""The rules of a Delta table's columns for the rows that are staged (`tables.row_rules`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa
from deltalake import Schema

from pyspark_wm_sink.delta.features import text_type
from pyspark_wm_sink.tables.row_rules import RowRules, TextLimit

_TEXT = re.compile(r"(char|varchar)\((\d+)\)")


def row_rules(table: Schema, columns: pa.Schema, partition_by: Sequence[str] = ()) -> RowRules:
    """Return the rules of those of the table's columns that the rows have."""
    fields = [field for field in json.loads(table.to_json())["fields"] if field["name"] in columns.names]
    texts = []
    for field in fields:
        match = _TEXT.fullmatch(text_type(field["metadata"]) or "")
        if match is not None:
            texts.append(TextLimit(column=field["name"], most=int(match[2]), is_padded=match[1] == "char"))
    never_null = tuple(field["name"] for field in fields if not field["nullable"])
    never_empty = tuple(
        name for name in never_null if name in partition_by and pa.types.is_string(columns.field(name).type)
    )
    return RowRules(never_null=never_null, never_empty=never_empty, texts=tuple(texts))
