"""The order of test files where several processes share them: long ones first, or the last one would run alone.

Rule: `seconds.txt` orders, and with `--quick` chooses: of a file that takes long, each test runs with its first
parameters alone. The table has the files that take some seconds; another one comes last. `--record-seconds` writes it,
for the files of that run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("seconds.txt")
LEAST_S = 2
LONG_S = 3


def recorded(table: Path = TABLE) -> dict[str, int]:
    """Seconds by file; a line each."""
    lines = (line.split() for line in table.read_text().splitlines())
    return {file: int(seconds) for seconds, file in lines}


def long_ones_first(items: list[pytest.Item], seconds: Mapping[str, int]) -> None:
    """Sort in place; tests of one file stay together and in their order."""
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0))


def one_case_each(items: list[pytest.Item], seconds: Mapping[str, int]) -> list[pytest.Item]:
    """Return the tests without those of long files that differ from an earlier one in their parameters alone."""
    earlier_tests: set[str] = set()
    cases = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test not in earlier_tests or seconds.get(file_of(test), 0) < LONG_S:
            cases.append(item)
        earlier_tests.add(test)
    return cases


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Recorder:
    """Adds up how long each file takes, set-up and tear-down included."""

    def __init__(self, table: Path = TABLE) -> None:
        self._table, self._durations_s = table, Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations_s[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        seconds = recorded(self._table) | {file: round(duration_s) for file, duration_s in self._durations_s.items()}
        rows = sorted(
            ((whole_s, file) for file, whole_s in seconds.items() if whole_s >= LEAST_S),
            key=lambda one: (-one[0], one[1]),
        )
        self._table.write_text("".join(f"{whole_s} {file}\n" for whole_s, file in rows))
