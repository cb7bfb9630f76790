"""The figures of one bucket, counted with each change: keys held (by distance below W), keys forgotten, rows dropped.

Rule: the cost of a batch depends on its own keys only. Keys are counted by slots of their own watermark; a slot is a
hundredth of `behind`. So a key counts as held until the whole slot is below `W - behind`. Dropped rows are counted for
a bounded number of keys, and the count of a key is never too high: the keys with the fewest rows are removed for others
(Misra and Gries 1982).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.core.text import short_repr
from keyedwm.operators.batch_figures import KeyWatermarkSummary

SLOTS = 100
MOST_SHOWN = 5
_MOST_KNOWN = 64  # keys of which dropped rows are counted
_KEY_LETTERS = 60
_NULL = "null"


class KeyCensus:
    """The counts of one bucket; `batch_*`: the counts since it was built."""

    def __init__(self, behind_ms: int, state: Mapping[str, Any]) -> None:
        """state: the result of `state`."""
        self._width_ms = max(1, behind_ms // SLOTS)
        self._slots: Counter[int] = Counter(dict(state.get("slots", ())))
        self._forgotten, self._dropped_rows = state.get("forgotten", 0), dict(state.get("dropped", {}))
        self._batch_forgotten = 0
        self._batch_dropped: Counter[str] = Counter()
        self._slowest: list[tuple[str, int]] = []  # keys of the batch, and their negated watermarks

    def state(self) -> dict[str, Any]:
        """The state for the next batch, ready for JSON."""
        return {"slots": sorted(self._slots.items()), "forgotten": self._forgotten, "dropped": self._dropped_rows}

    def count_move(self, before: Ints, after: Ints, floor_ms: int) -> None:
        """Count keys whose watermarks were `before` and are `after`; a key at or below the floor is not held."""
        for times, sign in ((before[before > floor_ms], -1), (after[after > floor_ms], 1)):
            slots, counts = _slot_counts(times // self._width_ms)
            for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
                self._slots[slot] += sign * count
                if not self._slots[slot]:
                    del self._slots[slot]

    def rise(self, floor_ms: int) -> None:
        """Forget the keys whose slots the floor has reached."""
        for slot, count in list(self._slots.items()):
            if (slot + 1) * self._width_ms - 1 <= floor_ms:
                del self._slots[slot]
                self._batch_forgotten += count
                self._forgotten += count

    def note_slowest(self, columns: Sequence[pa.Array], own: Ints) -> None:
        """Add keys of this batch, with their columns and watermarks, to find the slowest keys."""
        places = slowest(own)
        names = key_texts(columns, places)
        self._slowest = ordered([*self._slowest, *zip(names, (-own[places]).tolist(), strict=True)])

    def count_dropped(self, columns: Sequence[pa.Array], rows: Ints) -> None:
        """Add the numbers of dropped rows of these keys."""
        places = np.argsort(-rows, kind="stable")[:_MOST_KNOWN]
        dropped_rows = dict(zip(key_texts(columns, places), rows[places].tolist(), strict=True))
        self._batch_dropped.update(dropped_rows)
        self._dropped_rows = bounded([self._dropped_rows, dropped_rows])

    def batch(self, front_ms: int) -> KeyWatermarkSummary:
        """Return the figures of the keys; slowest and dropped are those of this batch."""
        distances = Counter[int]()
        for slot, count in self._slots.items():
            distances[max(0, front_ms - slot * self._width_ms - self._width_ms // 2)] += count
        by_distance = sorted((by_ms, count) for by_ms, count in distances.items() if count > 0)
        dropped_rows = ordered(self._batch_dropped.items())
        slow = [(key, max(0, front_ms + negated_ms)) for key, negated_ms in self._slowest]  # W rises after the rows
        return KeyWatermarkSummary(by_distance, self._batch_forgotten, ordered(slow), dropped_rows)


def slowest(own: Ints) -> Ints:
    """Return the places of the lowest watermarks that are shown; the first places among equal watermarks."""
    if len(own) <= MOST_SHOWN:
        return np.argsort(own, kind="stable")
    few = np.flatnonzero(own <= np.partition(own, MOST_SHOWN - 1)[MOST_SHOWN - 1])
    return few[np.argsort(own[few], kind="stable")[:MOST_SHOWN]]


def _slot_counts(slots: Ints) -> tuple[Ints, Ints]:
    """Return the slots that occur, and how often each does."""
    if not len(slots):
        return slots, slots
    low, span = slots.min(), int(slots.max()) - int(slots.min()) + 1
    if span > 8 * len(slots) + SLOTS:
        return np.unique(slots, return_counts=True)
    counts = np.bincount(slots - low, minlength=span)
    occurring = np.flatnonzero(counts)
    return occurring + low, counts[occurring]


def key_texts(columns: Sequence[pa.Array], places: Ints) -> list[str]:
    """Return the names of keys as they are shown: their columns' values, cut where they are long."""
    values = [map(_plain, column.take(pa.array(places))) for column in columns]
    return [", ".join(_text(value) for value in key) for key in zip(*values, strict=True)]


def _plain(value: pa.Scalar) -> object:
    """Return a value as a Python object; a time beyond the years 1 to 9999 as its number."""
    try:
        return value.as_py()
    except OverflowError:
        return value.value


def ordered(key_numbers: Iterable[tuple[str, int]], most: int = MOST_SHOWN) -> list[tuple[str, int]]:
    """Return the keys with the highest numbers, the highest first, each once."""
    highest: dict[str, int] = {}
    for key, number in key_numbers:
        highest[key] = max(number, highest.get(key, number))
    return sorted(highest.items(), key=lambda one: (-one[1], one[0]))[:most]


def bounded(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by key, for a bounded number of keys; no sum is too high."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    if len(total) <= _MOST_KNOWN:
        return dict(sorted(total.items()))
    floor = sorted(total.values(), reverse=True)[_MOST_KNOWN]
    return {key: number - floor for key, number in sorted(total.items()) if number > floor}


def _text(value: object) -> str:
    """Return a value for display, different for different keys.

    A text that could be another value is in quotes, and a long text gets a checksum.
    """
    if value is None:
        return _NULL
    text, whole = short_repr(value, _KEY_LETTERS), value if isinstance(value, str) else repr(value)
    if isinstance(value, str) and value not in ("", _NULL) and "," not in value and value[0] not in "'\"":
        text = text[1:-1]
    return text if len(whole) <= _KEY_LETTERS else f"{text} ({crc32(whole.encode()):08x})"
