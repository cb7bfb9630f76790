"""State of a bucket: how it is named."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from keyedwm.spark.hosting.bucket_state import _BLOB, _BLOB_NAME, _NOTE, BucketOwner, named_state, take_over


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


@pytest.mark.parametrize("null", [None, math.nan], ids=["pandas 2", "pandas 3"])
def test_a_row_without_a_blob_adds_no_state_to_a_bucket(null: object) -> None:
    manifest, blobs = MagicMock(), MagicMock()
    manifest.exists.return_value = False
    rescaled = MagicMock(follows={})
    rescaled.first_manifest.return_value.as_json.return_value = {"blobs": {}}
    rescaled.manifest_with.return_value = b"of the operator"
    initial = pd.DataFrame({"name": ["a", null], "blob": [b"1", None], "entry": ["{}", null]}, dtype=object)
    owner = BucketOwner(SimpleNamespace(ids=(0,)), 0, {})
    take_over((manifest, blobs), initial, rescaled, owner)
    (_, pieces, _), _ = rescaled.manifest_with.call_args
    assert [piece.name for piece in pieces] == ["a"]
    assert json.loads(manifest.update.call_args[0][0][0])["blobs"] == {"a": 1, "note": 15}
