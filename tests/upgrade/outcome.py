"""What came of an upgrade: how many rows are lost, doubled or wrong, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from tests.upgrade.answers import Row

REJECTION = "KWM-5001"  # the code of what a newer version has written


@dataclass
class Outcome:
    """What came of a trial. failures: queries that failed, with their errors; rejections: those of the old version,
    after it was started again, with the names of the files that it changed; unreached: what a trial waited for in
    vain."""

    version: str
    how: str
    target: str
    queries: tuple[str, ...]
    records: int = 0
    in_flight: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    rejections: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    continuations: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def count(self, name: str, exact: Counter[Row], rows: Counter[Row]) -> None:
        """Count the rows of a query that are missing, there twice, or not of the exact result."""
        excess, missing = rows - exact, exact - rows
        twice = sum(count for row, count in excess.items() if row in exact)
        self.lost += missing.total()
        self.doubled += twice
        self.wrong += excess.total() - twice
        if missing or excess:
            self.details.append(f"{name}: missing {_few(missing)}, too many {_few(excess)}")

    def count_downgrade(self, continued: Sequence[str], errors: Mapping[str, str]) -> None:
        """Count the queries that the old version continued or rejected. Any other error is a failure, such as that of a
        host that starts no Python process in time."""
        self.continuations += continued
        for name, error in errors.items():
            if name in continued:
                self.failures[name] = f"after it continued: {error}"
            elif REJECTION in error and "\n" not in error:
                self.rejections[name] = error
            else:
                self.failures[name] = f"not rejected in one sentence: {error}"

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.failures or self.changes or self.unreached)


def _few(rows: Counter[Row], most: int = 3) -> str:
    return f"{rows.total()} rows such as {sorted(rows, key=repr)[:most]}" if rows else "none"


def total(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of all groups of a trial's queries. Their details are those of the groups."""
    first = outcomes[0]
    sums = {
        name: reduce(add, (getattr(outcome, name) for outcome in outcomes))
        for name in ("queries", "records", "in_flight", "lost", "doubled", "wrong", "continuations")
    }
    rejections = {name: error for outcome in outcomes for name, error in outcome.rejections.items()}
    return Outcome(first.version, first.how, first.target, rejections=rejections, **sums)
