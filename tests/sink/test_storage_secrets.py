"""Values of `storage.*` that deltalake repeats in its errors show in no message and no cause of ours."""

from __future__ import annotations

import traceback

import pytest

from keyedwm.core.errors import UnavailableError
from pyspark_wm_sink.delta.table import open_table

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "x", "max_retries": "0"}


@pytest.mark.parametrize(
    "storage",
    [
        {"aws_endpoint_url": "http://user:hunter2@127.0.0.1:1/", "allow_http": "true", **KEYS},
        {"allow_http": "hunter2", **KEYS},
        {"aws_allow_http": "hunter2", **KEYS},
    ],
    ids=["a login in an address", "a bad boolean", "another bad boolean"],
)
def test_a_secret_in_a_storage_option_shows_in_no_error(storage: dict[str, str]) -> None:
    with pytest.raises(UnavailableError, match=r"the Delta table s3://bucket/x could not be opened") as caught:
        open_table("s3://bucket/x", storage)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
