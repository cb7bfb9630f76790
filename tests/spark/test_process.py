"""A processor of the user's own through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.spark import Processor, process
from tests.spark.started import AHEAD, event, keyed

pytestmark = pytest.mark.usefixtures("bucket_conf")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def test_ids_come_once_also_after_a_restart(topic_of, load, started):
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": 1}, "inputs=1: a frame, or keyedwm.spark.source.spark., is expected"),
        ({"processor": dict}, "a subclass of keyedwm.spark.Processor, or a function that returns one, is expected"),
        ({"by": "kk"}, "process: the frame has no column 'kk'; did you mean 'k'"),
        ({"schema": "k strin"}, "schema='k strin' is no schema of Spark"),
        ({"schema": []}, "an Arrow schema, or a text such as 'id string', is expected"),
        ({"schema": "k string, watermark int"}, "a result column cannot be called 'watermark'"),
        ({"name": ""}, "name='': a text is expected"),
        ({"buckets": 0}, "buckets"),
        ({}, r"Processor has no on_rows\(input_number, rows\), which takes the rows: write one"),
    ],
)
def test_a_wrong_call_is_one_sentence(topic_of, load, change, said):
    given = {"inputs": None, "by": "k", "processor": Processor, "schema": "k string"} | change
    if given["inputs"] is None:
        given["inputs"] = keyed(load(topic_of(1)))
    with pytest.raises((OptionError, InputError), match=said):
        process(**given)
