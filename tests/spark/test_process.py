"""A processor of the user's own through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

from functools import partial
from threading import Lock

import pyarrow as pa
import pytest

from keyedwm.cli.inspect_state import print_state
from keyedwm.cli.printable import PlainConsole
from keyedwm.core.errors import InputError, OptionError
from keyedwm.spark import Processor, held_messages, held_rows, process
from tests.spark.started import AHEAD, BASE_MS, event, keyed, steer

pytestmark = pytest.mark.usefixtures("bucket_conf")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


class Holding(Processor):
    def __init__(self, held):
        self.held = held

    def on_rows(self, input_number, rows):  # noqa: ARG002
        return ()


def test_ids_come_once_also_after_a_restart_and_are_listed(topic_of, load, started, capsys):
    class Deduplicate(Processor):  # here, so that Spark's workers get it by value
        def on_rows(self, input_number, rows):  # noqa: ARG002
            import pyarrow.compute as pc

            held = self.state.read("seen")
            if held is not None:
                rows = rows.filter(pc.invert(pc.is_in(rows["v"], value_set=held["v"])))
            self.state.append("seen", rows.select(["v"]))
            yield rows.select(["k", "v", "event_time"])

    topic = topic_of(2)
    query = started(process(keyed(load(topic, idleTimeout="none")), "k", Deduplicate, SCHEMA, buckets=1, name="once"))
    made = query.give(topic, [AHEAD, event(1_000, "a", 7), event(2_000, "b", 8), event(3_000, "a", 9)])
    query.restart()
    made += query.give(topic, [event(4_000, "a", 7), event(5_000, "b", 8), event(6_000, "b", 3)])
    events = [(row["k"], row["v"]) for row in made if row["control"] is None]
    assert sorted(events) == [("a", 7), ("a", 9), ("b", 3), ("b", 8)]
    told = query.metrics()
    assert (told["largest_bucket"], told["largest_bucket_bytes"]) == (0, told["median_bucket_bytes"])
    assert told["median_bucket_bytes"] > 100
    spark, checkpoint = query._frame().sparkSession, query._checkpoint
    for logs in ("", "se", "seen"):
        listed = held_rows(spark, checkpoint, logs, "once").collect()
        assert sorted((row["log"], row["v"]) for row in listed) == [("seen", v) for v in (3, 7, 8, 9)]
    with pytest.raises(OptionError, match="no log begins with logs='x': the processor's logs are log 'seen': 4 rows"):
        held_rows(spark, checkpoint, "x")
    with pytest.raises(OptionError, match=r"the operators with a processor are called once \(process\): give one"):
        held_rows(spark, checkpoint, name="twice")
    with pytest.raises(OptionError, match=r"the query has no aggregate with a store: give aggregate"):
        held_messages(spark, checkpoint)
    print_state(PlainConsole.open(), checkpoint)
    assert "log 'seen': 4 rows" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": 1}, "inputs=1: a frame, or keyedwm.spark.kafka.*, is expected, or a list of them"),
        ({"processor": partial(Holding, Lock())}, "Holding cannot be sent to Spark's workers .*lock"),
        ({"processor": lambda rows: rows}, "a subclass of keyedwm.spark.Processor, or a function that returns"),
        ({"processor": dict}, "a subclass of keyedwm.spark.Processor, or a function that returns one, is expected"),
        ({"by": "kk"}, "process: the frame has no column 'kk'; did you mean 'k'"),
        ({"schema": "k strin"}, "schema='k strin' is no schema of Spark"),
        ({"schema": []}, "an Arrow schema, or a text such as 'id string', is expected"),
        ({"schema": "k string, watermark int"}, "a result column cannot be called 'watermark'"),
        ({"name": ""}, "name='': a text is expected"),
        ({"buckets": 0}, "buckets"),
        ({"inputs": []}, r"inputs=\[\]: one frame at least is expected"),
        ({"by": None}, "process: by=None: the names of columns are expected"),
        ({"by": ["k", 1]}, r"process: by=\['k', 1\]: the names of columns are expected"),
        ({"axis": 5}, "process: axis=5: one axis, or a list of one for each of 1 inputs"),
        ({"axis": ["", ""]}, "one axis, or a list of one for each of 1 inputs"),
        ({}, r"Processor has no on_rows\(input_number, rows\), which takes the rows: write one"),
    ],
)
def test_a_wrong_call_is_one_sentence(topic_of, load, change, said):
    given = {"inputs": None, "by": "k", "processor": Processor, "schema": "k string"} | change
    if given["inputs"] is None:
        given["inputs"] = keyed(load(topic_of(1)))
    with pytest.raises((OptionError, InputError), match=said):
        process(**given)


def test_two_inputs_meet_and_the_watermark_is_the_lower_one(topic_of, load, started):
    class Both(Processor):  # here, so that Spark's workers get it by value
        def on_rows(self, input_number, rows):
            import pyarrow as pa

            numbers = pa.array([input_number] * rows.num_rows, pa.int64())
            self.state.append("seen", rows.select(["k", "event_time"]).append_column("v", numbers))
            return ()

        def on_watermark(self, input_number, key, time_ms):  # noqa: ARG002
            seen = self.state.read("seen")
            if self.watermark_ms is not None and seen is not None:
                self.state.drop("seen")
                yield seen

    topics = topic_of(2), topic_of(2)
    frames = [keyed(load(topic, idleTimeout="none")).where("control IS NOT NULL OR k <> ''") for topic in topics]
    query = started(process(frames, "k", Both, SCHEMA, buckets=1, name="both"))
    assert [
        row for row in query.give(topics[0], [AHEAD, event(1_000, "a"), steer(5_000)]) if row["control"] is None
    ] == []
    made = query.give(topics[1], [AHEAD, event(2_000, "a"), steer(3_000)])
    assert sorted((row["k"], row["v"]) for row in made if row["control"] is None) == [("a", 0), ("a", 1)]
    told = [row["control"]["watermark"] for row in made if row["control"] is not None and row["control"]["watermark"]]
    assert [round(one.timestamp() * 1_000) - BASE_MS for one in told] == [3_000]
