"""A query that failed is asked why by its checkpoint alone, as from another host: `keyedwm watch --once --json`."""

from __future__ import annotations

import json

import pytest

from keyedwm.cli.main import main
from tests.tools import Record, produce


def test_watch_says_why_the_last_batch_failed_until_a_batch_is_committed(load, kafka, topic_of, tmp_path, capsys):
    topic, table, checkpoint = topic_of(1), tmp_path / "table", tmp_path / "checkpoint"

    def run() -> None:
        produce(kafka.bootstrap, topic, [Record(0, 1_000, b"row")])
        writer = load(topic, {"idleTimeout": "none"}).writeStream.format("keyedwm").option("path", str(table))
        writer = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
        writer.start().awaitTermination()

    def last_error() -> dict | None:
        assert main(["watch", str(checkpoint), "--once", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["last_error"]

    run()
    assert last_error() is None
    kept = (table / "_delta_log").rename(tmp_path / "log")
    with pytest.raises(Exception, match="there is no Delta table"):
        run()
    error = last_error()
    assert f"there is no Delta table at {table}, but batch {error['batch']} of query" in error["text"]
    kept.rename(table / "_delta_log")
    run()
    assert last_error() is None
