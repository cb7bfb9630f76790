"""Watermarks and snapshots cross jobs, also when both jobs are killed: nothing lost, doubled, late or cut apart."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from keyedwm.core.inline import HEADER
from tests.e2e.chain import between
from tests.sink.conftest import records_of
from tests.tools import Record, at, make_topic, produce, wait_until

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]  # minutes on a machine of its own

ROOT = Path(__file__).parents[2]
LIMIT_S = 400
CHANNELS, HALF = 2, 80
KILLS = int(os.environ.get("KEYEDWM_KILLS", "1"))
ROWS = 2 * HALF * KILLS


def start(kafka, topic: str, directory: Path, mode: str) -> subprocess.Popen:
    command = [sys.executable, "-W", "ignore", "-m", "tests.e2e.chain", kafka.bootstrap, topic, str(directory), mode]
    with (directory / "log").open("a") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def finish(kafka, topic: str, directory: Path, more: Callable[[], None]) -> None:
    """Run both queries until all that is there has come through, and again with what `more` sends."""
    last = start(kafka, topic, directory, "to-the-end")
    try:
        wait_until(lambda: (directory / "came-through").exists() or last.poll() is not None, "the end", LIMIT_S)
        more()
        (directory / "more").touch()
        assert last.wait(LIMIT_S) == 0, (directory / "log").read_text()[-4_000:]
    finally:
        if last.poll() is None:
            kill(last)


def kill(running: subprocess.Popen) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def feed(kafka, topic: str, first: int, count: int) -> None:
    """Channel 1 is ten times slower in event time than channel 0."""
    records = []
    for n in range(first, first + count):
        for p in range(CHANNELS):
            t = n * (10_000 if p == 0 else 1_000)
            value = json.dumps({"p": p, "n": n, "t": t}).encode()
            records.append(Record(p, 0, value, f"{p}:{n}".encode()))
    produce(kafka.bootstrap, topic, records)


def rows_in(directory: Path) -> int:
    """How many rows the table holds; versions tell less, since a batch may bring none."""
    place = directory / "table"
    return DeltaTable(str(place)).count() if (place / "_delta_log").exists() else 0


def rows_of(table: DeltaTable) -> list[dict]:
    rows = table.to_pyarrow_table(columns=["value", "event_time", "watermark"]).to_pylist()
    return [{**json.loads(row["value"]), "event": row["event_time"], "watermark": row["watermark"]} for row in rows]


def cuts_of(kafka, topic: str) -> set[tuple[int, ...]]:
    """What each snapshot of the query upstream holds: the next offset of each of its channels."""
    values = [
        json.loads(v) for _, _, v, h in records_of(kafka.bootstrap, between(topic)) if h and h[0]["key"] == HEADER
    ]
    barriers = [value["channels"] for value in values if value["kind"] == "barrier"]
    return {tuple(channels[f"{topic}-{p}"]["offset"] for p in range(CHANNELS)) for channels in barriers}


def test_two_jobs_in_a_chain_are_killed_and_every_table_version_is_a_snapshot_of_the_first(
    kafka, new_topic, tmp_path, seed
):
    topic = make_topic(kafka.bootstrap, new_topic(), CHANNELS)
    make_topic(kafka.bootstrap, between(topic), 3)
    chance = random.Random(f"{seed} chain")
    running_file = tmp_path / "running"
    for round_ in range(KILLS):
        running_file.unlink(missing_ok=True)
        running = start(kafka, topic, tmp_path, "forever")
        try:
            wait_until(lambda at=running: running_file.exists() or at.poll() is not None, "both queries")
            for half in range(2):  # two batches at least, however fast the machine
                before = rows_in(tmp_path)
                feed(kafka, topic, (2 * round_ + half) * HALF, HALF)
                wait_until(lambda at=before: rows_in(tmp_path) > at, "rows at the end of the chain")
            time.sleep(chance.uniform(0.0, 3.0))
            assert running.poll() is None, (tmp_path / "log").read_text()[-4_000:]
        finally:
            kill(running)
    # The last ones come when the watermark is known, however the batches before were cut.
    finish(kafka, topic, tmp_path, lambda: feed(kafka, topic, ROWS, HALF))

    table = DeltaTable(str(tmp_path / "table"))
    rows = rows_of(table)
    assert sorted((row["p"], row["n"]) for row in rows) == [(p, n) for p in range(CHANNELS) for n in range(ROWS + HALF)]
    assert not [row for row in rows if row["watermark"] is not None and row["event"] < row["watermark"]]
    assert all(row["event"] == at(row["t"]) for row in rows)
    assert any(row["watermark"] is not None for row in rows)
    cuts = cuts_of(kafka, topic)
    tops_of_versions = set()
    for version in range(1, table.version() + 1):
        there = rows_of(DeltaTable(str(tmp_path / "table"), version=version))
        tops = [sorted(row["n"] for row in there if row["p"] == p) for p in range(CHANNELS)]
        assert all(own == list(range(len(own))) for own in tops)
        assert tuple(map(len, tops)) in cuts | {(0,) * CHANNELS}
        tops_of_versions.add(tuple(map(len, tops)))
    assert len(tops_of_versions) > 3, tops_of_versions
