"""A Delta table in an object store: a running S3-compatible server is named by KEYEDWM_S3=http://host:port/bucket.

Its access key and secret are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Skipped where there is none.
"""

from __future__ import annotations

import os
import uuid

import pytest

from keyedwm.cli.main import main

SERVER = os.environ.get("KEYEDWM_S3", "")


@pytest.mark.skipif(not SERVER, reason="KEYEDWM_S3 names no S3-compatible server")
def test_a_partitioned_table_in_an_object_store_is_written_exactly_once_and_inspected(spark, feed, drain, capsys):
    endpoint, _, bucket = SERVER.rpartition("/")
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    reach = {
        "aws_endpoint_url": endpoint, "aws_allow_http": "true", "aws_region": "eu-west-1",
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": secret,
        "aws_conditional_put": "etag",
    }  # fmt: skip
    path = f"s3://{bucket}/{uuid.uuid4().hex}"
    options = {"path": path, "partitionBy": "partition", **{f"storage.{name}": value for name, value in reach.items()}}
    feed.cut(0, (2, 2), 1_000)
    feed.cut(1, (4, 4), 2_000)
    drain(feed.read(spark), **options)
    drain(feed.read(spark), **options)
    assert values_at(path, reach) == [f"{p}:{n}" for p in (0, 1) for n in range(4)]
    assert main(["inspect", path, *(f"--storage={name}={value}" for name, value in reach.items())]) == 0
    said = capsys.readouterr().out
    assert "version 2, partitioned by partition" in said
    assert secret not in said


def values_at(path: str, reach: dict[str, str]) -> list[str]:
    from deltalake import DeltaTable

    column = DeltaTable(path, storage_options=reach).to_pyarrow_table(columns=["value"]).column("value")
    return sorted(value.decode() for value in column.to_pylist())
