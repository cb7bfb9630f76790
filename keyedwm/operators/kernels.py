"""The compiled loops: groups, sums and minima over groups and over row ranges.

Rule: callers guarantee the bounds: group ids are in `[0, count)`, and row ranges are within the rows and never go back.
"""

from __future__ import annotations

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.runtime.compiled import compiled


@compiled
def dense_groups(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Return each code's rank among the distinct codes, and the distinct codes, ascending; codes are in `[0, size)`."""
    rank_of_code = np.zeros(size, np.int32)
    for code in codes:
        rank_of_code[code] = 1
    count = 0
    for code in range(size):
        if rank_of_code[code]:
            count += 1
            rank_of_code[code] = count
    distinct = np.empty(count, np.int64)
    for code in range(size):
        if rank_of_code[code]:
            distinct[rank_of_code[code] - 1] = code
    ids = np.empty(codes.shape[0], np.int64)
    for at in range(codes.shape[0]):
        ids[at] = rank_of_code[codes[at]] - 1
    return ids, distinct


@compiled
def frames_of(times: Ints, slide: int, offset: int) -> Ints:
    """Return the frame number of each time: the highest `n` with `offset + n * slide <= time`."""
    frames = np.empty(times.shape[0], np.int64)
    current, start, end = np.int64(0), np.int64(0), np.int64(-1)
    for at in range(times.shape[0]):
        time = times[at]
        if not start <= time < end:  # a division is only needed when the frame changes
            current = (time - offset) // slide
            start = offset + current * slide
            end = start + slide
        frames[at] = current
    return frames


@compiled
def add_by_group(values: Ints, ids: Ints, count: int) -> Ints:
    """Return the sum of each group; callers know that it fits in 64 bits."""
    sums = np.zeros(count, np.int64)
    for at in range(values.shape[0]):
        sums[ids[at]] += values[at]
    return sums


@compiled
def add_wide_by_group(low: Ints, high: Ints, ids: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the 128-bit sum of each group; a number is `high * 2**64 + low`, where `low` counts as unsigned."""
    sums, highs = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for at in range(low.shape[0]):
        group = ids[at]
        before = np.uint64(sums[group])
        total = before + np.uint64(low[at])
        sums[group] = np.int64(total)
        highs[group] += high[at] + (1 if total < before else 0)
    return sums, highs


@compiled
def count_by_group(ids: Ints, count: int) -> Ints:
    """Return the number of rows of each group."""
    counts = np.zeros(count, np.int64)
    for one in ids:
        counts[one] += 1
    return counts


@compiled
def lowest_by_group(values: Ints, ids: Ints, count: int) -> Ints:
    """Return the minimum of each group."""
    lowest = np.full(count, np.int64(2**63 - 1))
    for at in range(values.shape[0]):
        lowest[ids[at]] = min(lowest[ids[at]], values[at])
    return lowest


@compiled
def highest_by_group(values: Ints, ids: Ints, count: int) -> Ints:
    """Return the maximum of each group; 0 for a group without rows or with negative values only."""
    highest = np.zeros(count, np.int64)
    for at in range(values.shape[0]):
        highest[ids[at]] = max(highest[ids[at]], values[at])
    return highest


@compiled
def add_by_span(values: Ints, first: Ints, behind: Ints) -> Ints:
    """Return the sum of each row range; callers know that it fits in 64 bits."""
    sums = np.empty(first.shape[0], np.int64)
    total = np.int64(0)
    low = high = np.int64(0)
    for at in range(first.shape[0]):
        if first[at] >= high:
            low = high = first[at]
            total = np.int64(0)
        while high < behind[at]:
            total += values[high]
            high += 1
        while low < first[at]:
            total -= values[low]
            low += 1
        sums[at] = total
    return sums


@compiled
def add_wide_by_span(low: Ints, high: Ints, first: Ints, behind: Ints) -> tuple[Ints, Ints]:
    """Return the 128-bit sum of each row range; each row is added and subtracted once (see `add_wide_by_group`)."""
    sums, highs = np.empty(first.shape[0], np.int64), np.empty(first.shape[0], np.int64)
    total, carried = np.uint64(0), np.int64(0)
    leaving = entering = np.int64(0)
    for at in range(first.shape[0]):
        if first[at] >= entering:
            leaving = entering = first[at]
            total, carried = np.uint64(0), np.int64(0)
        while entering < behind[at]:
            before = total
            total += np.uint64(low[entering])
            carried += high[entering] + (1 if total < before else 0)
            entering += 1
        while leaving < first[at]:
            before = total
            total -= np.uint64(low[leaving])
            carried -= high[leaving] + (1 if total > before else 0)
            leaving += 1
        sums[at], highs[at] = np.int64(total), carried
    return sums, highs


@compiled
def lowest_by_span(values: Ints, first: Ints, behind: Ints) -> Ints:
    """Return the minimum of each row range, with two stacks: `suffix` is the front one, `back` the other's minimum."""
    lowest = np.empty(first.shape[0], np.int64)
    suffix = np.empty(values.shape[0], np.int64)
    nothing = np.int64(2**63 - 1)
    border = high = np.int64(0)  # rows [.., border) are on the front stack, [border, high) on the back stack
    back = nothing
    for at in range(first.shape[0]):
        if first[at] >= high:
            border = high = first[at]
            back = nothing
        while high < behind[at]:
            back = min(back, values[high])
            high += 1
        if first[at] >= border:
            least = nothing
            for row in range(high - 1, first[at] - 1, -1):
                least = min(least, values[row])
                suffix[row] = least
            border = high
            back = nothing
        lowest[at] = min(suffix[first[at]], back)
    return lowest


@compiled
def sorted_by_number(numbers: Ints, count: int) -> Ints:
    """Return the stable sort order of these numbers, which are in `[0, count)`."""
    begins = np.zeros(count + 1, np.int64)
    for number in numbers:
        begins[number + 1] += 1
    for number in range(count):
        begins[number + 1] += begins[number]
    places = np.empty(numbers.shape[0], np.int64)
    for at in range(numbers.shape[0]):
        places[begins[numbers[at]]] = at
        begins[numbers[at]] += 1
    return places


@compiled
def closing_windows(keys: Ints, frames: Ints, lows: Ints, highs: Ints, overlap: int) -> tuple[Ints, Ints, Ints]:
    """Return the windows with an entry and an end in `[low, high]` of their key: ends, and ranges of entries.

    Entries are ordered by key, then frame; the window that ends at frame e consists of the frames `[e - overlap, e)`.
    """
    rows = keys.shape[0]
    count = 0
    ends = first = behind = np.empty(0, np.int64)
    for filling in range(2):
        if filling:
            ends, first, behind = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        count = 0
        start = 0
        while start < rows:
            stop = start
            while stop < rows and keys[stop] == keys[start]:
                stop += 1
            in_low = in_high = start
            end, high = max(lows[keys[start]], frames[start] + 1), highs[keys[start]]
            while end <= high:
                while in_high < stop and frames[in_high] < end:
                    in_high += 1
                while in_low < in_high and frames[in_low] < end - overlap:
                    in_low += 1
                if in_low < in_high:
                    if filling:
                        ends[count], first[count], behind[count] = end, in_low, in_high
                    count += 1
                    end += 1
                elif in_high < stop:
                    end = frames[in_high] + 1
                else:
                    break
            start = stop
    return ends, first, behind


@compiled
def pass_within(times: Ints, cells: Ints, meets: Flags, passed_times: tuple[Ints, Ints], within: int) -> Flags:
    """Return which rows pass: one after the other, a row passes if no row within reach has passed.

    cells: the cell of each row; the cells of a key follow each other. meets: for each cell, whether the one before is
    next to it in time. passed_times: the lowest and highest time of the rows that passed in each cell, -2**63 if none
    passed; the function updates it.
    """
    lowest, highest = passed_times
    nothing, last = np.int64(-(2**63)), meets.shape[0] - 1
    passes = np.zeros(times.shape[0], np.bool_)
    for at in range(times.shape[0]):
        cell, time = cells[at], times[at]
        if lowest[cell] != nothing:
            continue
        if meets[cell] and highest[cell - 1] != nothing and time - highest[cell - 1] <= within:
            continue
        if cell < last and meets[cell + 1] and lowest[cell + 1] != nothing and lowest[cell + 1] - time <= within:
            continue
        lowest[cell] = highest[cell] = time
        passes[at] = True
    return passes
