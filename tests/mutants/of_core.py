# ruff: noqa: E501  the texts stand as they do in the code
"""The rules of `keyedwm/core`, broken on purpose."""

from __future__ import annotations

from tests.mutants.mutant import changes

CORE = [
    *changes(
        "core/coalescer.py",
        (
            "if before is not None and time_ms <= before:",
            "if before is not None and time_ms < before:",
            "1: equal is a regression",
        ),
        ("            self._ignored += 1\n", "            pass\n", "1: ignored regressions are counted"),
        (
            "            self._ignored += 1\n",
            "            self._ignored += 1\n            return\n",
            "1: an ignored regression wakes",
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
            '            raise OutOfTurnError(f"channel {channel} is done, but its end arrived a second time")',
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
        ("if known and statuses[channel] is Status.ACTIVE:", "if known:", "3: a watermark wakes, many at once"),
        ("and key in top\n", "\n", "a state without a top"),
    ),
    *changes(
        "core/watermark.py",
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
    *changes(
        "core/policy.py",
        ("if event_ms >= MIN_MS + self._lag_ms:  # an event", "if True:  # an event", "7: 64 bits"),
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
            "self._raise(clamp_ms(now_ms - self._wall_clock_lag_ms))",
            "self._watermark_ms = clamp_ms(now_ms - self._wall_clock_lag_ms)",
            "7: the higher of both",
        ),
        (
            "return (max(first[0], then[0]), then[1]) if first and then else tuple(first or then)",
            "return tuple(then or first)",
            "13: ranges concatenate",
        ),
    ),
    *changes(
        "core/axis.py",
        (
            "emitted_ms=first.emitted_ms)",
            "emitted_ms=then.emitted_ms)",
            "8: what a split sent on its own does not count",
        ),
    ),
    *changes(
        "core/throttle.py",
        ("watermark_ms <= self._sent_ms:", "watermark_ms < self._sent_ms:", "8: strictly increasing"),
        (
            "watermark_ms < self._sent_ms + self._step_ms:",
            "watermark_ms <= self._sent_ms + self._step_ms:",
            "8: the minimum step is inclusive",
        ),
        (
            "        return None\n\n    def end_of_batch",
            "        return self._send(_watermark_ms)\n\n    def end_of_batch",
            "8: by batch nothing between events",
        ),
        (
            "return self._send(floor_frame(watermark_ms, self._config.size_ms, self._config.offset_ms))",
            "return self._send(watermark_ms)",
            "8: the boundary, not the watermark",
        ),
    ),
    *changes(
        "core/throttle.py",
        (
            "    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms)",
            "    return clamp_ms(time_ms - time_ms % size_ms)",
            "8: the offset",
        ),
    ),
    *changes(
        "core/idleness.py",
        (">= self.timeout_ms", "> self.timeout_ms", "10: the timeout is inclusive"),
        ("return caught_up and ", "return ", "10: a backlog is never idleness"),
    ),
    *changes(
        "core/barriers.py",
        (
            "            return len(self.arrived) % self.expected == 0\n",
            "            return True\n",
            "12: a cut that lacks a channel is not whole",
        ),
        ("top >= barrier_offset", "top > barrier_offset", "12: a barrier carries the next offset"),
        ("min(newest.values(), default=None)", "max(newest.values(), default=None)", "12: the slowest channel decides"),
        ("if delivered != snapshot)", "if delivered < 0)", "12: channels ahead wait"),
        (", default=-1) + 1", ", default=-1)", "12: ids go up by one"),
    ),
    *changes(
        "core/encoding.py",
        (
            "not hmac.compare_digest(raw[-_CODE_BYTES:], _code(key, _covered_text(place, version), body))",
            "False",
            "encoding: a changed string is not ours",
        ),
        ("for axis_key in sorted(state.axes):", "for axis_key in state.axes:", "encoding: equal states, equal strings"),
        (" for version in _VERSIONS}", " for version in (*_VERSIONS, VERSION + 1)}", "encoding: versions"),
    ),
    *changes(
        "core/channel_encoding.py",
        ("keys = sorted({key for", "keys = sorted({-key for", "encoding: encoding and decoding are inverse"),
        ("    if version not in (1, VERSION):", "    if False:", "encoding: versions"),
    ),
]
