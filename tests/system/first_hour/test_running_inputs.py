"""Rows `running` of inputs.tsv: what only a running query can find wrong, driven as a user drives it.

`*` in a sentence stands for what differs from run to run.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from keyedwm.spark import reason
from tests.system.first_hour.test_inputs import ROWS
from tests.tools import Record, produce

RUNNING = [row for row in ROWS if row[0] == "running"]


class Hour:
    """A topic of two records, and queries from it into a Delta table."""

    def __init__(self, spark, kafka, topic_of, home: Path) -> None:
        self.spark, self.bootstrap, self.topic_of, self.home = spark, kafka.bootstrap, topic_of, home
        self.table = home / "table"
        self.topic = topic_of(2)
        produce(self.bootstrap, self.topic, [Record(0, 1, b"{}"), Record(1, 1, b"{}")])

    def read(self, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format("keyedwm").options(**given | options).load()

    def told(self, frame: DataFrame) -> str | None:
        """Run to the end of what is there; the reason why the query failed, None if it has not."""
        writer = frame.writeStream.format("keyedwm").option("checkpointLocation", str(self.home / "checkpoint"))
        query = writer.option("path", str(self.table)).trigger(availableNow=True).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        return reason(query)


def another_topic(hour: Hour) -> str | None:
    assert hour.told(hour.read()) is None
    return hour.told(hour.read(subscribe=hour.topic_of(1)))


def deleted_table(hour: Hour) -> str | None:
    assert hour.told(hour.read()) is None
    shutil.rmtree(hour.table)
    produce(hour.bootstrap, hour.topic, [Record(0, 2)])
    return hour.told(hour.read())


SCENARIOS: dict[str, Callable[[Hour], str | None]] = {
    "subscribe names a topic that does not exist": lambda hour: hour.told(hour.read(subscribe="nowhere")),
    "startingOffsets names one of two partitions": lambda hour: hour.told(
        hour.read(startingOffsets=f'{{"{hour.topic}": {{"0": 0}}}}')
    ),
    "onBadEventTime=fail and values without the field of eventTime": lambda hour: hour.told(
        hour.read(eventTime="json:$.at", onBadEventTime="fail")
    ),
    "control rows filtered away before the sink": lambda hour: hour.told(hour.read().where("value IS NOT NULL")),
    "subscribe changed on a checkpoint": another_topic,
    "the Delta table deleted under its checkpoint": deleted_table,
}


def test_every_scenario_has_a_row_and_every_row_a_scenario():
    assert [row[1] for row in RUNNING] == list(SCENARIOS)


@pytest.mark.parametrize(
    ("text", "sentence", "written"), [(row[1], row[2], row[4]) for row in RUNNING], ids=[row[1] for row in RUNNING]
)
def test_a_running_query_ends_with_its_sentence(spark, kafka, topic_of, tmp_path, text, sentence, written):
    hour = Hour(spark, kafka, topic_of, tmp_path)
    told = SCENARIOS[text](hour)
    wanted = re.escape(sentence).replace(r"\*", ".*").replace(r"\{tmp\}", re.escape(str(tmp_path)))
    assert re.fullmatch(wanted.replace(r"\{topic\}", hour.topic), str(told)), told
    there = (hour.table / "_delta_log").exists()
    assert written == ("what the query had written before" if there else "nothing")
