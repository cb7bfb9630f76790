"""Numbers and ISO 8601 texts become epoch milliseconds, in a compiled loop.

Rule: what is finer than a millisecond is floored (docs/design/rows.md); what does not read wholly as a time, or lies
outside of Spark's years 0001 to 9999, is invalid, never a guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyedwm.core.places import Unit
from keyedwm.runtime.compiled import bare

_PER_SECOND = {Unit.SECONDS: 1, Unit.MILLISECONDS: 10**3, Unit.MICROSECONDS: 10**6, Unit.NANOSECONDS: 10**9}
MIN_EVENT_MS = -62_135_596_800_000
MAX_EVENT_MS = 253_402_300_799_999
_DIGITS_MAX = 18


def milliseconds(
    data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], unit: Unit
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read each text [start, end) of `data`; start -1: there is none. Returns ms and validity, one per text."""
    ms = np.zeros(len(start), np.int64)
    valid = np.zeros(len(start), np.bool_)
    if unit is Unit.ISO:
        _iso(data, start, end, ms, valid)
    else:
        _numbers(data, start, end, _PER_SECOND[unit], ms, valid)
    return ms, valid


@bare
def _in_range(ms):
    return MIN_EVENT_MS <= ms <= MAX_EVENT_MS


@bare
def _numbers(data, start, end, per_second, ms, valid):  # noqa: PLR0917
    for row in range(len(start)):
        if start[row] < 0:
            continue
        found, value = _number(data, start[row], end[row], per_second)
        if found and _in_range(value):
            ms[row] = value
            valid[row] = True


@bare
def _number(data, at, stop, per_second):  # noqa: PLR0911, PLR0912
    """A decimal number (with fraction and exponent) of 1/per_second s, floored to ms: exact, no floating point."""
    negative = at < stop and data[at] == 45
    if negative:
        at += 1
    mantissa = np.int64(0)
    digits = 0
    scale = 0  # powers of ten that the mantissa still lacks
    lost = False  # a digit other than 0 was cut off
    seen = False
    point = False
    while at < stop:
        c = data[at]
        if 48 <= c <= 57:
            seen = True
            if digits < _DIGITS_MAX:
                mantissa = mantissa * 10 + (c - 48)
                digits += 1 if mantissa else 0
                scale -= 1 if point else 0
            else:
                lost = lost or c != 48
                scale += 0 if point else 1
        elif c == 46 and not point and seen:
            point = True
        else:
            break
        at += 1
    if not seen or data[at - 1] == 46:
        return False, np.int64(0)
    if at < stop and data[at] in (69, 101):
        found, power, at = _exponent(data, at + 1, stop)
        if not found:
            return False, np.int64(0)
        scale += power
    if at != stop:
        return False, np.int64(0)
    scale += 3
    while per_second > 1:
        per_second //= 10
        scale -= 1
    if mantissa == 0:
        return True, np.int64(0)
    while scale > 0:
        if mantissa > 922_337_203_685_477_580:
            return False, np.int64(0)
        mantissa *= 10
        scale -= 1
    while scale < 0 and mantissa > 0:
        lost = lost or mantissa % 10 != 0
        mantissa //= 10
        scale += 1
    if negative:
        return True, -mantissa - (1 if lost else 0)
    return True, mantissa


@bare
def _exponent(data, at, stop):
    negative = at < stop and data[at] == 45
    if at < stop and data[at] in (43, 45):
        at += 1
    power = 0
    begin = at
    while at < stop and 48 <= data[at] <= 57 and power < 1000:
        power = power * 10 + (data[at] - 48)
        at += 1
    return at > begin, (-power if negative else power), at


@bare
def _iso(data, start, end, ms, valid):
    for row in range(len(start)):
        if start[row] < 0:
            continue
        found, value = _instant(data, start[row], end[row])
        if found and _in_range(value):
            ms[row] = value
            valid[row] = True


@bare
def _two(data, at, stop):
    """Two digits as a number, or -1."""
    if at + 2 > stop or not (48 <= data[at] <= 57 and 48 <= data[at + 1] <= 57):
        return -1
    return (data[at] - 48) * 10 + (data[at + 1] - 48)


@bare
def _days(year, month, day):
    """Days since 1970-01-01 of the proleptic Gregorian calendar."""
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@bare
def _month_days(year, month):
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@bare
def _instant(data, at, stop):  # noqa: PLR0911
    """YYYY-MM-DD[(T| )hh:mm[:ss[.fraction]]][Z|+hh:mm|+hhmm|+hh]; without an offset it is UTC."""
    no = (False, np.int64(0))
    century, of_century = _two(data, at, stop), _two(data, at + 2, stop)
    month, day = _two(data, at + 5, stop), _two(data, at + 8, stop)
    if min(century, of_century, month, day) < 0 or data[at + 4] != 45 or data[at + 7] != 45:
        return no
    year = century * 100 + of_century
    if not (1 <= month <= 12 and 1 <= day <= _month_days(year, month)):
        return no
    total = np.int64(_days(year, month, day)) * 86_400_000
    at += 10
    if at == stop:
        return True, total
    if data[at] not in (84, 116, 32):
        return no
    hour, minute = _two(data, at + 1, stop), _two(data, at + 4, stop)
    if not (0 <= hour <= 23 and 0 <= minute <= 59) or data[at + 3] != 58:
        return no
    total += hour * 3_600_000 + minute * 60_000
    at += 6
    if at < stop and data[at] == 58:
        second = _two(data, at + 1, stop)
        if not 0 <= second <= 59:
            return no
        total += second * 1_000
        at += 3
        if at < stop and data[at] in (46, 44):
            found, fraction, at = _fraction(data, at + 1, stop)
            if not found:
                return no
            total += fraction
    found, offset_ms = _offset(data, at, stop)
    if not found:
        return no
    return True, total - offset_ms


@bare
def _fraction(data, at, stop):
    begin, fraction, weight = at, 0, 100
    while at < stop and 48 <= data[at] <= 57:
        fraction += (data[at] - 48) * weight
        weight //= 10
        at += 1
    return at > begin, fraction, at


@bare
def _offset(data, at, stop):
    """A UTC offset in ms: nothing, Z, +hh, +hhmm or +hh:mm."""
    if at == stop or (at + 1 == stop and data[at] in (90, 122)):
        return True, 0
    if data[at] not in (43, 45):
        return False, 0
    sign = -1 if data[at] == 45 else 1
    hours, minutes = _two(data, at + 1, stop), 0
    if stop - at == 5:
        minutes = _two(data, at + 3, stop)
    elif stop - at == 6 and data[at + 3] == 58:
        minutes = _two(data, at + 4, stop)
    elif stop - at != 3:
        return False, 0
    if not (0 <= hours <= 18 and 0 <= minutes <= 59):
        return False, 0
    return True, sign * (hours * 3_600_000 + minutes * 60_000)
