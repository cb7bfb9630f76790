"""`keyedwm doctor` says in one line each what is wrong and what to do, and tells by its exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.cli.doctor import machine
from keyedwm.cli.doctor.cluster import capabilities, clocks, settings_of_topic, version
from keyedwm.cli.doctor.finding import Finding, Verdict
from keyedwm.cli.main import main
from keyedwm.config.secrets import pairs_of, settings_of
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.reactions import Api
from keyedwm.kafka.requests.versions import VERSIONS, Use


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = main(["doctor", *words])
    return code, capsys.readouterr().out.splitlines()


def line_of(found: list[str], what: str) -> str:
    (line,) = [line for line in found if line[6:].startswith(what)]
    return line


def test_a_machine_that_is_right_has_no_failure(capsys):
    code, found = lines(capsys, "--conf", "spark.sql.shuffle.partitions=4")
    assert code == 0
    assert line_of(found, "Python: ").startswith("ok")
    assert line_of(found, "Java: ").startswith("ok")
    assert line_of(found, "shuffle partitions: ") == "ok    shuffle partitions: 4"
    assert "pyspark 4." in line_of(found, "packages: ")
    assert "RocksDB -> set spark.sql.streaming.stateStore.providerClass=" in line_of(found, "state store: ")


def test_settings_that_the_program_may_make_are_not_warned_of(capsys, monkeypatch):
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    code, found = lines(capsys)
    assert code == 0
    assert line_of(found, "settings: ").startswith("ok    settings: none were given; ")
    assert "session_conf()" in line_of(found, "settings: ")
    assert not [line for line in found if "state store" in line or "shuffle partitions" in line]


def test_settings_are_read_from_spark_defaults(capsys, tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.sql.shuffle.partitions 200\n"
        "spark.sql.streaming.stateStore.providerClass x.RocksDBStateStoreProvider\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    _, found = lines(capsys)
    assert line_of(found, "state store: ") == "ok    state store: RocksDB"
    assert "is 200 -> set it to about the number of cores" in line_of(found, "shuffle partitions: ")


def test_no_java_is_a_failure(capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, found = lines(capsys)
    assert code == 1
    assert line_of(found, "Java: ").startswith("FAIL  Java: JAVA_HOME=/nowhere holds no bin/java -> install a Java 17")


def test_a_package_that_is_missing_or_of_a_wrong_version_is_a_failure(monkeypatch):
    monkeypatch.setattr(
        machine, "requires", lambda _: ["nowhere>=1", "pandas<1,>=0.5", "numpy>=1", 'x; extra == "test"']
    )
    found = [finding.line() for finding in machine.packages()]
    assert found[0] == "FAIL  nowhere: not installed -> pip install 'nowhere>=1'"
    assert found[1].startswith("FAIL  pandas: ")
    assert found[1].endswith("<1,>=0.5 is expected -> pip install 'pandas<1,>=0.5'")
    assert found[2].startswith("ok    packages: numpy ")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("found", "bounds", "right"),
    [("2.3.3", ">=2.2,<3", True), ("3.0", ">=2.2,<3", False), ("3.0.12", ">=3.0.12,<3.1", True), ("1", "==1.0", True),
     ("4.3.0.dev1", "<4.4", True), ("2.9.post0", ">=2.7", True), ("1.1", "==1.0", False)],
)  # fmt: skip
def test_versions_are_compared_by_number(found, bounds, right):
    assert machine.meets(found, bounds) is right


@pytest.mark.starts
def test_spark_without_the_variable_is_warned_of_and_another_python_is_a_failure(tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    code = "import sys; from keyedwm.cli.main import main; sys.exit(main(['doctor']))"
    base = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    base["PATH"] = f"{tmp_path}:{base['PATH']}"

    def told(**variables: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-c", code], env=base | variables, capture_output=True, text=True, check=False
        )
        return ran.returncode, line_of(ran.stdout.splitlines(), "Python of Spark: ")

    code_of_warning, line = told()
    assert code_of_warning == 0
    assert line.startswith(
        "WARN  Python of Spark: PYSPARK_PYTHON is unset, so spark-submit and the pyspark shell start"
    )
    assert f"-> export PYSPARK_PYTHON={sys.executable}, or import keyedwm.spark before a script creates its" in line
    code_of_failure, line = told(PYSPARK_PYTHON=str(other))
    assert code_of_failure == 1
    assert line.startswith("FAIL  Python of Spark: Spark looks data sources up with ")


def test_a_cache_that_others_can_write_is_warned_of(tmp_path):
    tmp_path.chmod(0o777)
    told = machine.cache({"NUMBA_CACHE_DIR": str(tmp_path)}).line()
    assert "may be written by others (mode 0777), so every worker process compiles again" in told
    tmp_path.chmod(0o700)
    assert machine.cache({"NUMBA_CACHE_DIR": str(tmp_path)}) == Finding(
        Verdict.OK, "cache of compiled code", str(tmp_path)
    )
    (tmp_path / "file").touch()
    assert "cannot be made" in machine.cache({"NUMBA_CACHE_DIR": str(tmp_path / "file" / "below")}).line()
    assert machine.cache({"XDG_CACHE_HOME": str(tmp_path)}).state == str(tmp_path / "keyedwm" / "compiled")


def test_a_python_that_cannot_list_an_archive_is_told_how_to_name_the_source(monkeypatch):
    """3.13 forgets what is in an archive when import caches are dropped, and asks for it all the same."""

    def forgetful(importer):
        raise KeyError(importer.archive)

    monkeypatch.setattr(machine.pkgutil, "iter_importer_modules", forgetful)
    assert machine.lookup().verdict is Verdict.WARN
    assert "spark.dataSource.register(DefaultSource)" in machine.lookup().line()


def test_a_broker_that_does_not_answer_is_a_failure(capsys):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, found = lines(capsys, "--bootstrap", f"127.0.0.1:{port}", "--option", "kafka.default.api.timeout.ms=500")
    assert code == 1
    told, _, fix = line_of(found, "broker: ").partition(" -> ")
    assert f"no Kafka broker answered at 127.0.0.1:{port} within 500 ms" in told
    assert fix.startswith("check kafka.bootstrap.servers and kafka.security.protocol, which is PLAINTEXT; is a broker")


def test_topic_settings_that_hurt_are_named():
    found = {
        "retention.ms": "60000", "cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "1048588",
    }  # fmt: skip
    told = [finding.line() for finding in settings_of_topic("topic t", found)]
    assert "records are deleted after 60000 ms" in told[0]
    assert "cleanup.policy=compact removes older records" in told[1]
    assert "set eventTime to a field of the record" in told[2]
    assert told[3] == "ok    topic t: the largest batch it takes is 1048588 bytes"


@pytest.mark.parametrize("value", [None, "", "soon", "9" * 5_000])
def test_topic_settings_that_are_no_number_are_not_told(value):
    found = dict.fromkeys(("retention.ms", "cleanup.policy", "message.timestamp.type", "max.message.bytes"), value)
    told = [finding.line() for finding in settings_of_topic("topic t", found)]
    assert told == ["ok    topic t: the largest batch it takes is not told"]


def test_a_secret_is_no_option_of_the_command_line_but_named_by_a_variable_or_a_file(capsys, monkeypatch):
    words = ["doctor", "--bootstrap", "a:1", "--option"]
    assert main([*words, "kafka.sasl.jaas.config=x required password='hunter2';"]) == 2
    said = capsys.readouterr().err
    assert "--option: the value of kafka.sasl.jaas.config would stand in the list of processes" in said
    assert "give kafka.sasl.jaas.config=env:VARIABLE or kafka.sasl.jaas.config=file:PATH" in said
    assert "hunter2" not in said
    monkeypatch.setenv("THE_LOGIN", "x required password='hunter2';")
    given = ["kafka.sasl.jaas.config=env:THE_LOGIN", "kafka.sasl.oauthbearer.token.provider=a:b"]
    assert pairs_of("--option", given, "a=b") == {
        "kafka.sasl.jaas.config": "x required password='hunter2';", "kafka.sasl.oauthbearer.token.provider": "a:b",
    }  # fmt: skip


@pytest.mark.parametrize("command", [["doctor"], ["savepoint", "CHECKPOINT", "TARGET"]])
def test_a_secret_setting_of_the_session_is_no_value_of_the_command_line(capsys, monkeypatch, command):
    assert main([*command, "--conf", "spark.hadoop.fs.s3a.secret.key=hunter2"]) == 2
    said = capsys.readouterr().err
    assert "--conf: the value of spark.hadoop.fs.s3a.secret.key would stand in the list of processes" in said
    assert "hunter2" not in said
    monkeypatch.setenv("THE_KEY", "hunter2")
    given = {
        "spark.authenticate.secret": "env:THE_KEY", "spark.eventLog.dir": "file:/tmp/x", "spark.app.name": "env:NONE",
        "spark.security.credentials.hive.enabled": "false", "spark.authenticate.secret.file": "/run/it",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "a.B",
    }  # fmt: skip
    found = settings_of("--conf", [f"{name}={value}" for name, value in given.items()], "a=b")
    assert found == given | {"spark.authenticate.secret": "hunter2"}


def test_a_setting_of_kafka_without_its_prefix_is_named_with_it(capsys):
    code, found = lines(capsys, "--bootstrap", "a:1", "--option", "security.protocol=SSL")
    assert code == 1
    assert line_of(found, "options: ").endswith(" -> did you mean kafka.security.protocol?")


def test_records_of_a_clock_that_runs_ahead_are_named():
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert clocks("topic t", {first: None, second: None}).verdict is Verdict.OK
    told = clocks("topic t", {first: None, second: 7}).line()
    assert "more than 10 s ahead of this machine's clock (t-1 at offset 7) -> synchronise the clocks" in told


def test_a_cluster_and_its_topic_are_looked_at(kafka, topic_of, capsys, topic):
    made = topic_of(2, retention_ms="1000")
    code, found = lines(capsys, "--bootstrap", kafka.bootstrap, "--topic", made)
    assert code == 0
    answered = line_of(found, "broker: ")
    assert answered.startswith(f"ok    broker: answers at {kafka.bootstrap} with PLAINTEXT, requests as of Kafka ")
    assert machine.meets(answered.rpartition(" ")[2], ">=3.0")
    assert line_of(found, f"rights on {made}: ").endswith("may be read")
    assert f"ok    topic {made}: 2 partitions, 0 offsets" in found
    assert line_of(found, "consumer group: ").startswith("ok")
    assert any("records are deleted after 1000 ms (retention.ms)" in line for line in found)
    code, found = lines(capsys, "--bootstrap", kafka.bootstrap, "--topic", topic)
    assert code == 1
    assert f" topic '{topic}' does not exist" in line_of(found, f"topic {topic}: ")
    assert "does not host" not in line_of(found, f"topic {topic}: ")
    code, found = lines(capsys, "--bootstrap", kafka.bootstrap, "--topic", f"{made}s")
    assert code == 1
    assert f"does not exist; did you mean {made!r}? -> create it, or" in line_of(found, f"topic {made}s: ")


def test_tls_against_a_plain_port_names_the_setting(kafka, capsys):
    options = ("--option", "kafka.security.protocol=SSL", "--option", "kafka.default.api.timeout.ms=3000")
    code, found = lines(capsys, "--bootstrap", kafka.bootstrap, *options)
    assert code == 1
    assert line_of(found, "broker: ") == (
        f"FAIL  broker: {kafka.bootstrap} does not expect TLS, and kafka.security.protocol is SSL -> "
        "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    )


def test_a_login_against_a_port_that_takes_none_names_the_setting(kafka, capsys):
    login = "kafka.sasl.jaas.config=env:DOCTOR_LOGIN"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCTOR_LOGIN", 'x.PlainLoginModule required username="u" password="p";')
        code, found = lines(
            capsys, "--bootstrap", kafka.bootstrap, "--option", "kafka.security.protocol=SASL_PLAINTEXT",
            "--option", "kafka.sasl.mechanism=PLAIN", "--option", login,
        )  # fmt: skip
    assert code == 1
    assert line_of(found, "broker: ") == (
        f"FAIL  broker: {kafka.bootstrap} expects no login, and kafka.security.protocol is SASL_PLAINTEXT -> "
        "set kafka.security.protocol to PLAINTEXT"
    )


def test_what_the_command_line_lacks_is_said(capsys):
    assert main(["doctor", "--conf", "x"]) == 2
    assert "--conf: NAME=VALUE is expected" in capsys.readouterr().err
    for name in ("--topic", "--group", "--target"):
        assert main(["doctor", name, "t"]) == 2
        assert f"{name} needs --bootstrap" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["--topic", "--target"])
def test_a_name_that_no_topic_can_have_is_refused_before_a_broker_is_asked(capsys, name):
    assert main(["doctor", "--bootstrap", "h:1", name, "a b"]) == 2
    assert f"option {name}: 'a b' is wrong; the name of a topic has 1 to 249 letters" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/data/counts", "file:///data/counts", "data/counts", "s3://bucket/counts"])
def test_a_table_is_no_target_and_is_told_to_be_left_out(capsys, path):
    assert main(["doctor", "--bootstrap", "h:1", "--target", path]) == 2
    said = capsys.readouterr().err
    assert f"--target: {path!r} is a path, a topic is expected; a Delta table needs none: leave it out" in said


NEWEST = {api: versions.newest for api, versions in VERSIONS.items()}
READING = {Use.SOURCE: True, Use.SINK: False, Use.EXACTLY_ONCE: False}


def test_each_use_is_told_by_the_requests_that_brokers_offer():
    config = ClientConfig.from_options({"bootstrap.servers": "a:1"})
    assert version(config, (2, 8)).line().endswith("PLAINTEXT, requests as of Kafka 2.8")
    assert {finding.verdict for finding in capabilities(NEWEST, dict.fromkeys(Use, True))} == {Verdict.OK}
    # A server that reads and writes, without transactions and truncation checks.
    offered = NEWEST | {Api.OFFSET_FOR_LEADER_EPOCH: 1, Api.FETCH: 11}
    del offered[Api.DESCRIBE_TRANSACTIONS]
    told = [finding.line() for finding in capabilities(offered, READING)]
    assert "ok    the source: all requests that it needs are offered" in told
    assert line_of(told, "truncation check: ").startswith("WARN  truncation check: no check for a log truncated betw")
    assert line_of(told, "recreation check: ").startswith("WARN  recreation check: no check for a topic recreated wh")
    assert line_of(told, "kept states: ") == "ok    kept states: works with these brokers"
    assert line_of(told, "the exactly-once sink to Kafka: ").startswith(
        "WARN  the exactly-once sink to Kafka: the exactly-once sink to Kafka needs DescribeTransactions 0 or newer"
    )
    assert (
        line_of([finding.line() for finding in capabilities(offered, {Use.EXACTLY_ONCE: True})], "the e")[:4] == "FAIL"
    )


def test_brokers_that_cannot_be_read_from_are_a_failure():
    (found,) = capabilities(NEWEST | {Api.FETCH: 3}, {Use.SOURCE: True})
    assert found.line().startswith("FAIL  the source: the source needs Fetch 4 or newer, which these brokers do not")


def test_an_option_that_does_not_concern_the_cluster_is_refused(capsys):
    code, found = lines(capsys, "--bootstrap", "a:1", "--option", "watermarkLag=1 second")
    assert code == 1
    assert "watermarkLag does not concern the cluster; kafka.* options, " in line_of(found, "options: ")


def test_defaults_without_a_file_are_none(monkeypatch, tmp_path: Path):
    from keyedwm.cli.doctor import _defaults

    assert _defaults({"SPARK_HOME": str(tmp_path)}) == {}
