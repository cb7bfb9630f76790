"""State of a bucket: how it is named."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from keyedwm.spark.hosting.bucket_state import _BLOB, _BLOB_NAME, _NOTE, named_state


class _Jvm:
    """What PySpark's handle asks the JVM through; a text to parse would be a question more in every task."""

    def get_value_state(self, *_: object) -> None:
        """Name the note."""

    def get_map_state(self, *_: object) -> None:
        """Name the blobs."""

    def _parse_string_schema(self, schema: str) -> None:
        raise AssertionError(f"the JVM is asked to parse {schema}")


def test_a_bucket_does_not_ask_the_jvm_what_its_state_looks_like() -> None:
    jvm: Any = _Jvm()
    named_state(StatefulProcessorHandle(jvm))


def test_types_of_a_buckets_state_are_those_that_checkpoints_hold() -> None:
    field = '{{"fields":[{{"metadata":{{}},"name":"{}","nullable":true,"type":"{}"}}],"type":"struct"}}'
    held = [("note", "string"), ("name", "string"), ("blob", "binary")]
    assert [one.json() for one in (_NOTE, _BLOB_NAME, _BLOB)] == [field.format(*of_one) for of_one in held]
