"""Sources of others in a session: whatever their JSON contains, the export of other queries goes on."""

from __future__ import annotations

import json
import logging

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from keyedwm.spark.inspect.progress import source_progress
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.figures import Figures
from keyedwm.spark.metrics.otel import OtelExporter
from keyedwm.spark.metrics.prometheus import _SentExporter, file_exporter
from tests.metrics.told import RUN, Clock, Told, value, values, with_source
from tests.source.plans import Simulation
from tests.tools import wait_until

# Kafka's own offset has the topics as keys; a Python source reports what it likes.
TOPIC = json.dumps({"state_key": {"0": 7}, "version": {"0": 1}})
FOREIGN = {
    "a topic state_key": {"startOffset": TOPIC, "endOffset": TOPIC, "latestOffset": TOPIC},
    "a topic held_by": {"endOffset": '{"held_by": {"0": 7}}', "latestOffset": '{"held_by": {"0": 9}}'},
    "both topics": {"endOffset": TOPIC, "latestOffset": '{"held_by": {"0": 9}}'},
    "a text": {"endOffset": 'at "state_key"', "latestOffset": "null"},
    "a list": {"endOffset": '["state_key"]', "latestOffset": '["held_by"]'},
    "no version": {"endOffset": '{"state_key": "a"}', "latestOffset": "null"},
}


@pytest.fixture
def figures() -> Figures:
    return Figures(Clock(), partitions=2)


@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN)
def test_a_source_of_others_has_no_figures_and_disturbs_none(figures, fields):
    ours = Told(Simulation({0: [1_000]}))
    figures.progressed(ours.progress())
    theirs = Told(Simulation({0: [1_000]}), name="theirs", id=RUN)
    figures.progressed(with_source(theirs.progress(), **fields))
    assert values(figures, of.BATCHES) == {("orders",): 1, ("theirs",): 1}
    assert values(figures, of.SNAPSHOTS) == {("orders", "0"): 1}


@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN)
def test_the_progress_of_a_query_skips_sources_of_others(fields):
    class Query:
        lastProgress = with_source(Told(Simulation({0: [1_000]})).progress(), **fields)  # noqa: N815 (Spark's name)

    assert source_progress(Query()) == []


@pytest.fixture
def unreadable(figures: Figures) -> Figures:
    """Figures of two queries; of one of them the source's offset cannot be read."""
    figures.progressed(Told(Simulation({0: [1_000]})).progress())
    damaged = Told(Simulation({0: [1_000]}), name="damaged", id=RUN)
    figures.progressed(with_source(damaged.progress(), endOffset='{"state_key": "a", "version": 99}'))
    return figures


def test_an_offset_that_cannot_be_read_is_warned_of_once_and_hides_its_source_alone(unreadable, caplog):
    with caplog.at_level(logging.WARNING, "keyedwm.metrics"):
        assert values(unreadable, of.PARTITIONS).keys() == {("orders", "0", "active"), ("orders", "0", "idle")}
        assert values(unreadable, of.QUERY_ACTIVE) == {("orders",): 1, ("damaged",): 1}
    (warning,) = caplog.messages
    assert warning.startswith("metrics: source 0 of query damaged cannot be read: ")
    unreadable.terminated(RUN, RUN, failed=True)
    assert value(unreadable, of.QUERY_FAILURES, "damaged") == 1


def test_an_offset_that_cannot_be_read_leaves_the_other_figures_to_opentelemetry(unreadable):
    reader = InMemoryMetricReader()
    exporter = OtelExporter(unreadable, MeterProvider([reader]))
    ((scope,),) = [of_resource.scope_metrics for of_resource in reader.get_metrics_data().resource_metrics]
    points = {one.name: [dict(point.attributes)["query"] for point in one.data.data_points] for one in scope.metrics}
    exporter.close()
    assert points["keyedwm.query_active"] == ["orders", "damaged"]
    assert points["keyedwm.partitions"] == ["orders", "orders"]


def test_an_offset_that_cannot_be_read_leaves_the_other_figures_to_a_file(unreadable, tmp_path):
    path = tmp_path / "keyedwm.prom"
    file_exporter(unreadable, str(path)).close()
    assert 'keyedwm_query_active{query="orders"} 1.0' in path.read_text()


def test_figures_are_sent_again_after_an_error_of_any_kind(caplog):
    attempts = []

    def send() -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise KeyError("idle")

    with caplog.at_level(logging.WARNING, "keyedwm.metrics"):
        exporter = _SentExporter("the place", send)
        exporter.changed()
        wait_until(lambda: attempts, "the attempt that fails")
        exporter.close()
    assert len(attempts) == 2
    assert [text.partition(",")[0] for text in caplog.messages] == [
        "metrics cannot be sent to the place", "metrics are sent to the place again",
    ]  # fmt: skip
