"""The same rules over whole columns (`keyedwm/arrow`), broken on purpose."""

from __future__ import annotations

from tests.mutants.mutant import changes

COLUMNS = [
    *changes(
        "arrow/axis.py",
        ("due_ms = candidate + (size_ms - rest) if", "due_ms = candidate + size_ms if", "8: next boundary, vectorised"),
        (
            "        candidate = min(watermark_ms, event)\n",
            "        candidate = watermark_ms\n",
            "7: the cap, vectorised",
        ),
        (
            "        if has_emitted and candidate <= emitted_ms:",
            "        if has_emitted and candidate < emitted_ms:",
            "8: strictly increasing, vectorised",
        ),
        (
            "np.uint64(candidate - emitted_ms) < np.uint64(size_ms)",
            "np.uint64(candidate - emitted_ms) <= np.uint64(size_ms)",
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
        (
            "            self._throttle = self._config.throttle.build((int(watermarks[-1]),))\n",
            "            pass\n",
            "13: cuts, vectorised",
        ),
    ),
]
