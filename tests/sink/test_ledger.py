"""The ledger's files: whole or not at all, and damage is named with its file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.core.errors import FormatError, InputError, UnavailableError
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.batch.seal import seal
from pyspark_wm_sink.kafka.ledger import MOST_ENTRIES, Entry, Ledger, RunHistory
from pyspark_wm_sink.limits import Limits
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.places import ledger_files as files_module
from pyspark_wm_sink.places.notes import Claim


def entry(batch: int) -> Entry:
    report = BatchReport(query="q", run="r", batch=batch, attempt=f"a{batch}", rows=1, control=(), event_tops={})
    record = seal(None, report, SnapshotMode.BATCH, Guarantee.EXACTLY_ONCE)
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
    for batch in range(MOST_ENTRIES + 20):
        ledger.decide(entry(batch))
        ledger.mark_published(entry(batch))
    assert len(list(ledger.directory.glob("*.published.json"))) == MOST_ENTRIES
    assert ledger.newest().batch == MOST_ENTRIES + 19


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda _: "", "is damaged"),
        (lambda _: "[]", "is damaged"),
        (lambda text: text.replace("q-4", "q-5"), "its checksum does not match"),
    ],
)
def test_a_damaged_entry_is_named_with_its_file_and_nothing_else_is_read_instead(ledger, damage, sentence):
    for batch in (3, 4):
        ledger.decide(entry(batch))
    path = ledger.directory / "000000000004.decided.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(FormatError) as error:
        ledger.newest()
    assert str(path) in error.value.message
    assert sentence in error.value.message
    assert "runbook" in str(error.value)


def test_a_newer_format_is_refused_by_its_version(ledger):
    ledger.write_note("000000000004.decided.json", {"version": 2})
    with pytest.raises(FormatError, match=r"has format version 2, this keyedwm reads version 1"):
        ledger.newest()


def test_runs_are_kept_in_order(ledger):
    assert ledger.run_history() is None
    runs = RunHistory(query="q", runs=("one", "two"), fence=Transaction("q-fence", 1, 2))
    ledger.write_run_history(runs)
    assert ledger.run_history() == runs


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
from pathlib import Path
from pyspark_wm_sink.kafka.ledger import Ledger
with Ledger(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_hold_one_ledger_and_a_killed_one_holds_nothing(tmp_path):
    hasty = Ledger(tmp_path, Limits(lock_timeout_s=0.2))
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UnavailableError, match="was locked by another process"), hasty.locked():
            pass
    finally:
        holder.kill()
        holder.communicate()
    with Ledger(tmp_path).locked():
        pass


def test_a_ledger_is_readable_and_writable_for_its_owner_alone(tmp_path):
    ledger = Ledger(tmp_path / "own")
    before = os.umask(0o002)
    try:
        with ledger.locked():
            ledger.decide(entry(3))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in ledger.directory.iterdir()}
    assert ledger.directory.stat().st_mode & 0o777 == 0o700
    assert modes == {"lock": 0o600, "000000000003.decided.json": 0o600}
    ledger.directory.chmod(0o755)  # as an earlier version made it
    with ledger.locked():
        pass
    assert ledger.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["lock", ".000000000003.decided.json", "000000000003.decided.json"])
def test_a_link_in_the_place_of_a_ledger_file_is_not_followed(tmp_path, name):
    ledger = Ledger(tmp_path / "own")
    target = tmp_path / "elsewhere"
    target.write_text("untouched")
    ledger.directory.mkdir(parents=True)
    (ledger.directory / name).symlink_to(target)
    if name == "lock":
        with pytest.raises(InputError, match="cannot be written"), ledger.locked():
            pass
    elif name.startswith("."):
        ledger.decide(entry(3))
        assert ledger.newest() == entry(3)
    else:
        with pytest.raises(InputError, match="cannot be read"):
            ledger.newest()
    assert target.read_text() == "untouched"


def test_a_ledger_of_another_user_is_refused(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "own")
    with ledger.locked():
        pass
    own_uid = ledger.directory.stat().st_uid
    os.chown(ledger.directory, 4_711, -1) if own_uid == 0 else None
    monkeypatch.setattr(files_module.os, "geteuid", lambda: own_uid + 1)
    with pytest.raises(InputError, match=r"belongs to user .*, and this process runs as user"), ledger.locked():
        pass


@pytest.mark.parametrize("owner", [4_711, os.geteuid()])
def test_a_link_in_the_place_of_a_ledger_is_followed_only_if_no_other_user_made_it(owner, tmp_path, monkeypatch):
    site, link = tmp_path / "site", tmp_path / "link"
    site.mkdir(mode=0o755)
    site.chmod(0o755)
    link.symlink_to(site)
    own = Path.lstat

    def lstat(path):
        status = list(own(path))
        status[4] = owner if path == link else status[4]
        return os.stat_result(status)

    monkeypatch.setattr(Path, "lstat", lstat)
    ledger = Ledger(link)
    if owner == os.geteuid():
        with ledger.locked():
            pass
        return
    with pytest.raises(InputError, match=r"link belongs to user 4711, and this process runs as user"), ledger.locked():
        pass
    assert stat.S_IMODE(site.stat().st_mode) == 0o755
    assert not list(site.iterdir())


def test_a_replaced_owner_gets_no_epoch_until_it_takes_one_again_and_epochs_go_up_by_one(tmp_path):
    ledger = Ledger(tmp_path / "own")
    ledger.directory.mkdir()
    assert ledger.epoch() == 0
    assert [ledger.take_epoch(owner) for owner in "aab"] == [
        Claim(owner="a", epoch=1, is_new=True), Claim(owner="a", epoch=1), Claim(owner="b", epoch=2, is_new=True),
    ]  # fmt: skip
    assert ledger.take_epoch("a") == Claim(owner="a", epoch=None)
    assert ledger.epoch() == 2
    ledger.retake_epoch("a")
    assert ledger.take_epoch("a") == Claim(owner="a", epoch=3)
    assert ledger.take_epoch("b") == Claim(owner="b", epoch=None)
