"""One line of `keyedwm doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The meaning of a finding for a query."""

    OK = "ok"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked subject, and its state. fix: the cure, empty if all is well."""

    verdict: Verdict
    subject: str
    state: str
    fix: str = ""

    def __post_init__(self) -> None:
        if bool(self.fix) == (self.verdict is Verdict.OK):
            raise ValueError(f"{self.subject}: a fix stands beside a warning or a failure, and nowhere else")

    @property
    def fails(self) -> bool:
        """Whether a query cannot run."""
        return self.verdict is Verdict.FAIL

    def line(self) -> str:
        """Return the verdict, the subject, its state and the fix."""
        line = f"{self.verdict.value:<4}  {self.subject}: {self.state}"
        return f"{line} -> {self.fix}" if self.fix else line


def ok(subject: str, state: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, subject, state)


def warn(subject: str, state: str, fix: str) -> Finding:
    """A query runs, but with a disadvantage."""
    return Finding(Verdict.WARN, subject, state, fix)


def fail(subject: str, state: str, fix: str) -> Finding:
    """A query will not run."""
    return Finding(Verdict.FAIL, subject, state, fix)
