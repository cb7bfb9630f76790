"""Rows that no attempt can write: told as input to fix, with their column and place."""

from __future__ import annotations

import re
import uuid
from datetime import date

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from pyspark_wm_sink.delta.partitions import partitions_of
from pyspark_wm_sink.kafka.stage import _by_topic
from pyspark_wm_sink.tables.row_rules import NO_RULES
from pyspark_wm_sink.tables.row_values import as_written

PLACES = {"topic": ["t"] * 5, "partition": [3] * 5, "offset": list(range(10, 15))}
GOOD = str(uuid.UUID(int=7))


@pytest.mark.parametrize("wrong", range(5))
def test_a_value_that_the_type_of_the_table_cannot_hold_is_named_with_its_place(wrong):
    texts = [GOOD] * 5
    texts[wrong] = "no"
    rows = pa.table({"u": pa.chunked_array([texts[:2], texts[2:]]), **PLACES})
    schema = pa.schema([pa.field("u", pa.uuid()), *rows.schema.remove(0)])
    sentence = (
        f"column u has a value that .* in a row \\(t-3, offset {10 + wrong}\\): leave such rows out .*fix the input"
    )
    with pytest.raises(InputError, match=sentence):
        as_written(rows, schema, NO_RULES, has_offsets=True)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (pa.array([0, 2**40, 0, 0, 0], pa.int64()).cast(pa.timestamp("s")), "beyond the years 1 to 9999"),
        (pa.array(["a", "__HIVE_DEFAULT_PARTITION__", "a", "a", "a"]), "the text __HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_value_that_partitions_no_delta_table_is_named_with_its_place(values, sentence):
    rows = pa.table({"p": values, **PLACES})
    with pytest.raises(
        InputError, match=rf"column p, which partitions the table, holds .*{sentence}.* \(t-3, offset 11\)"
    ):
        list(partitions_of(rows, ["p"], has_offsets=True))
    assert len(list(partitions_of(rows.set_column(0, "p", pa.array([date(1, 1, 1)] * 5)), ["p"]))) == 1


@pytest.mark.parametrize("topic", [b"a b", b"", b"..", b"x" * 250, "你".encode(), b"\xff", b"a\0"])
def test_a_row_whose_topic_kafka_cannot_have_is_named_by_its_column(topic):
    raw = pa.array([b"fine", topic])
    rows = pa.table({"topic": pa.Array.from_buffers(pa.string(), 2, raw.buffers()), "value": ["a", "b"]})
    topic_text = repr(topic.decode(errors="replace"))
    with pytest.raises(InputError, match=re.escape(f"column topic holds {topic_text} in 1 rows, which is not a legal")):
        list(_by_topic(rows, None))


def test_rows_go_to_the_topics_that_they_name():
    rows = pa.table({"topic": ["b", "a._-", "b"], "value": [1, 2, 3]})
    assert {name: of["value"].to_pylist() for name, of in _by_topic(rows, None)} == {"a._-": [2], "b": [1, 3]}
