"""`keyedwm migrate` prints the offsets with which keyedwm goes on exactly where Spark's own source stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.cli.main import main
from keyedwm.cli.migrate import with_new_partitions
from keyedwm.core.errors import UnavailableError

ROOT = Path(__file__).parents[3]
META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 and 1 were committed, 2 was planned; as Spark writes them, with checksum files beside."""
    home = tmp_path / "checkpoint"
    for log in ("offsets", "commits"):
        (home / log).mkdir(parents=True)
    for batch in range(3):
        planned(home, batch, json.dumps({"orders": {"0": 10 * batch, "1": 7}}))
        if batch < 2:
            (home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (home / "offsets" / ".1.crc").write_bytes(b"crc")
    return home


def test_a_file_that_is_named_by_no_number_is_no_batch(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log / "\u00b2").write_text("v1")
    assert main(["migrate", str(checkpoint)]) == 0
    assert json.loads(capsys.readouterr().out) == {"orders": {"0": 10, "1": 7}}


def planned(home: Path, batch: int, *lines: str) -> None:
    (home / "offsets" / str(batch)).write_text("\n".join(["v1", META, *lines]))


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["migrate", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_the_last_committed_batch_counts_and_a_planned_one_is_told(checkpoint, capsys):
    assert main(["migrate", str(checkpoint)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"orders": {"0": 10, "1": 7}}
    assert "batch 1 is the last one that was committed" in said.err
    assert "batch 2 was planned and not committed: its rows are written again" in said.err


def test_the_offsets_can_be_written_to_a_new_file_and_none_is_overwritten(checkpoint, capsys, tmp_path):
    target = tmp_path / "offsets.json"
    assert main(["migrate", str(checkpoint), "--write", str(target)]) == 0
    assert json.loads(target.read_text()) == json.loads(capsys.readouterr().out)
    assert f"--write: {target} cannot be written (File exists): name a new file" in refused(
        capsys, checkpoint, "--write", target
    )


def test_of_several_sources_one_is_chosen(checkpoint, capsys):
    planned(checkpoint, 1, '{"orders":{"0":1}}', "-", '{"logOffset":3}', '{"clicks":{"0":2}}')
    told = refused(capsys, checkpoint)
    assert "holds 2 sources with Kafka offsets: 0 (orders); 3 (clicks); choose one with --source" in told
    assert main(["migrate", str(checkpoint), "--source", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == {"clicks": {"0": 2}}


@pytest.mark.parametrize("number", ["-1", "1", "7"])
def test_a_source_that_the_query_does_not_have_is_named_with_those_it_has(checkpoint, capsys, number):
    planned(checkpoint, 1, '{"orders":{"0":1}}', "-")
    assert (
        f"--source {number}: {checkpoint}/offsets/1 has no Kafka offsets of that number; it has those of: 0 (orders)"
        in (refused(capsys, checkpoint, "--source", number))
    )


def test_what_is_not_such_a_checkpoint_is_refused(checkpoint, capsys, tmp_path):
    assert "has no directory offsets: the checkpointLocation of a query is expected" in refused(capsys, tmp_path)
    assert "hdfs://x is not a local directory: copy the checkpoint here first" in refused(capsys, "hdfs://x")
    planned(checkpoint, 1, '{"logOffset":3}')
    assert "holds 0 sources with Kafka offsets: none" in refused(capsys, checkpoint)
    planned(checkpoint, 1, '{"state_key":"","offsets":{"orders":{"0":1}}}')
    assert "belongs to a query of keyedwm already" in refused(capsys, checkpoint)
    (checkpoint / "offsets" / "1").write_text("v2\n{}\n{}")
    assert "has version 'v2'; this command reads v1 only" in refused(capsys, checkpoint)
    (checkpoint / "offsets" / "1").write_text("")
    assert "cannot be read as an offset log of Spark" in refused(capsys, checkpoint)
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    assert "has committed no batch" in refused(capsys, checkpoint)


def test_partitions_that_are_new_since_start_at_their_beginning():
    known = {"orders": {"0": 5, "1": 6}}
    assert with_new_partitions(known, {"orders": (0, 1, 2)}) == {"orders": {"0": 5, "1": 6, "2": -2}}


def test_a_new_partition_is_asked_of_the_cluster(kafka, topic_of, checkpoint, capsys):
    topic = topic_of(3)
    planned(checkpoint, 1, json.dumps({topic: {"0": 5}}))
    assert main(["migrate", str(checkpoint), "--bootstrap", kafka.bootstrap]) == 0
    assert json.loads(capsys.readouterr().out) == {topic: {"0": 5, "1": -2, "2": -2}}
    login = ["--option", "kafka.security.protocol=SSL", "--option", "kafka.default.api.timeout.ms=1000"]
    assert main(["migrate", str(checkpoint), "--bootstrap", kafka.bootstrap, *login]) == 2  # this broker has no TLS
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--option", "kafka.security.protocol=SSL"], "--option needs --bootstrap"),
        (["--bootstrap", "h:1", "--option", "subscribe=t"], "'subscribe' is no option of a login"),
        (["--bootstrap", "h:1", "--option", "kafka.sasl.jaas.config=plain"], "kafka.sasl.jaas.config"),
    ],
)
def test_a_login_that_cannot_be_used_is_one_sentence(checkpoint, capsys, arguments, sentence):
    planned(checkpoint, 1, json.dumps({"orders": {"0": 5}}))
    assert main(["migrate", str(checkpoint), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.starts
def test_a_native_query_stops_and_keyedwm_goes_on_without_a_row_lost_or_doubled(kafka, topic_of, tmp_path):
    try:
        spark_kafka_connector_jars()
    except UnavailableError as error:
        pytest.skip(f"Spark's own connector cannot be fetched: {error}")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.system.first_hour.moving", kafka.bootstrap, topic_of(2), str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"}, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found == {
        "native": sorted(str(n) for n in range(10)),
        "ours": sorted(str(n) for n in range(10, 20)),
    }
