"""Values of `storage.*` that deltalake repeats in its errors show in no message and no cause of ours."""

from __future__ import annotations

import re
import traceback

import pytest

from keyedwm.core.errors import OptionError, UnavailableError
from pyspark_wm_sink.delta.library_errors import NoAnswerError
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


@pytest.mark.parametrize(
    ("path", "storage", "kind", "sentence"),
    [
        ("hdfs://no-such.invalid:9000/t", {}, NoAnswerError, "at no-such.invalid:9000: no machine has this name"),
        ("hdfs://127.0.0.1:1/t", {}, NoAnswerError, "at 127.0.0.1:1: nothing listens at its port"),
        ("s3://bucket/t", {"aws_endpoint_url": "http://127.0.0.1:1", "allow_http": "true", **KEYS}, NoAnswerError,
         "the Delta table s3://bucket/t could not be opened, because nothing answers at 127.0.0.1:1: nothing listens"),
        ("hdfs://cluster", {}, OptionError, "an address that names its server is expected"),
        ("hdfs:///t", {}, OptionError, "an address that names its server is expected"),
    ],
)  # fmt: skip
def test_an_address_at_which_nothing_answers_is_told_with_its_server(path, storage, kind, sentence) -> None:
    with pytest.raises(kind, match=re.escape(sentence)) as error:
        open_table(path, storage)
    assert "fix your options" in str(error.value)
    assert "nothing was lost" not in str(error.value)
