"""The rule of lateness (`keyedwm/core/lateness.py`) and the places of operators that ask it, broken on purpose."""

from __future__ import annotations

from tests.mutants.mutant import changes

LATENESS = [
    *changes(
        "core/lateness.py",
        ("    return time < watermark", "    return time <= watermark", "1: a row at W is on time"),
        ("    return end <= horizon", "    return end < horizon", "11: a window ends at W >= end"),
        ("return lateness_ms + (touching", "return (touching", "11: the allowed lateness"),
        ("return lateness_ms + (touching is Touching.MERGE)", "return lateness_ms", "11: a session takes its end"),
    ),
    *changes(
        "operators/frames/sliding.py",
        (
            "(self._frames_each if self._plan.late_rule is LateRule.WINDOW else 1)",
            "1",
            "11: late once every window that holds the row has ended",
        ),
        (
            "return self._closed_ends(keys, numbers, self._plan.lateness_ms)",
            "return self._closed_ends(keys, numbers)",
            "11: windows are kept for the lateness",
        ),
    ),
    *changes(
        "operators/frames/per_key_windows.py",
        (
            "self._watermarks_of(keys, numbers) - delay_ms(lateness_ms)",
            "self._watermarks_of(keys, numbers)",
            "11: windows of keys are kept for the lateness",
        ),
        (
            "        return self._row_watermarks\n",
            "        return self._row_watermarks + 1\n",
            "11: late by a key's own watermark",
        ),
    ),
    *changes(
        "operators/frames/per_key_sessions.py",
        (
            "watermarks - delay_ms(lateness_ms, self._window.touching)",
            "watermarks - delay_ms(lateness_ms)",
            "11: a session of a key takes its end",
        ),
    ),
    *changes(
        "operators/messages/grid_buffer.py",
        (
            "has_ended(self.grid.last_ends(at), self.floors(horizons))",
            "has_ended(self.grid.last_ends(at) + 1, self.floors(horizons))",
            "11: the floor is the end of the last window that is gone",
        ),
        (
            "has_ended(self.grid.last_ends(at), self.floors(horizons))",
            "has_ended(self.grid.last_ends(at), self.floors(horizons) + self.grid.step)",
            "11: a window that is not gone accepts messages",
        ),
        (
            "self.grid.last_end_by(horizons - self._kept_for)",
            "self.grid.last_end_by(horizons)",
            "11: messages are kept for the retention",
        ),
    ),
    *changes(
        "operators/messages/contents/session.py",
        (
            "has_ended(messages.at + self._window.gap_ms, self._floor)",
            "has_ended(messages.at, self._floor)",
            "11: a message outside the retention",
        ),
    ),
    *changes(
        "operators/messages/contents/on_demand.py",
        (
            "has_ended(messages.at, self._border)",
            "has_ended(messages.at + 1, self._border)",
            "11: the last window that a message could open",
        ),
    ),
]
