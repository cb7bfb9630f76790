"""Input that a target does not take: one clear sentence, before anything is written where that can be known."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType, StructType

from keyedwm.core.errors import InputError, KeyedwmError, OptionError
from keyedwm.core.rows import CONTROL_FIELDS
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing import admin
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, stage
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_sink.writer import stream_writer
from tests.secured import PASSWORD, Secured
from tests.secured import allow as allow_on
from tests.sink.conftest import records_of


@pytest.fixture
def boss(secured: Secured) -> Iterator[Cluster]:
    cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
    yield cluster
    cluster.close()


@pytest.fixture
def grant(secured: Secured) -> Iterator:
    client = KafkaAdminClient(
        bootstrap_servers=secured.bootstrap, security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_plain_username="boss", sasl_plain_password=PASSWORD, ssl_cafile=str(secured.home / "cert.pem"),
    )  # fmt: skip

    def allow(operation: ACLOperation, kind: ResourceType, name: str) -> None:
        pattern = ResourcePattern(kind, name)
        allow_on(client, [ACL("User:guest", "*", operation, ACLPermissionType.ALLOW, pattern)])

    yield allow
    client.close()


def guest_plan(secured: Secured, topic: str, stem: str) -> KafkaStagePlan:
    return KafkaStagePlan(
        client=ClientConfig.from_options(secured.options("guest")), topic=topic, stem=stem, timeout_ms=60_000,
        transactional=True, columns=("value",), has_control=False, has_offsets=False,
    )  # fmt: skip


def task() -> Task:
    return Task(query=None, run="run", batch=0, partition=0, attempt=0, number=0)


def test_a_topic_without_permission_is_named_and_nothing_is_visible(secured, boss, grant, topic):
    admin.create_topic(boss, topic)
    rows = [pa.record_batch({"value": ["a"]})]
    plan = guest_plan(secured, topic, topic)
    where = f"{topic}-0-0-run-0"
    with pytest.raises(AccessError, match=f"not allowed to use transactional id '{where}'"):
        stage(plan, task(), rows)
    grant(ACLOperation.WRITE, ResourceType.TRANSACTIONAL_ID, where)
    with pytest.raises(AccessError, match=f"not allowed to describe topic '{topic}'"):
        stage(plan, task(), rows)
    grant(ACLOperation.DESCRIBE, ResourceType.TOPIC, topic)
    with pytest.raises(AccessError, match=f"transaction '{where}' cannot be extended to {topic}-0"):
        stage(plan, task(), rows)
    assert boss.latest([(topic, 0)], Isolation.READ_UNCOMMITTED) == {(topic, 0): 0}
    grant(ACLOperation.WRITE, ResourceType.TOPIC, topic)
    assert stage(plan, task(), rows).transaction is not None


def test_a_topic_without_permission_is_refused_before_the_query_begins(secured, boss, topic, tmp_path):
    admin.create_topic(boss, topic)
    options = {f"kafka.{name}": value for name, value in secured.options("guest").items()}
    options |= {"topic": topic, "checkpointLocation": str(tmp_path / "checkpoint")}
    with pytest.raises(AccessError, match=f"not allowed to describe topic '{topic}'") as error:
        stream_writer(options, StructType().add("value", StringType()), overwrite=False)
    assert PASSWORD not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()


def test_a_topic_column_that_names_an_unknown_topic_is_refused_whole(spark, kafka, topic_of, feed, tmp_path):
    topic = topic_of(1)
    feed.batch({"value": b"a", "topic": topic}, {"value": b"b", "topic": f"{topic}-unknown"})
    writer = feed.read(spark).select("value", "topic").writeStream.format("keyedwm").trigger(availableNow=True)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "checkpointLocation": str(tmp_path / "c")}
    query = writer.options(**options, snapshot="batch").start()
    with pytest.raises(StreamingQueryException, match=f"topic '{topic}-unknown', which the rows go to, does not exist"):
        query.awaitTermination()
    assert records_of(kafka.bootstrap, topic, only_committed=False) == []


def test_a_ledger_that_cannot_be_read_is_refused_before_a_row_is_written(kafka, topic_of, tmp_path):
    (tmp_path / "ledger" / "000000000000.published.json").mkdir(parents=True)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic_of(1), "ledger": str(tmp_path / "ledger")}
    with pytest.raises(InputError, match=r"the ledger file .*published\.json cannot be read: .*Is a directory"):
        stream_writer(options, StructType().add("value", StringType()), overwrite=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partitionBy": "day"}, "options partitionBy and "),
        ({"mergeSchema": "true"}, "options mergeSchema and "),
        ({"topic": ""}, "option topic: '' is wrong"),
    ],
)
def test_options_of_the_other_target_are_refused(options, sentence):
    all_options = {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", "topic": "t", **options}
    with pytest.raises(KeyedwmError) as error:
        stream_writer(all_options, StructType().add("value", StringType()), overwrite=False)
    assert sentence in error.value.message


def test_at_least_once_keeps_a_ledger_for_control_rows_only():
    kafka_options = {
        "kafka.bootstrap.servers": "localhost:1",
        "topic": "t",
        "guarantee": "at-least-once",
        "ledger": "/l",
    }
    with pytest.raises(KeyedwmError, match="option ledger has no effect with guarantee=at-least-once"):
        SinkOptions.parse(kafka_options)
    assert SinkOptions.parse({**kafka_options, "controlRows": "inline"}).target.ledger is not None


@pytest.mark.parametrize("ledger", ["ledger", "~/ledger", "$HOME/ledger", "./ledger"])
def test_a_ledger_that_another_working_directory_would_move_is_refused(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"option ledger: '.*ledger' is wrong; it would be /.*an absolute path"):
        SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t", "ledger": ledger})
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_can_be_no_directory_is_refused_before_a_row_is_written(tmp_path):
    kafka_options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
    (tmp_path / "file").touch()
    for ledger in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OptionError, match=rf"{tmp_path}/file is a file, a directory is expected"):
            SinkOptions.parse({**kafka_options, "ledger": str(ledger)})
    with pytest.raises(OptionError, match="a path has no NUL character"):
        SinkOptions.parse({**kafka_options, "ledger": "/a\0b"})


def test_a_table_in_the_directory_of_the_checkpoint_is_refused():
    for path, checkpoint in (("/t", "/t/"), ("file:///t", "/t"), ("s3://b/t", "s3://b/t/"), ("t", "t")):
        with pytest.raises(OptionError, match=r"option path: .* that is the query's checkpointLocation, whose files"):
            SinkOptions.parse({"path": path, "checkpointLocation": checkpoint})
    with pytest.raises(OptionError, match=r"option errorsTo: .* that is the query's checkpointLocation"):
        SinkOptions.parse({"path": "/t", "errorsTo": "/c", "checkpointLocation": "/c"})
    SinkOptions.parse({"path": "/t", "checkpointLocation": "/t/_checkpoint"})


@pytest.mark.parametrize("name", ["CONTROL", "c"])
@pytest.mark.parametrize("target", [{"path": "/t"}, {"kafka.bootstrap.servers": "x:1", "topic": "t", "ledger": "/l"}])
def test_control_rows_under_another_name_are_not_written_as_events(name, target):
    """SQL gives a column the capitals with which it is selected."""
    control = StructType()
    for field in CONTROL_FIELDS:
        control = control.add(field, StringType())
    schema = StructType().add("value", StringType()).add(name, control)
    with pytest.raises(OptionError, match=f"column {name} is the source's column control, .* call it control, or drop"):
        stream_writer(target, schema, overwrite=False)
