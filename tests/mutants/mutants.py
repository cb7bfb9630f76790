# ruff: noqa: E501  the texts stand as they do in the code
"""The rules, broken on purpose: (file under keyedwm, what stands there, what it becomes, the rule that breaks).

Rule: every text stands exactly once in its file, so that a mutant that no longer applies is noticed.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of the code."""

    path: str
    before: str
    after: str
    breaks: str


def _of(path: str, *changes: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(path, before, after, breaks) for before, after, breaks in changes]


MUTANTS = [
    *_of(
        "core/coalescer.py",
        (
            "if before is not None and time_ms <= before:",
            "if before is not None and time_ms < before:",
            "1: equal is a regression",
        ),
        ("            self._swallowed += 1\n", "            pass\n", "1: swallowed regressions are counted"),
        (
            "            self._swallowed += 1\n",
            "            self._swallowed += 1\n            return\n",
            "1: a swallowed regression wakes",
        ),
        ("                raise RegressionError(", "                raise OutOfTurnError(", "1: the error kind"),
        (
            "if time_ms is not None and (before is None or time_ms > before):",
            "if time_ms is not None:",
            "2: never back",
        ),
        (
            "                if time_ms is None:\n                    return None\n",
            "                if time_ms is None:\n                    continue\n",
            "2: no watermark blocks",
        ),
        (
            "return min(of_key.values()) if len(of_key) == len(self._status) else None",
            "return min(of_key.values())",
            "2: no watermark blocks, all active",
        ),
        ("if lowest is None or time_ms < lowest:", "if lowest is None or time_ms > lowest:", "2: the minimum"),
        (
            "            if status is Status.ACTIVE:\n                time_ms = of_key.get(channel)",
            "            if status is not Status.IDLE:\n                time_ms = of_key.get(channel)",
            "2: done counts as infinity",
        ),
        (
            "            if status is Status.ACTIVE:\n                time_ms = of_key.get(channel)",
            "            if status is not Status.DONE:\n                time_ms = of_key.get(channel)",
            "3: idle is left out",
        ),
        (
            '            raise OutOfTurnError(f"channel {channel} is done, but an idle marker came")',
            "            return",
            "2: an idle marker on a done channel",
        ),
        (
            '            raise OutOfTurnError(f"channel {channel} is done, but its end came again")',
            "            return",
            "2: a second end",
        ),
        (
            "        if status is Status.IDLE:\n            self._wake(channel)\n        self._idle_spell = False\n\n    def _woken",
            "        self._idle_spell = False\n\n    def _woken",
            "3: a watermark wakes",
        ),
        ("        if status is Status.DONE:\n            return\n", "", "4: an event on a done channel ends no spell"),
        (
            "        if status is Status.IDLE:\n            self._wake(channel)\n        self._idle_spell = False\n\n    def _went_idle",
            "        if status is Status.IDLE:\n            self._wake(channel)\n\n    def _went_idle",
            "4: an event ends the spell",
        ),
        (
            "            self._emit(key, self._top[key], output)\n        statuses",
            "            self._emit(key, self._lowest_active(key), output)\n        statuses",
            "4: the flush",
        ),
        ("        if self._idle_spell:\n            return output\n", "", "4: one marker a spell"),
        ("if not statuses or Status.IDLE in statuses:", "if Status.IDLE in statuses:", "5: no channels, idle at once"),
        ("if not statuses or Status.IDLE in statuses:", "if True:", "4: no marker when all are done"),
        (
            "        self._status[channel] = Status.ACTIVE\n        self._idle_spell = False\n\n    def _removed",
            "        self._status[channel] = Status.ACTIVE\n\n    def _removed",
            "4: a new channel ends the spell",
        ),
        ("            of_key.pop(channel, None)\n", "            pass\n", "5: a removed channel stops counting"),
        (
            "        if self._known(channel) is not Status.ACTIVE:\n            self._inactive -= 1\n",
            "        self._known(channel)\n",
            "5: a removed idle channel",
        ),
        ("history.known_at(now_ms - self._retention_ms)", "history.known_at(now_ms)", "6: of retention ago"),
        ("            self._emit(key, self._retained(key, now_ms), output)\n", "", "6: retention"),
        ("            if status is not Status.ACTIVE:\n                it._inactive += 1\n", "", "13: restored status"),
        ("        it._idle_spell = common.idle_spell\n", "", "13: restored spell"),
        ("        it._top.update(common.top)\n", "", "13: restored top"),
    ),
    *_of(
        "core/coalescer.py",
        ("if known and statuses[channel] is Status.ACTIVE:", "if known:", "3: a watermark wakes, many at once"),
        ("and key in top\n", "\n", "a state without a top"),
    ),
    *_of(
        "core/retention.py",
        ("            if point_at_ms > at_ms:", "            if point_at_ms >= at_ms:", "6: inclusive"),
        (
            "        del self._points[: count - 1]\n",
            "        del self._points[:count]\n",
            "6: the point in force is kept",
        ),
        (
            "            if value_ms <= last_value_ms:\n                return\n",
            "",
            "6: only a higher value is a point",
        ),
    ),
    *_of(
        "core/policy.py",
        ("return event_ms - lag_ms if event_ms >= MIN_MS + lag_ms else None", "return event_ms - lag_ms", "7: 64 bits"),
        (
            "            self._history.note(now_ms, event_ms)\n",
            "            self._history.note(now_ms, lagged_ms)\n",
            "7: the delay releases the event time itself",
        ),
        (
            "self._history.known_at(now_ms - self._delay_ms)",
            "self._history.known_at(now_ms - self._delay_ms + 1)",
            "7: the delay is exact",
        ),
        ("        self._grows_from_ms = now_ms + self._lull_ms\n", "", "7: an event restarts the lull"),
        ("            self._grows_from_ms = now_ms\n", "", "7: growth counts once"),
        (
            "_higher(self._watermark_ms, clamp_ms(now_ms - self._config.wall_clock_lag_ms))",
            "clamp_ms(now_ms - self._config.wall_clock_lag_ms)",
            "7: the higher of both",
        ),
        (
            "return (max(first[0], then[0]), then[1]) if first and then else tuple(first or then)",
            "return tuple(then or first)",
            "13: ranges concatenate",
        ),
    ),
    *_of(
        "core/axis.py",
        ("self._throttle.admit(min(watermark_ms, event_ms))", "self._throttle.admit(watermark_ms)", "7: the cap"),
        (
            "emitted_ms=first.emitted_ms)",
            "emitted_ms=then.emitted_ms)",
            "8: what a split sent on its own does not count",
        ),
    ),
    *_of(
        "core/throttle.py",
        ("watermark_ms <= self._sent_ms:", "watermark_ms < self._sent_ms:", "8: strictly increasing"),
        (
            "watermark_ms < self._sent_ms + self._step_ms:",
            "watermark_ms <= self._sent_ms + self._step_ms:",
            "8: the minimum step is inclusive",
        ),
        (
            "        return None\n\n    def settle",
            "        return self._send(_watermark_ms)\n\n    def settle",
            "8: by batch nothing between events",
        ),
        (
            "return self._send(floor_frame(watermark_ms, self._config.size_ms, self._config.offset_ms))",
            "return self._send(watermark_ms)",
            "8: the boundary, not the watermark",
        ),
    ),
    *_of(
        "core/frames.py",
        (
            "    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms)",
            "    return clamp_ms(time_ms - time_ms % size_ms)",
            "8: the offset",
        ),
        (
            "    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms + size_ms)",
            "    return clamp_ms(time_ms + (offset_ms - time_ms) % size_ms)",
            "11: a boundary opens the next frame",
        ),
    ),
    *_of(
        "core/idleness.py",
        (">= self.timeout_ms", "> self.timeout_ms", "10: the timeout is inclusive"),
        ("return caught_up and ", "return ", "10: a backlog is never idleness"),
    ),
    *_of(
        "core/mapper.py",
        ("            watermark_ms = min(watermark_ms, cap_ms)\n", "", "7: the cap over all channels"),
        (
            "        self._quiet_since_ms[channel] = now_ms\n        return self._evaluate([Woken",
            "        return self._evaluate([Woken",
            "10: an event is not quiet",
        ),
        ("self._throttle.settle(output.time_ms)", "output.time_ms", "8: the flush is throttled"),
    ),
    *_of(
        "core/alignment.py",
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
    ),
    *_of("core/alignment.py", ("> MOST_OPEN:", "> 10 * MOST_OPEN:", "12: open snapshots are bounded")),
    *_of(
        "core/snapshots.py",
        ("        if snapshot_id != self.next_id:", "        if snapshot_id < self.next_id:", "12: ids go up by one"),
        (
            '            raise OutOfTurnError(f"snapshot {snapshot_id} was begun while snapshot {self.open_id} is open")',
            "            pass",
            "12: one at a time",
        ),
    ),
    *_of(
        "core/inbound.py",
        (
            "            if channel in self._alignment.held():\n                continue\n",
            "",
            "12: a held channel is not read",
        ),
        (
            "                    return moved, events + control\n",
            "                    pass\n",
            "12: a completed barrier ends the pass",
        ),
        ("                    control += self._coalescer.event(channel)\n", "", "3: an event wakes"),
    ),
    *_of(
        "core/sliding.py",
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
    *_of(
        "core/sessions.py",
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
    *_of(
        "core/time_bounds.py",
        (
            "candidate_ms = min(self._limit[out], self._received[out])",
            "candidate_ms = self._limit[out]",
            "join: not above what was received",
        ),
        ("limit_ms = time_ms - constant_ms", "limit_ms = time_ms", "join: the bound"),
        (
            "mine[other] = min(constant_ms, mine.get(other, constant_ms))",
            "mine[other] = constant_ms",
            "join: the tightest bound",
        ),
        (
            "dict(self._limit), dict(self._received), dict(self._emitted))",
            "dict(self._limit), dict(self._received))",
            "13: emitted is state",
        ),
    ),
    *_of(
        "core/join.py",
        (
            "                mine.matched = theirs.matched = True\n",
            "                mine.matched = True\n",
            "join: a match is not padded",
        ),
        ("        if self._limits.is_late(times_ms):\n            return []\n", "", "join: late rows are dropped"),
        (
            "        elif self._config.outer is side and not mine.matched:\n            joined.append(self._padded(side, row))\n",
            "",
            "join: padded at once",
        ),
    ),
    *_of("core/join.py", ("if key not in self._config.left_keys and", "if False and", "join: a key of neither side")),
    *_of(
        "arrow/axis.py",
        ("due_ms = candidate + (size_ms - rest) if", "due_ms = candidate + size_ms if", "8: next boundary, vectorised"),
    ),
    *_of(
        "core/watermark.py",
        ("event_ms < watermark_ms", "event_ms <= watermark_ms", "an event at W is on time"),
    ),
    *_of(
        "core/encoding.py",
        ("raw[-_CHECKSUM_BYTES:] != _checksum(body)", "False", "encoding: a changed string is not ours"),
        ("for key in sorted(axes):", "for key in axes:", "encoding: equal states, equal strings"),
        ("    if version != str(VERSION):", "    if False:", "encoding: versions"),
    ),
    *_of(
        "core/channel_encoding.py",
        ("names = sorted(state.channels)", "names = list(state.channels)", "encoding: equal states, equal bytes"),
        ("    if version != VERSION:", "    if False:", "encoding: versions"),
    ),
    *_of(
        "arrow/axis.py",
        (
            "        candidate = min(watermark_ms, event)\n",
            "        candidate = watermark_ms\n",
            "7: the cap, vectorised",
        ),
        (
            "        if has_sent and candidate <= sent_ms:",
            "        if has_sent and candidate < sent_ms:",
            "8: strictly increasing, vectorised",
        ),
        (
            "np.uint64(candidate - sent_ms) < np.uint64(size_ms)",
            "np.uint64(candidate - sent_ms) <= np.uint64(size_ms)",
            "8: the step, vectorised",
        ),
        (
            "        if len(valid) and not valid[row]:\n            continue\n",
            "",
            "rows without an event time, vectorised",
        ),
        (
            "rest = (candidate % size_ms - offset_ms) % size_ms",
            "rest = candidate % size_ms",
            "8: the offset, vectorised",
        ),
        ("    below = event_ms < watermark_ms", "    below = event_ms <= watermark_ms", "late, vectorised"),
        (
            "            self._throttle = self._config.throttle.build((int(watermarks[-1]),))\n",
            "            pass\n",
            "13: cuts, vectorised",
        ),
    ),
]
