"""The ledger's files: whole or not at all, and damage is named with its file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from keyedwm.core.errors import FormatError, InputError, UnavailableError
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.transactions import Transaction
from pyspark_wm_sink import ledger as ledger_module
from pyspark_wm_sink.ledger import KEPT, Entry, Ledger, Runs
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.seal import Brought, seal


def entry(batch: int) -> Entry:
    brought = Brought(query="q", run="r", batch=batch, attempt=f"a{batch}", rows=1, control=(), event_tops={})
    record = seal(None, brought, SnapshotMode.BATCH, Guarantee.EXACTLY_ONCE)
    return Entry(batch=batch, record=record, transactions=(Transaction(f"q-{batch}", 7, 3),))


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger").locked():
        yield Ledger(tmp_path / "ledger")


def test_an_entry_is_read_back_as_it_was_written_and_then_published(ledger):
    assert ledger.newest() is None
    ledger.decide(entry(4))
    assert ledger.newest() == entry(4)
    published = ledger.mark_published(entry(4))
    assert published.published
    assert ledger.newest() == published
    assert ledger.newest(up_to=3) is None


def test_a_part_that_was_never_renamed_is_no_decision(ledger):
    ledger.decide(entry(4))
    (ledger.directory / ".000000000005.decided.json").write_text('{"checksum": "')
    assert ledger.newest() == entry(4)


def test_old_entries_are_forgotten_the_newest_never(ledger):
    for batch in range(KEPT + 20):
        ledger.decide(entry(batch))
        ledger.mark_published(entry(batch))
    assert len(list(ledger.directory.glob("*.published.json"))) == KEPT
    assert ledger.newest().batch == KEPT + 19


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda _: "", "is damaged"),
        (lambda _: "[]", "is damaged"),
        (lambda text: text.replace("q-4", "q-5"), "its checksum does not fit"),
    ],
)
def test_a_damaged_entry_is_named_with_its_file_and_nothing_else_is_read_instead(ledger, damage, said):
    for batch in (3, 4):
        ledger.decide(entry(batch))
    path = ledger.directory / "000000000004.decided.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(FormatError) as refused:
        ledger.newest()
    assert str(path) in refused.value.message
    assert said in refused.value.message
    assert "runbook" in str(refused.value)


def test_a_newer_format_is_refused_by_its_version(ledger, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(ledger_module, "VERSION", 2)
        ledger.decide(entry(4))
    with pytest.raises(FormatError, match=r"has format version 2, this keyedwm reads version 1"):
        ledger.newest()


def test_runs_are_kept_in_order(ledger):
    assert ledger.runs() is None
    runs = Runs(query="q", runs=("one", "two"), fence=Transaction("q-fence", 1, 2))
    ledger.write_runs(runs)
    assert ledger.runs() == runs


def test_a_full_disk_decides_nothing(ledger, monkeypatch):
    ledger.decide(entry(3))

    def full(_handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(UnavailableError, match=r"the ledger .* cannot be written: .* No space left"):
            ledger.decide(entry(4))
    assert ledger.newest() == entry(3)


def test_a_ledger_that_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"the ledger .*file/ledger cannot be written"),
        Ledger(tmp_path / "file" / "ledger").locked(),
    ):
        pass


HOLDER = """
import sys
from pathlib import Path
from pyspark_wm_sink.ledger import Ledger
with Ledger(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_hold_one_ledger_and_a_killed_one_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "_LOCK_PATIENCE_S", 0.2)
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UnavailableError, match="was held by another process"), Ledger(tmp_path).locked():
            pass
    finally:
        holder.kill()
        holder.communicate()
    with Ledger(tmp_path).locked():
        pass
