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
        slot = hashes[at] & mask
        while slot_group[slot] >= 0 and slot_hash[slot] != hashes[at]:
            slot = (slot + 1) & mask
        if slot_group[slot] < 0:
            slot_hash[slot], slot_group[slot] = hashes[at], count
            count += 1
        groups[at] = slot_group[slot]
        sizes[slot_group[slot]] += 1
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
    """Return for each requested hash the range of places in its group with `low <= time <= high`.

    groups: the first three results of `hash_groups`. times: by place, ascending in each group.
    """
    slot_hash, slot_group, begins = groups
    mask = slot_hash.shape[0] - 1
    starts, ends = np.zeros(hashes.shape[0], np.int64), np.zeros(hashes.shape[0], np.int64)
    for at in range(hashes.shape[0]):
        slot = hashes[at] & mask
        while slot_group[slot] >= 0 and slot_hash[slot] != hashes[at]:
            slot = (slot + 1) & mask
        group = slot_group[slot]
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
        starts[at] = start
        stop = end
        while start < stop:
            middle = (start + stop) // 2
            if times[middle] <= high[at]:
                start = middle + 1
            else:
                stop = middle
        ends[at] = start
    return starts, ends


@compiled
def pairs_from(starts: Ints, ends: Ints, row: int, returned_pairs: int, most: int) -> tuple[Ints, Ints, int, int]:
    """Return up to `most` pairs (row, place), and where to continue: the row, and the number of its returned pairs.

    starts, ends: the range of places of each row.
    """
    rows, places = np.empty(most, np.int64), np.empty(most, np.int64)
    count = 0
    while row < starts.shape[0] and count < most:
        place = starts[row] + returned_pairs
        while place < ends[row] and count < most:
            rows[count], places[count] = row, place
            count += 1
            place += 1
        if place < ends[row]:
            returned_pairs = place - starts[row]
        else:
            row += 1
            returned_pairs = 0
    return rows[:count], places[:count], row, returned_pairs
