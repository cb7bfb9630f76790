"""`keyedwm doctor` with `schemaRegistry.*`: whether the registry answers, and what it has of the topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keyedwm.cli.doctor.schemas import look
from keyedwm.cli.main import main
from tests.support.fake_registry import FakeRegistry, fake_registry, reply

URL = "schemaRegistry.url"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


def lines(fake: FakeRegistry, *topics: str, **options: str) -> list[str]:
    return [finding.line() for finding in look({URL: fake.url, **options}, topics)]


def test_the_subject_of_a_topic_is_named_with_its_newest_schema_and_its_rule(fake: FakeRegistry) -> None:
    fake.add("orders-value", '"string"')
    fake.level = "BACKWARD"
    assert lines(fake, "orders") == [
        f"ok    schema registry: answers at {fake.url}",
        "ok    subject orders-value: version 1 is schema 1, AVRO",
        "ok    subject orders-value: its compatibility is BACKWARD",
    ]


def test_a_subject_that_is_not_there_and_a_rule_that_is_none_are_warned_of(fake: FakeRegistry) -> None:
    fake.add("orders-value", '"string"')
    free = lines(fake, "orders")[-1]
    assert free.startswith("WARN  subject orders-value: its compatibility is NONE: a writer may register")
    missing = lines(fake, "order")[-1]
    assert missing.startswith(
        "WARN  subject order-value: the schema registry has no such subject; there is orders-value"
    )


def test_the_subject_of_keys_is_checked_if_there_is_one(fake: FakeRegistry) -> None:
    fake.add("orders-value", '"string"')
    fake.add("orders-key", '"long"')
    fake.level = "NONE"
    keys = [line for line in lines(fake, "orders") if "orders-key" in line]
    assert keys[0] == "ok    subject orders-key: version 1 is schema 2, AVRO"
    assert keys[1].startswith("WARN  subject orders-key: its compatibility is NONE")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "rejected the login (401)"),
        (
            404,
            "does schemaRegistry.url need one, such as /apis/ccompat/v7? -> correct schemaRegistry.url",
        ),
        (503, "it answers 503, text/html in place of JSON -> correct schemaRegistry.url, or start the registry"),
    ],
)
def test_a_registry_that_gives_no_answer_fails_with_the_reason(fake: FakeRegistry, status: int, reason: str) -> None:
    fake.rule = lambda _method, _path: reply(status, b"<html>", "text/html")
    (line,) = lines(fake, "orders", **{"schemaRegistry.timeout": "100 milliseconds"})
    assert line.startswith("FAIL  schema registry: ")
    assert reason in line


def test_a_wrong_option_is_one_finding() -> None:
    (finding,) = look({"schemaRegistry.ulr": "http://a"}, [])
    assert finding.line() == (
        "FAIL  options: option schemaRegistry.ulr is unknown: did you mean schemaRegistry.url? -> fix the option"
    )


def test_the_command_looks_at_the_registry_alone_if_no_broker_is_named(
    fake: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.add("orders-value", '"string"')
    main(["doctor", "--option", f"{URL}={fake.url}", "--topic", "orders"])
    assert "ok    subject orders-value: version 1 is schema 1, AVRO" in capsys.readouterr().out


def test_a_secret_of_the_registry_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "hunter2"  # noqa: S105 (to be found nowhere)
    assert main(["doctor", "--option", f"schemaRegistry.password={secret}"]) == 2
    message = capsys.readouterr().err
    assert "give schemaRegistry.password=env:VARIABLE" in message
    assert secret not in message
