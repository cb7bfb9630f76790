"""Sessions: intervals that grow and merge (rule 11). The scalar model of the product's session operator.

Rule: an event at t covers `[t, t + gap)`. With `touching` MERGE intervals that touch are one, so a session closes only
at W > end, and it makes no difference whether an event at its end or that watermark came first. With SEPARATE only
overlapping ones merge, and a session closes at W >= end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.models.results import Late, WindowResult
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import LateRule, Touching


def joins(one: tuple[int, int], other: tuple[int, int], touching: Touching) -> bool:
    """Whether two half-open intervals belong to one session."""
    if touching is Touching.MERGE:
        return one[0] <= other[1] and other[0] <= one[1]
    return one[0] < other[1] and other[0] < one[1]


def closes(end_ms: int, watermark_ms: int | None, touching: Touching) -> bool:
    """Whether a session ending at `end_ms` can take nothing more."""
    if watermark_ms is None:
        return False
    return watermark_ms > end_ms if touching is Touching.MERGE else watermark_ms >= end_ms


def merge(intervals: Iterable[tuple[int, int]], touching: Touching) -> list[tuple[tuple[int, int], list]]:
    """Group intervals into sessions: each with the distinct intervals it was made of, in order."""
    groups: list[tuple[tuple[int, int], list]] = []
    for interval in sorted(set(intervals)):
        if groups and joins(groups[-1][0], interval, touching):
            span, members = groups[-1]
            groups[-1] = ((span[0], max(span[1], interval[1])), [*members, interval])
        else:
            groups.append((interval, [interval]))
    return groups


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Sessions by inactivity gap."""

    gap_ms: int
    touching: Touching = Touching.MERGE
    lateness_ms: int = 0
    late_rule: LateRule = LateRule.WINDOW

    def __post_init__(self) -> None:
        if self.gap_ms < 1:
            raise OptionError(f"the gap of a session is {self.gap_ms} ms, it must be 1 or more")
        if self.late_rule is LateRule.FRAME:
            raise OptionError("sessions have no frames: the late rule must be window or event")
        if self.lateness_ms < 0 or (self.lateness_ms and self.late_rule is not LateRule.WINDOW):
            raise OptionError(
                f"a lateness of {self.lateness_ms} ms needs the late rule window and must not be negative"
            )


@dataclass(frozen=True, slots=True)
class Session:
    """A session that is held: its interval, its accumulator, and whether its total was emitted."""

    start_ms: int
    end_ms: int
    accumulator: object
    emitted: bool = False


@dataclass(frozen=True, slots=True)
class SessionState:
    """Sessions at rest, by data key in order of start, and the last watermark."""

    sessions: Mapping[object, tuple[Session, ...]] = field(default_factory=dict)
    watermark_ms: int | None = None


class Sessions:
    """One operator instance. Results of one step stand in order of end, start, key."""

    def __init__(
        self, config: SessionConfig, aggregate: AccumulatorFunctions, state: SessionState | None = None
    ) -> None:
        state = state or SessionState()
        self._config = config
        self._aggregate = aggregate
        self._sessions: dict[object, list[Session]] = {key: list(sessions) for key, sessions in state.sessions.items()}
        self._watermark_ms = state.watermark_ms

    def event(self, event_ms: int, key: object, value: object) -> list[WindowResult | Late]:
        """Take an event: Late, or the new total of a session that has closed but is still kept."""
        config = self._config
        interval = (event_ms, event_ms + config.gap_ms)
        key_sessions = self._sessions.get(key, [])
        joined = [one for one in key_sessions if joins((one.start_ms, one.end_ms), interval, config.touching)]
        start_ms = min([one.start_ms for one in joined], default=interval[0])
        end_ms = max([one.end_ms for one in joined], default=interval[1])
        start_ms, end_ms = min(start_ms, interval[0]), max(end_ms, interval[1])
        if config.late_rule is LateRule.EVENT:
            late = self._watermark_ms is not None and event_ms < self._watermark_ms
        else:
            late = closes(end_ms + config.lateness_ms, self._watermark_ms, config.touching)
        if late:
            return [Late()]
        accumulator = self._aggregate.create()
        for one in joined:
            accumulator = self._aggregate.combine(accumulator, one.accumulator)
        accumulator = self._aggregate.accumulate(accumulator, value)
        closed = config.late_rule is LateRule.WINDOW and closes(end_ms, self._watermark_ms, config.touching)
        session = Session(start_ms, end_ms, accumulator, emitted=closed)
        self._sessions[key] = sorted([one for one in key_sessions if one not in joined] + [session], key=_by_start)
        return [self._result(key, session)] if closed else []

    def watermark(self, time_ms: int) -> list[WindowResult | Late]:
        """Close sessions, and forget those that take nothing more."""
        if self._watermark_ms is not None and time_ms <= self._watermark_ms:
            return []
        self._watermark_ms = time_ms
        closed = []
        for key, key_sessions in list(self._sessions.items()):
            closed += [(key, one) for one in key_sessions if not one.emitted and self._closed(one, 0)]
            remaining = [
                Session(one.start_ms, one.end_ms, one.accumulator, emitted=self._closed(one, 0))
                for one in key_sessions
                if not self._closed(one, self._config.lateness_ms)
            ]
            if remaining:
                self._sessions[key] = remaining
            else:
                del self._sessions[key]
        return self._results(closed)

    def complete(self) -> list[WindowResult | Late]:
        """The input has ended: every session not yet emitted."""
        results = self._results(
            [(key, one) for key, sessions in self._sessions.items() for one in sessions if not one.emitted]
        )
        self._sessions.clear()
        return results

    def snapshot(self) -> SessionState:
        """Everything the next step depends on."""
        return SessionState({key: tuple(sessions) for key, sessions in self._sessions.items()}, self._watermark_ms)

    def _closed(self, session: Session, lateness_ms: int) -> bool:
        return closes(session.end_ms + lateness_ms, self._watermark_ms, self._config.touching)

    def _results(self, closed: list[tuple[object, Session]]) -> list[WindowResult | Late]:
        in_order = sorted(closed, key=lambda each: (each[1].end_ms, each[1].start_ms, type(each[0]).__name__, each[0]))
        return [self._result(key, session) for key, session in in_order]

    def _result(self, key: object, session: Session) -> WindowResult:
        return WindowResult(session.start_ms, session.end_ms, key, self._aggregate.finish(session.accumulator))


def _by_start(session: Session) -> int:
    return session.start_ms
