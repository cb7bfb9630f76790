# ruff: noqa: E501  the texts stand as they do in the code
"""The scalar models in `conformance/models`, which the product is compared with, broken on purpose."""

from __future__ import annotations

from tests.mutants.mutant import changes

MODELS = [
    *changes(
        "conformance/models/axis.py",
        ("self._throttle.admit(min(watermark_ms, event_ms))", "self._throttle.admit(watermark_ms)", "7: the cap"),
        ("event_ms < watermark_ms", "event_ms <= watermark_ms", "an event at W is on time"),
    ),
    *changes(
        "conformance/models/frames.py",
        (
            "    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms + size_ms)",
            "    return clamp_ms(time_ms + (offset_ms - time_ms) % size_ms)",
            "11: a boundary opens the next frame",
        ),
    ),
    *changes(
        "conformance/models/mapper.py",
        ("            watermark_ms = min(watermark_ms, cap_ms)\n", "", "7: the cap over all channels"),
        (
            "        self._quiet_since_ms[channel] = now_ms\n        return self._evaluate([ChannelWoken",
            "        return self._evaluate([ChannelWoken",
            "10: an event is not quiet",
        ),
        ("self._throttle.end_of_batch(output.time_ms)", "output.time_ms", "8: the flush is throttled"),
    ),
    *changes(
        "conformance/models/alignment.py",
        ("if delivered >= self._live]", "if delivered]", "12: every live channel"),
        (
            "        self._live.discard(channel)\n        return self._complete()",
            "        return self._complete()",
            "12: a finished channel is not waited for",
        ),
        ("        if not self._holding:\n            return frozenset()\n", "", "12: at-least-once reads on"),
        ("changes += self._abort(open_id)", "self._delivered.pop(open_id)", "12: a newer barrier aborts"),
        (
            "        if snapshot_id <= self._closed_through or snapshot_id in self._cancelled:\n            return []\n        changes",
            "        changes",
            "12: closed snapshots are ignored",
        ),
        ("        it._closed_through = state.closed_through\n", "", "13: restored alignment"),
        ("> MOST_OPEN:", "> 10 * MOST_OPEN:", "12: open snapshots are bounded"),
    ),
    *changes(
        "conformance/models/snapshots.py",
        ("        if snapshot_id != self.next_id:", "        if snapshot_id < self.next_id:", "12: ids go up by one"),
        (
            '            raise OutOfTurnError(f"snapshot {snapshot_id} was begun while snapshot {self.open_id} is open")',
            "            pass",
            "12: one at a time",
        ),
    ),
    *changes(
        "conformance/models/inbound.py",
        (
            "            if channel in self._alignment.blocked_channels():\n                continue\n",
            "",
            "12: a held channel is not read",
        ),
        (
            "                    return is_moving, events + control\n",
            "                    pass\n",
            "12: a completed barrier ends the pass",
        ),
        ("                    control += self._coalescer.event(channel)\n", "", "3: an event wakes"),
    ),
    *changes(
        "conformance/models/sliding.py",
        ("if end_ms <= time_ms]", "if end_ms < time_ms]", "11: closes at W >= end"),
        (
            "return start_ms + self._config.size_ms + self._config.lateness_ms <= watermark_ms",
            "return start_ms + self._config.slide_ms <= watermark_ms",
            "11: late by window",
        ),
        (
            "return start_ms + self._config.slide_ms <= watermark_ms",
            "return event_ms < watermark_ms",
            "11: late by frame",
        ),
        (
            "if end_ms <= watermark_ms < end_ms + self._config.lateness_ms",
            "if end_ms <= watermark_ms",
            "11: allowed lateness",
        ),
        (
            "self._watermark_ms - self._config.size_ms - self._config.lateness_ms",
            "self._watermark_ms - self._config.slide_ms",
            "11: frames are kept",
        ),
    ),
    *changes(
        "conformance/models/sessions.py",
        (
            "return one[0] <= other[1] and other[0] <= one[1]",
            "return one[0] < other[1] and other[0] < one[1]",
            "11: touching merges",
        ),
        (
            "return watermark_ms > end_ms if touching",
            "return watermark_ms >= end_ms if touching",
            "11: merged sessions close above their end",
        ),
        (
            "closes(end_ms + config.lateness_ms, self._watermark_ms, config.touching)",
            "self._watermark_ms is not None and event_ms < self._watermark_ms",
            "11: a session that is open takes it",
        ),
        (
            "            accumulator = self._aggregate.combine(accumulator, one.accumulator)\n",
            "            accumulator = one.accumulator\n",
            "11: merged sessions combine",
        ),
    ),
    *changes(
        "conformance/models/time_bounds.py",
        (
            "candidate_ms = min(self._limit[out], self._received[out])",
            "candidate_ms = self._limit[out]",
            "join: not above what was received",
        ),
        ("limit_ms = time_ms - constant_ms", "limit_ms = time_ms", "join: the bound"),
        (
            "key_bounds[other] = min(constant_ms, key_bounds.get(other, constant_ms))",
            "key_bounds[other] = constant_ms",
            "join: the tightest bound",
        ),
        (
            "dict(self._limit), dict(self._received), dict(self._emitted))",
            "dict(self._limit), dict(self._received))",
            "13: emitted is state",
        ),
    ),
    *changes(
        "conformance/models/join.py",
        (
            "                own.matched = match.matched = True\n",
            "                own.matched = True\n",
            "join: a match is not padded",
        ),
        ("        if self._limits.is_late(times_ms):\n            return []\n", "", "join: late rows are dropped"),
        (
            "        elif self._config.outer is side and not own.matched:\n            joined.append(self._padded(side, row))\n",
            "",
            "join: padded at once",
        ),
        ("if key not in self._config.left_keys and", "if False and", "join: a key of neither side"),
    ),
]
