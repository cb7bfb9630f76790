"""State of a bucket: how it is named."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from keyedwm.spark.hosting.bucket_state import named_state


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
