"""`keyedwm doctor` asks brokers, with or without an authorizer, for rights of docs/how-to/rights-and-secrets.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from keyedwm.cli.doctor.cluster import look
from keyedwm.cli.doctor.finding import Finding, Verdict
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing import admin
from tests.secured import Secured, allow, disallow

Grant = tuple[ResourceType, ACLOperation, str]  # `{t}` in the name: the topic
ALL: list[Grant] = [
    (ResourceType.TOPIC, ACLOperation.READ, "{t}-in"),
    (ResourceType.TOPIC, ACLOperation.DESCRIBE_CONFIGS, "{t}-in"),
    (ResourceType.GROUP, ACLOperation.READ, "{t}-group"),
    (ResourceType.TOPIC, ACLOperation.WRITE, "{t}-out"),
    (ResourceType.TRANSACTIONAL_ID, ACLOperation.WRITE, "{t}-id"),
    (ResourceType.TOPIC, ACLOperation.READ, "{t}-out"),
    (ResourceType.GROUP, ACLOperation.READ, "{t}-id"),
    (ResourceType.TOPIC, ACLOperation.DESCRIBE_CONFIGS, "{t}-out"),
    (ResourceType.CLUSTER, ACLOperation.DESCRIBE_CONFIGS, "kafka-cluster"),
]
# What doctor says when the grant of that place is missing.
MISSING = [
    "FAIL  topic {t}-in: not allowed to describe topic '{t}-in': TopicAuthorizationFailed (29) -> ",
    "WARN  topic {t}-in: its settings cannot be read -> ",
    "WARN  consumer group: this user may not use {t}-group-doctor -> grant READ on it",
    "FAIL  target {t}-out: this user may not write to it -> grant WRITE on topic {t}-out",
    "FAIL  transactions: this user may not write under ids that begin with {t}-id -> grant WRITE on transactional ids",
    "WARN  ledger: this user may not read group {t}-id-ID-ledger (ID: of the query) and topic {t}-out -> ",
    "WARN  ledger: this user may not read group {t}-id-ID-ledger (ID: of the query) -> ",
    "WARN  target {t}-out: its largest batch cannot be read -> ",
    "WARN  transactionTimeout: the longest one that brokers allow cannot be read -> ",
]


def findings_of(client: Mapping[str, str], topic: str) -> list[Finding]:
    options = {f"kafka.{name}": value for name, value in client.items()}
    options |= {"transactionalIdPrefix": f"{topic}-id", "groupIdPrefix": f"{topic}-group"}
    return list(look(options, [f"{topic}-in"], [f"{topic}-out"]))


def create(client: Mapping[str, str], topic: str) -> None:
    cluster = Cluster.connect(ClientConfig.from_options(dict(client)))
    for name in ("in", "out"):
        admin.create_topic(cluster, f"{topic}-{name}")
    cluster.close()


def acls(grants: Sequence[Grant], topic: str) -> list[ACL]:
    bindings = []
    for kind, operation, name in grants:
        whole = ACLResourcePatternType.LITERAL if kind is ResourceType.CLUSTER else ACLResourcePatternType.PREFIXED
        pattern = ResourcePattern(kind, name.format(t=topic), whole)
        bindings.append(ACL("User:guest", "*", operation, ACLPermissionType.ALLOW, pattern))
    return bindings


def test_a_broker_without_an_authorizer_allows_everything(kafka, topic: str) -> None:
    client = {"bootstrap.servers": kafka.bootstrap}
    create(client, topic)
    findings = findings_of(client, topic)
    assert [finding.line() for finding in findings if finding.verdict is not Verdict.OK] == []
    assert {finding.subject for finding in findings} >= {f"rights on {topic}-in", "consumer group", "transactions"}


def test_each_right_of_the_page_of_security_is_named_where_it_is_missing(
    secured: Secured, their_admin: KafkaAdminClient, topic: str
) -> None:
    create(secured.options(), topic)
    for missing, expected in [(None, None), *enumerate(MISSING)]:
        grants = acls([grant for place, grant in enumerate(ALL) if place != missing], topic)
        allow(their_admin, grants)

        lines = [finding.line() for finding in findings_of(secured.options("guest"), topic)]
        bad = [line for line in lines if not line.startswith("ok")]
        assert len(bad) == (expected is not None), bad
        assert all(line.startswith(expected.format(t=topic)) for line in bad), bad
        disallow(their_admin, grants)


def test_asking_for_rights_creates_nothing(secured: Secured, topic: str) -> None:
    boss = Cluster.connect(ClientConfig.from_options(secured.options()))
    before = boss.topics()
    list(look({f"kafka.{name}": value for name, value in secured.options("guest").items()}, [topic], [topic], "g"))
    assert boss.topics() == before
    boss.close()
