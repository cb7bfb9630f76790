"""Watermark policies of users, for tests: one that keeps the laws, and some that break one each."""

from __future__ import annotations

import sys

from keyedwm.core.policy import FixedLag

HOUR_MS = 3_600_000


class WholeHours:
    """The full hour at or below the highest event time: events move it at a batch's end only."""

    event_lag_ms = None

    def build(self, resume_from=None):
        return _WholeHoursRun(resume_from or ())

    def concatenate(self, first, then):
        return max(tuple(first), tuple(then))


class _WholeHoursRun:
    def __init__(self, state):
        self._hour_ms = state[0] if state else None

    def observe(self, event_ms, _now_ms):
        hour_ms = event_ms - event_ms % HOUR_MS
        if self._hour_ms is None or hour_ms > self._hour_ms:
            self._hour_ms = hour_ms

    def current(self, _now_ms):
        return self._hour_ms

    def snapshot(self):
        return () if self._hour_ms is None else (self._hour_ms,)


def whole_hours():
    return WholeHours()


class _Wrapped:
    """A fixed lag with something changed."""

    def __init__(self, policy, state):
        self._run = policy.build(state)

    def __getattr__(self, name):
        return getattr(self._run, name)


class Broken:
    """A fixed lag that breaks one law."""

    event_lag_ms = 0

    def __init__(self, kind):
        self.kind = kind

    def build(self, resume_from=None):
        return self.kind(FixedLag(0), resume_from or ())

    def concatenate(self, first, then):
        return FixedLag(0).concatenate(first, then)


class Falls(_Wrapped):
    def __init__(self, policy, state):
        super().__init__(policy, state)
        self._last_ms = state[0] if state else None

    def observe(self, event_ms, _now_ms):
        self._last_ms = event_ms

    def current(self, _now_ms):
        return self._last_ms


class Counts(_Wrapped):
    """Its state is how many events it has seen."""

    def __init__(self, policy, state):
        super().__init__(policy, ())
        self._events = state[0] if state else 0

    def observe(self, _event_ms, _now_ms):
        self._events += 1

    def current(self, _now_ms):
        return self._events

    def snapshot(self):
        return (self._events,)


class Forgets(_Wrapped):
    def snapshot(self):
        return ()


class Hoards(_Wrapped):
    def __init__(self, policy, state):
        super().__init__(policy, state[:1])
        self._all = state[1:]

    def observe(self, event_ms, now_ms):
        self._run.observe(event_ms, now_ms)
        self._all = (*self._all, event_ms)

    def snapshot(self):
        return (*self._run.snapshot(), *self._all)


class Drags(_Wrapped):
    """Says another lag than the one it has."""

    def current(self, now_ms):
        watermark_ms = self._run.current(now_ms)
        return None if watermark_ms is None else watermark_ms - 1


def nothing():
    return object()


def fails():
    raise ValueError("no such file")


def exits():
    sys.exit(3)


class _Unreadable(WholeHours):
    @property
    def event_lag_ms(self):
        raise ValueError("no lag")


def unreadable():
    return _Unreadable()


class _Leaves(WholeHours):
    def build(self, _resume_from=None):
        sys.exit(4)


def leaves():
    return _Leaves()


class _Shouts(WholeHours):
    def build(self, _resume_from=None):
        raise ValueError("not today")


def shouts():
    return _Shouts()


class _Floats(WholeHours):
    def build(self, resume_from=None):
        run = super().build(resume_from)
        run.current = lambda _now_ms: 1.5
        return run


def floats():
    return _Floats()
