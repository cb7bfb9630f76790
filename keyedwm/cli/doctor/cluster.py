"""The checks of a Kafka cluster and of the topics that a query reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest

from keyedwm.cli.doctor import brokers, rights
from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import call_with_retries
from keyedwm.kafka.client.errors import Code, UnsupportedRequestError
from keyedwm.kafka.client.properties import KNOWN
from keyedwm.kafka.client.values import TopicPartition, number_of
from keyedwm.kafka.requests import versions
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.versions import LOSSES, Use, missing

_TOPIC = 2  # Kafka's number of the resource type
_LIMIT_MS = 10_000
_DAY_MS = 86_400_000
_AHEAD_MS = 10_000
_SETTINGS = ("retention.ms", "cleanup.policy", "message.timestamp.type", "max.message.bytes")
_SINK_OPTIONS = ("groupIdPrefix", "transactionalIdPrefix")
_FIX = "use brokers that offer newer requests, or do without: docs/reference/versions.md"


def look(
    options: Mapping[str, str], topics: Sequence[str], targets: Sequence[str] = (), group: str | None = None
) -> Iterator[Finding]:
    """Check that the cluster can be reached with these options, and has what a query needs.

    topics, targets: the topics that the query reads and writes. group: its consumer group, None for the group of the
    options.
    """
    others = [name for name in options if not name.lower().startswith(("kafka.", *map(str.lower, _SINK_OPTIONS)))]
    settings = {name.lower(): value for name, value in options.items()}
    group_prefix, id_prefix = (settings.pop(name.lower(), None) for name in _SINK_OPTIONS)
    if others:
        known = f"kafka.* options, {' and '.join(_SINK_OPTIONS)} are expected"
        is_property = others[0].lower() in KNOWN
        fix = f"did you mean kafka.{others[0].lower()}?" if is_property else "leave it out"
        yield fail("options", f"{others[0]} does not concern the cluster; {known}", fix)
        return
    kafka = {name.removeprefix("kafka."): value for name, value in settings.items()}
    try:
        config = ClientConfig.from_options(kafka)
    except OptionError as error:
        yield fail("options", error.message, "fix the option")
        return
    try:
        limit_ms = min(_LIMIT_MS, config.api_timeout_ms)
        cluster = Cluster.connect(replace(config, api_timeout_ms=limit_ms), limit_ms)
    except KeyedwmError as error:
        yield unreachable(error)
        return
    with closing(cluster):
        yield version(config, cluster.connection.broker_version)
        api_versions = cluster.connection.api_versions
        uses = {Use.SOURCE: bool(topics or not targets), Use.SINK: bool(targets), Use.EXACTLY_ONCE: bool(targets)}
        yield from capabilities(api_versions, uses)
        if missing(Use.SOURCE, api_versions):
            return
        findings = list(brokers.advertised(cluster))
        yield from findings
        if findings and all(finding.fails for finding in findings):
            return  # all other requests go there
        yield brokers.tiered_storage(cluster)
        if topics or group:
            yield brokers.coordinator(cluster, brokers.GROUPS)
        if targets and not missing(Use.EXACTLY_ONCE, api_versions):
            yield brokers.coordinator(cluster, brokers.TRANSACTIONS)
        for topic in topics:
            yield from _topic(cluster, topic)
        if topics or group:
            group_id = group or kafka.get("group.id") or f"{group_prefix or 'keyedwm'}-doctor"
            yield rights.on_group(cluster, group_id)
        for topic in targets if not missing(Use.EXACTLY_ONCE, api_versions) else ():
            yield from rights.on_target(cluster, topic, id_prefix)


def findings_of(options: Mapping[str, str], *checks: Any) -> Iterator[Finding]:
    """As `look`; an error between the checks is the last finding, and does not hide earlier findings."""
    try:
        yield from look(options, *checks)
    except KeyedwmError as error:
        yield fail("cluster", error.message, error.advice)


def version(config: ClientConfig, numbers: Sequence[int]) -> Finding:
    """Report the version of the broker that answered, which follows from the requests that it offers."""
    answer = f"answers at {config.addresses} with {config.security.protocol.value}"
    return ok("broker", f"{answer}, requests as of Kafka {'.'.join(map(str, numbers))}")


def unreachable(error: KeyedwmError) -> Finding:
    """Report why no broker answered."""
    problem, _, setting = error.message.partition(": set ")
    if setting and isinstance(error, OptionError):
        return fail("broker", problem, f"set {setting}")
    problem, _, checks = error.message.partition("): check ")
    if checks:
        return fail("broker", f"{problem})", f"check {checks}; is a broker running there?")
    return fail("broker", error.message, error.advice)


def _topic(cluster: Cluster, topic: str) -> Iterator[Finding]:
    subject = f"topic {topic}"
    try:
        partitions = cluster.partitions([topic])[topic]
        places = [(topic, number) for number in partitions]
        first, ends = cluster.earliest(places), cluster.log_ends(places)
        last = {tp: end.offset for tp, end in ends.items()}
        epochs = {tp: end.leader_epoch for tp, end in ends.items() if end.leader_epoch is not None}
        epoch_ends = cluster.epoch_ends(epochs)
    except KeyedwmError as error:
        yield rights.unreadable(
            cluster, topic, subject, error, "create it, or give this user the right to DESCRIBE and READ it"
        )
        return
    yield ok(subject, f"{len(partitions)} partitions, {sum(last.values()) - sum(first.values())} offsets")
    yield from truncation(subject, last, epoch_ends)
    yield rights.on_source_topic(cluster, topic)
    yield clocks(subject, cluster.by_timestamp(dict.fromkeys(places, time.time_ns() // 1_000_000 + _AHEAD_MS)))
    yield from settings_of_topic(subject, _described(cluster, topic))


def truncation(
    subject: str, log_ends: Mapping[TopicPartition, int], epoch_ends: Mapping[TopicPartition, int | None]
) -> Iterator[Finding]:
    """Check that, by the brokers' answer, the leader epoch of each log's end ends there; no finding without answers."""
    answers = {tp: end for tp, end in epoch_ends.items() if end is not None}
    wrong = [f"{tp} at {end}, its log at {log_ends[tp]}" for tp, end in sorted(answers.items()) if end < log_ends[tp]]
    if wrong:
        yield warn(
            subject, f"the brokers answer wrongly where leader epochs end ({'; '.join(wrong)})",
            "nothing to set: the source compares the records of the log, too, and then ignores such answers",
        )  # fmt: skip
    elif answers:
        yield ok(subject, "the brokers answer rightly where leader epochs end")


def clocks(subject: str, ahead: Mapping[TopicPartition, int | None]) -> Finding:
    """Check for records that are stamped later than now; `ahead`: the first such offset of each partition."""
    places = [f"{tp} at offset {offset}" for tp, offset in sorted(ahead.items()) if offset is not None]
    if not places:
        return ok(subject, f"no record is stamped more than {_AHEAD_MS // 1_000} s ahead of this machine's clock")
    return warn(
        subject,
        f"clocks are apart: records are stamped more than {_AHEAD_MS // 1_000} s ahead of this machine's clock "
        f"({', '.join(places)})",
        "synchronise the clocks of producers, brokers and this machine (NTP); with eventTime=timestamp, and with "
        "policies that follow the clock, watermarks are wrong by as much",
    )  # fmt: skip


def _described(cluster: Cluster, topic: str) -> dict[str, str | None] | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=list(_SETTINGS)
    )
    request: Any = DescribeConfigsRequest(
        resources=[resource], include_synonyms=False, include_documentation=False, max_version=4
    )
    try:
        answer = call_with_retries(cluster.connection, None, request, f"reading the settings of topic {topic}")
    except UnsupportedRequestError:
        return None
    sound = [result for result in answer.results if Code.of(result.error_code) is Code.NONE]
    return {setting.name: setting.value for setting in sound[0].configs} if sound else None


def settings_of_topic(subject: str, settings: Mapping[str, str | None] | None) -> Iterator[Finding]:
    """Check the settings of a topic that can lose records, times or messages; ignore a setting that is no number."""
    if settings is None:
        yield warn(
            subject, "its settings cannot be read", "give this user DESCRIBE_CONFIGS on the topic, or ask its owner"
        )
        return
    retention_ms = number_of(settings.get("retention.ms"))
    if retention_ms is not None and retention_ms < _DAY_MS:
        yield warn(
            subject, f"records are deleted after {retention_ms} ms (retention.ms)",
            "keep them longer than a query may be down, or failOnDataLoss fails it",
        )  # fmt: skip
    if "compact" in (settings.get("cleanup.policy") or ""):
        yield warn(
            subject, "cleanup.policy=compact removes older records of a key",
            "read it only where the newest value of a key is enough",
        )  # fmt: skip
    if settings.get("message.timestamp.type") == "LogAppendTime":
        yield warn(
            subject, "message.timestamp.type=LogAppendTime: timestamps are those of arrival",
            "set eventTime to a field of the record (json:$.a.b, avro:$.a.b, proto:$.a.b, key:$.a or header:NAME)",
        )  # fmt: skip
    largest = number_of(settings.get("max.message.bytes"))
    answer = "is not told" if largest is None else f"is {largest} bytes"
    yield ok(subject, f"the largest batch it takes {answer}")


def capabilities(api_versions: Mapping[int, int], uses: Mapping[Use, bool]) -> Iterator[Finding]:
    """Check each use of docs/reference/versions.md and each of its checks; uses: whether the query needs it.

    api_versions: the newest version of each request, by API key. The version of the brokers decides nothing: servers
    other than Kafka offer some newer requests and not others.
    """
    for use, is_needed in uses.items():
        absent = versions.absent_sentence(use, api_versions)
        if absent is not None:
            yield fail(use.value, absent, _FIX) if is_needed else warn(use.value, absent, _FIX)
            continue
        losses = versions.losses(use, api_versions)
        yield ok(use.value, "all requests that it needs are offered")
        for check in dict.fromkeys(loss.check for loss in LOSSES if loss.use is use):
            consequences = [loss.consequence for loss in losses if loss.check == check]
            yield warn(check, "; ".join(consequences), _FIX) if consequences else ok(check, "works with these brokers")
