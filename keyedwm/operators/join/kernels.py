"""The compiled loops of a join: an index of rows by key hash and time, look-ups in it, and pairs out of them.

Rule: callers guarantee the bounds: `order` has every row once, and ranges are within the index.
"""

from __future__ import annotations

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.runtime.compiled import compiled


@compiled
def hash_groups(hashes: Ints, order: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return an open-addressing table and the rows by group.

    The table is two columns, hash and group (-1: empty). The rows of group g are `places[begins[g]:begins[g + 1]]`, in
    the given order.
    """
    rows = hashes.shape[0]
    size = 16
    while size < 2 * rows:
        size *= 2
    mask = size - 1
    slot_hash, slot_group = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    groups = np.empty(rows, np.int64)
    sizes = np.zeros(rows + 1, np.int64)
    count = 0
    for at in range(rows):
        place = hashes[at] & mask
        while slot_group[place] >= 0 and slot_hash[place] != hashes[at]:
            place = (place + 1) & mask
        if slot_group[place] < 0:
            slot_hash[place], slot_group[place] = hashes[at], count
            count += 1
        groups[at] = slot_group[place]
        sizes[slot_group[place]] += 1
    begins = np.zeros(count + 1, np.int64)
    for group in range(count):
        begins[group + 1] = begins[group] + sizes[group]
    places, filled = np.empty(rows, np.int64), begins.copy()
    for row in order:
        places[filled[groups[row]]] = row
        filled[groups[row]] += 1
    return slot_hash, slot_group, begins, places


@compiled
def ranges_of(groups: tuple[Ints, Ints, Ints], times: Ints, hashes: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return for each requested hash the range of its group with `low <= time <= high`; times ascend within a group.

    groups: the first three columns of `hash_groups`.
    """
    slot_hash, slot_group, begins = groups
    mask = slot_hash.shape[0] - 1
    first, behind = np.zeros(hashes.shape[0], np.int64), np.zeros(hashes.shape[0], np.int64)
    for at in range(hashes.shape[0]):
        place = hashes[at] & mask
        while slot_group[place] >= 0 and slot_hash[place] != hashes[at]:
            place = (place + 1) & mask
        group = slot_group[place]
        if group < 0:
            continue
        start, stop = begins[group], begins[group + 1]
        end = stop
        while start < stop:
            middle = (start + stop) // 2
            if times[middle] < low[at]:
                start = middle + 1
            else:
                stop = middle
        first[at] = start
        stop = end
        while start < stop:
            middle = (start + stop) // 2
            if times[middle] <= high[at]:
                start = middle + 1
            else:
                stop = middle
        behind[at] = start
    return first, behind


@compiled
def pairs_from(first: Ints, behind: Ints, row: int, skipped: int, most: int) -> tuple[Ints, Ints, int, int]:
    """Return up to `most` (row, place in its range) pairs, and where to continue: row, and its pairs so far."""
    rows, places = np.empty(most, np.int64), np.empty(most, np.int64)
    count = 0
    while row < first.shape[0] and count < most:
        place = first[row] + skipped
        while place < behind[row] and count < most:
            rows[count], places[count] = row, place
            count += 1
            place += 1
        if place < behind[row]:
            skipped = place - first[row]
        else:
            row += 1
            skipped = 0
    return rows[:count], places[:count], row, skipped
