"""The recorded seconds: of files that are there, and long files come first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.schedule import LONG_S, TABLE, Recorder, long_ones_first, one_case_each, recorded

ROOT = Path(__file__).parents[3]


def test_every_file_of_the_table_is_there_and_the_longest_stands_first() -> None:
    seconds = recorded()
    assert [file for file in seconds if not (ROOT / file).is_file()] == []
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)
    assert TABLE.read_text().count("\n") == len(seconds) > 20


def test_long_files_come_first_and_tests_of_a_file_stay_in_their_order() -> None:
    items = [SimpleNamespace(nodeid=name) for name in ("a::2", "b::1", "c::9", "b::0", "d::x[::]")]
    long_ones_first(items, {"b": 5, "d": 7})  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == ["d::x[::]", "b::1", "b::0", "a::2", "c::9"]


def test_of_a_long_file_a_quick_run_plays_each_test_once() -> None:
    names = ("long::a[1]", "long::a[2]", "long::b", "short::a[1]", "short::a[2]", "long::c[x[2]]", "long::c[x[3]]")
    items = [SimpleNamespace(nodeid=name) for name in names]
    chosen = one_case_each(items, {"long": LONG_S, "short": LONG_S - 1})  # type: ignore[arg-type]
    assert [item.nodeid for item in chosen] == [names[at] for at in (0, 2, 3, 4, 5)]


def test_what_is_recorded_replaces_what_was_there_for_the_same_file(tmp_path: Path) -> None:
    table = tmp_path / "seconds.txt"
    table.write_text("9 a\n4 b\n3 e\n")
    recorder = Recorder(table)
    for test, taken in (("b::1", 10.0), ("b::2", 10.4), ("c::1", 0.4), ("d::1", 8.0), ("e::1", 0.1)):
        recorder.pytest_runtest_logreport(SimpleNamespace(nodeid=test, duration=taken))  # type: ignore[arg-type]
    recorder.pytest_sessionfinish()
    assert table.read_text() == "20 b\n9 a\n8 d\n"
