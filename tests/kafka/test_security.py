from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import AccessError, Code, GroupAccessError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import Sender, send
from keyedwm.testing import admin
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.kafka.ledger import Entry
from pyspark_wm_sink.kafka.marker import FENCE_TIMEOUT_MS, Marker
from tests.secured import PASSWORD, Secured, allow, disallow, login
from tests.tools import wait_until


@pytest.fixture(scope="module")
def boss(secured: Secured) -> Iterator[Cluster]:
    cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
    yield cluster
    cluster.close()


def test_records_go_both_ways_through_tls_and_a_login(boss: Cluster, topic: str) -> None:
    admin.create_topic(boss, topic)
    send(boss, topic, {0: pa.table({"value": [b"%d" % i + b"x" * 1_000 for i in range(5_000)]})})
    records_read = [part.records for part in read_ranges(boss, [OffsetRange(topic, 0, 0, 5_000)])]
    assert sum(records.count for records in records_read) == 5_000


@pytest.mark.parametrize("mechanism", list(ScramMechanism)[1:])
def test_scram_logs_in(secured: Secured, their_admin: KafkaAdminClient, mechanism: ScramMechanism) -> None:
    their_admin.alter_user_scram_credentials([UserScramCredentialUpsertion("boss", mechanism, PASSWORD)])
    settings = secured.options(sasl_mechanism=mechanism.name.replace("_", "-"))
    jaas = login("scram.Scram", username="boss", password=PASSWORD)
    config = ClientConfig.from_options({**settings, "sasl.jaas.config": jaas})

    def logged_in() -> Cluster | None:
        with suppress(AccessError):  # the broker takes credentials from its controller, a moment later
            return Cluster.connect(config)
        return None

    cluster = wait_until(logged_in, f"a login with {mechanism}")
    assert isinstance(cluster.topics(), tuple)
    cluster.close()


def test_a_wrong_password_is_refused_at_once_and_not_repeated_in_the_message(secured: Secured) -> None:
    wrong = PASSWORD[::-1]
    with pytest.raises(AccessError, match=r"rejected the login with PLAIN: check kafka\.sasl\.jaas\.config") as caught:
        Cluster.connect(ClientConfig.from_options(secured.options(password=wrong)), timeout_ms=60_000)
    assert wrong not in str(caught.value)


def test_an_unknown_certificate_is_the_reason_given(secured: Secured) -> None:
    settings = {k: v for k, v in secured.options().items() if "truststore" not in k}
    with pytest.raises(AccessError, match="is not trusted by the system's certificates"):
        Cluster.connect(ClientConfig.from_options(settings), timeout_ms=60_000)


def test_certificates_can_be_given_in_place(secured: Secured) -> None:
    settings = {k: v for k, v in secured.options().items() if k != "ssl.truststore.location"}
    pem = (secured.home / "cert.pem").read_text()
    cluster = Cluster.connect(ClientConfig.from_options(settings | {"ssl.truststore.certificates": pem}))
    assert cluster.usable
    cluster.close()


def test_a_key_store_without_a_key_is_refused(secured: Secured) -> None:
    only = str(secured.home / "cert.pem")
    settings = secured.options(ssl_keystore_location=only, ssl_keystore_type="PEM")
    with pytest.raises(OptionError, match=r"kafka\.ssl\.keystore\.location"):
        Cluster.connect(ClientConfig.from_options(settings))


def test_without_rights_on_the_group_reading_goes_on(
    secured: Secured, boss: Cluster, their_admin: KafkaAdminClient, topic: str
) -> None:
    admin.create_topic(boss, topic)
    admin.create_topic(boss, f"{topic}-hidden")
    send(boss, topic, {0: pa.table({"value": ["a"]})})
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    allow(their_admin, [ACL("User:guest", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    guest = Cluster.connect(ClientConfig.from_options(secured.options("guest")))
    assert guest.commit_offsets("g", {(topic, 0): (1, "state")}) == {(topic, 0): Code.GROUP_AUTHORIZATION_FAILED}
    with pytest.raises(GroupAccessError, match="group 'g'"):
        guest.fetch_offsets("g", [(topic, 0)])
    (part,) = read_ranges(guest, [OffsetRange(topic, 0, 0, 1)])
    assert part.records.value.to_pylist() == [b"a"]  # type: ignore[union-attr]
    with pytest.raises(AccessError, match="not allowed to write"):
        send(guest, topic, {0: pa.table({"value": ["b"]})})
    with pytest.raises(AccessError, match=f"not allowed to describe topic '{topic}-hidden'"):
        guest.partitions([f"{topic}-hidden"])
    guest.close()


def test_the_password_stands_in_no_log_at_any_level(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kafka"), caplog.at_level(logging.DEBUG):
        cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
        cluster.topics()
        cluster.close()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text


Grant = tuple[ResourceType, ACLOperation]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rights-and-secrets.md"
_RESOURCES = {"--topic": ResourceType.TOPIC, "--group": ResourceType.GROUP, "--cluster": ResourceType.CLUSTER,
              "--transactional-id": ResourceType.TRANSACTIONAL_ID}  # fmt: skip
_OPERATIONS = {"Read": ACLOperation.READ, "Write": ACLOperation.WRITE, "Describe": ACLOperation.DESCRIBE,
               "DescribeConfigs": ACLOperation.DESCRIBE_CONFIGS}  # fmt: skip


def of_page(feature: str) -> list[Grant]:
    """What the commands on the page of security grant for a feature."""
    script = PAGE.read_text().split("```sh\n")[1].split("```")[0]
    lines = script.split(f"# {feature}\n")[1].split("\n# ")[0].splitlines()
    command_parts = [line.removeprefix("$add --operation ").split() for line in lines]
    return [(_RESOURCES[resource], _OPERATIONS[operation]) for operation, resource, *_ in command_parts]


SOURCE_ACLS = of_page("source, with its states in committed offsets")
SINK_ACLS = of_page("sink, Kafka, exactly-once")


def test_each_row_of_the_page_has_its_commands() -> None:
    table = PAGE.read_text().split("| feature | resource |")[1].split("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[2:]]
    assert len(rows) == 10
    operations = [(operation.strip(), "cluster" in resource) for _, _, resource, operation, *_ in rows]
    script = PAGE.read_text().split("```sh\n")[1].split("```")[0]
    commands = [line.split() for line in script.splitlines() if line.startswith("$add")]
    assert {(command_parts[2], "--cluster" in command_parts) for command_parts in commands} == set(operations)


def grant(their_admin: KafkaAdminClient, grants: Sequence[Grant], prefix: str) -> None:
    """Allow the guest these operations on what begins with a prefix."""
    for kind, operation in grants:
        pattern = ResourcePattern(kind, prefix, ACLResourcePatternType.PREFIXED)
        allow(their_admin, [ACL("User:guest", "*", operation, ACLPermissionType.ALLOW, pattern)])


def read_as_a_source(guest: Cluster, topic: str) -> None:
    """What a source asks of the cluster, with the states of its channels."""
    assert guest.partitions([topic]) == {topic: (0,)}
    assert topic in guest.topics()
    assert guest.earliest([(topic, 0)]) == {(topic, 0): 0}
    assert guest.by_timestamp({(topic, 0): 0}) == {(topic, 0): 0}
    end = guest.latest([(topic, 0)])[TopicPartition(topic, 0)]
    assert sum(part.records.count for part in read_ranges(guest, [OffsetRange(topic, 0, 0, end)])) == end
    assert guest.commit_offsets(f"{topic}-g", {(topic, 0): (end, "state")}) == {(topic, 0): Code.NONE}
    assert guest.fetch_offsets(f"{topic}-g", [(topic, 0)])[TopicPartition(topic, 0)].metadata == "state"


def write_as_a_sink(guest: Cluster, topic: str) -> None:
    """What an exactly-once sink asks of the cluster."""
    txn.longest_timeout_ms(guest)
    transaction = txn.begin(guest, f"{topic}-id", 60_000)
    txn.add_partitions(guest, transaction, [TopicPartition(topic, 0)])
    Sender(guest, transaction.producer, transactional_id=f"{topic}-id").send(topic, {0: pa.table({"value": ["b"]})})
    assert txn.lingering(guest, f"{topic}-id") == [transaction]
    assert txn.end(guest, [transaction], commit=True) == {transaction: txn.Fate.COMMITTED}
    assert txn.fate(guest, transaction) is txn.Fate.COMMITTED


@pytest.mark.parametrize(("acls", "use"), [(SOURCE_ACLS, read_as_a_source), (SINK_ACLS, write_as_a_sink)])
def test_exactly_the_acls_of_the_page_of_security_are_needed(
    secured: Secured,
    boss: Cluster,
    their_admin: KafkaAdminClient,
    topic: str,
    acls: list[Grant],
    use: Callable[[Cluster, str], None],
) -> None:
    names = {left_out: f"{topic}-{left_out}" for left_out in range(-1, len(acls))}
    for left_out, name in names.items():
        admin.create_topic(boss, name)
        send(boss, name, {0: pa.table({"value": ["a"]})})
        grant(their_admin, [one for number, one in enumerate(acls) if number != left_out], name)
    guest = Cluster.connect(ClientConfig.from_options(secured.options("guest")))
    use(guest, names[-1])
    for left_out in range(len(acls)):
        with pytest.raises((AccessError, AssertionError)):
            use(guest, names[left_out])
    guest.close()


def sees(guest: Cluster, topic: str) -> object:
    return topic in guest.topics() or None


def marked(guest: Cluster, topic: str) -> object:
    record = Record(query="q", run="r", batch=7, attempt="a", snapshot=None, rows=0, ignored=0, channels={},
                    coalesced={})  # fmt: skip
    marker = Marker(group=f"{topic}-query-ledger")
    try:
        fence = txn.begin(guest, f"{topic}-query-fence", FENCE_TIMEOUT_MS)
    except AccessError:
        return None
    marker.write(guest, fence, Entry(batch=7, record=record, transactions=(), topic=topic))
    marker_read = marker.read(guest, topic)
    return None if marker_read is None else marker_read.batch


# What a right that can be missing gives: its grants, the question, and the answer with them; without it is None.
OPTIONAL: dict[str, tuple[list[Grant], Callable[[Cluster, str], object], object]] = {
    "subscribePattern": (of_page("source, subscribePattern"), sees, True),
    "size of batches": (
        of_page("sink, Kafka, size of batches"), lambda guest, topic: guest.largest_batch_bytes(topic), 1_048_588,
    ),
    "transactionTimeout": (
        of_page("sink, Kafka, check of transactionTimeout at start"),
        lambda guest, _topic: txn.longest_timeout_ms(guest), 900_000,
    ),
    "last decided batch": (
        [*of_page("sink, Kafka, exactly-once: detect a lost ledger or a copy of the checkpoint"),
         (ResourceType.TRANSACTIONAL_ID, ACLOperation.WRITE)], marked, 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("feature", OPTIONAL)
def test_a_right_that_may_be_missing_gives_what_the_page_of_security_says(
    secured: Secured, boss: Cluster, their_admin: KafkaAdminClient, topic: str, feature: str
) -> None:
    needed_acls, ask, answer = OPTIONAL[feature]
    admin.create_topic(boss, topic)
    for granted in (*({*needed_acls} - {one} for one in needed_acls), {*needed_acls}):
        patterns = [
            ResourcePattern(kind, "kafka-cluster")
            if kind is ResourceType.CLUSTER
            else ResourcePattern(kind, topic, ACLResourcePatternType.PREFIXED)
            for kind, _ in needed_acls
        ]
        acls = [
            ACL("User:guest", "*", operation, ACLPermissionType.ALLOW, pattern)
            for (kind, operation), pattern in zip(needed_acls, patterns, strict=True)
            if (kind, operation) in granted
        ]
        if acls:
            allow(their_admin, acls)
        guest = Cluster.connect(ClientConfig.from_options(secured.options("guest")))
        try:
            assert ask(guest, topic) == (answer if granted == {*needed_acls} else None)
        finally:
            guest.close()
            if acls:
                disallow(their_admin, acls)
