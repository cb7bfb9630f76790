"""Numbers and ISO 8601 texts become epoch milliseconds, in a compiled loop.

Rule: a fraction of a millisecond is floored (docs/design/rows.md). A text that is not wholly a time, or lies outside of
Spark's years 0001 to 9999, is invalid, never a guess. Blanks around a text are ignored, as in Spark's casts.
docs/reference/event-time-formats.md lists the forms.
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
_DAY_MS = 86_400_000
_BLANK, _PLUS, _COMMA, _DASH, _POINT, _ZERO, _NINE, _COLON = 32, 43, 44, 45, 46, 48, 57, 58
_UPPER_T, _LOWER_T, _UPPER_W, _UPPER_Z, _LOWER_Z, _OPEN, _CLOSE = 84, 116, 87, 90, 122, 91, 93


def milliseconds(
    data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], unit: Unit
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read each text [start, end) of `data`; start -1: no text. Returns ms and validity, one per text."""
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
def _trimmed(data, at, stop):
    """The start and the end of the text without the blanks around it."""
    while at < stop and (data[at] == _BLANK or 9 <= data[at] <= 13):
        at += 1
    while at < stop and (data[stop - 1] == _BLANK or 9 <= data[stop - 1] <= 13):
        stop -= 1
    return at, stop


@bare
def _numbers(data, start, end, per_second, ms, valid):  # noqa: PLR0917
    for row in range(len(start)):
        if start[row] < 0:
            continue
        at, stop = _trimmed(data, start[row], end[row])
        is_valid, value = _number(data, at, stop, per_second)
        if is_valid and _in_range(value):
            ms[row] = value
            valid[row] = True


@bare
def _number(data, at, stop, per_second):  # noqa: PLR0911, PLR0912
    """Whether the text is a number of 1/per_second s (perhaps with fraction, exponent), and its ms, floored exactly."""
    negative = at < stop and data[at] == 45
    if negative:
        at += 1
    mantissa = np.int64(0)
    digits = 0
    scale = 0  # powers of ten that the mantissa still lacks
    has_remainder = False  # a digit other than 0 was cut off
    has_digits = False
    point = False
    while at < stop:
        c = data[at]
        if 48 <= c <= 57:
            has_digits = True
            if digits < _DIGITS_MAX:
                mantissa = mantissa * 10 + (c - 48)
                digits += 1 if mantissa else 0
                scale -= 1 if point else 0
            else:
                has_remainder = has_remainder or c != 48
                scale += 0 if point else 1
        elif c == 46 and not point and has_digits:
            point = True
        else:
            break
        at += 1
    if not has_digits or data[at - 1] == 46:
        return False, np.int64(0)
    if at < stop and data[at] in (69, 101):
        is_valid, power, at = _exponent(data, at + 1, stop)
        if not is_valid:
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
        has_remainder = has_remainder or mantissa % 10 != 0
        mantissa //= 10
        scale += 1
    if negative:
        return True, -mantissa - (1 if has_remainder else 0)
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
        at, stop = _trimmed(data, start[row], end[row])
        is_valid, value = _instant(data, at, stop)
        if is_valid and _in_range(value):
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
def _instant(data, at, stop):
    """Whether the text is an instant, and its ms: DATE, or DATE(T| )TIME and perhaps a zone, else in UTC."""
    no = (False, np.int64(0))
    at, days = _date(data, at, stop)
    if at < 0:
        return no
    total = days * _DAY_MS
    if at == stop:
        return True, total
    if data[at] not in (_UPPER_T, _LOWER_T, _BLANK):
        return no
    at, of_day_ms = _time_of_day(data, at + 1, stop)
    if at < 0:
        return no
    is_valid, offset_ms = _zone(data, at, stop)
    if not is_valid:
        return no
    return True, total + of_day_ms - offset_ms


@bare
def _date(data, at, stop):  # noqa: PLR0911
    """The position behind the date, -1 if there is none, and its days since the epoch.

    YYYY-MM-DD, YYYYMMDD, YYYY-Www-D, YYYYWwwD or YYYY-DDD.
    """
    no = (np.int64(-1), np.int64(0))
    century, of_century = _two(data, at, stop), _two(data, at + 2, stop)
    if century < 0 or of_century < 0:
        return no
    year = np.int64(century * 100 + of_century)
    at += 4
    dash = 1 if at < stop and data[at] == _DASH else 0
    at += dash
    if at < stop and data[at] == _UPPER_W:
        return _week_date(data, at + 1, stop, year, dash)
    month = _two(data, at, stop)
    if month < 0 or at + 2 >= stop:
        return no
    if dash and data[at + 2] != _DASH:
        behind = _two(data, at + 1, stop)
        day = data[at] - _ZERO
        of_year = np.int64(day) * 100 + behind
        if behind < 0 or not 1 <= of_year <= _days(year + 1, 1, 1) - _days(year, 1, 1):
            return no
        return np.int64(at + 3), _days(year, 1, 1) + of_year - 1
    day = _two(data, at + 2 + dash, stop)
    if not (1 <= month <= 12 and 1 <= day <= _month_days(year, month)):
        return no
    return np.int64(at + 4 + dash), _days(year, month, day)


@bare
def _week_date(data, at, stop, year, dash):
    """The rest of `_date` behind the W: week 1 has the year's first Thursday, day 1 is Monday."""
    no = (np.int64(-1), np.int64(0))
    week, at_day = _two(data, at, stop), at + 2 + dash
    if at_day >= stop or (dash and data[at_day - 1] != _DASH):
        return no
    day = np.int64(data[at_day]) - _ZERO
    fourth = _days(year, 1, 4)
    monday = fourth - (fourth + 3) % 7 + (week - 1) * 7
    if not (1 <= week <= 53 and 1 <= day <= 7 and monday + 3 < _days(year + 1, 1, 1)):
        return no
    return np.int64(at_day + 1), monday + day - 1


@bare
def _time_of_day(data, at, stop):
    """The position behind the time, -1 if there is none, and its ms: hh, hh:mm, hhmm, hh:mm:ss.f, hhmmss.f, 24:00."""
    no = (np.int64(-1), np.int64(0))
    hour, minute, second, fraction = _two(data, at, stop), 0, 0, 0
    at += 2
    if at < stop and (data[at] == _COLON or _is_digit(data[at])):
        colon = 1 if data[at] == _COLON else 0
        minute = _two(data, at + colon, stop)
        at += 2 + colon
        if at < stop and ((colon and data[at] == _COLON) or (not colon and _is_digit(data[at]))):
            second = _two(data, at + colon, stop)
            at += 2 + colon
            if at < stop and data[at] in (_POINT, _COMMA):
                is_valid, fraction, at = _fraction(data, at + 1, stop)
                if not is_valid:
                    return no
    if not (0 <= hour <= 24 and 0 <= minute <= 59 and 0 <= second <= 59):
        return no
    ms = np.int64(hour * 3_600_000 + minute * 60_000 + second * 1_000 + fraction)
    return (np.int64(at), ms) if ms <= _DAY_MS else no


@bare
def _is_digit(c):
    return _ZERO <= c <= _NINE


@bare
def _fraction(data, at, stop):
    begin, fraction, weight = at, 0, 100
    while at < stop and 48 <= data[at] <= 57:
        fraction += (data[at] - 48) * weight
        weight //= 10
        at += 1
    return at > begin, fraction, at


@bare
def _zone(data, at, stop):  # noqa: PLR0911
    """Whether the text is a zone, and its UTC offset in ms: empty, or Z, UTC, GMT or [+-]hh, hhmm, hh:mm, hh:mm:ss.

    A blank may stand before it. Brackets behind it, such as Java's [Europe/Berlin], are ignored.
    """
    if at == stop:
        return True, 0
    if data[at] == _BLANK:
        at += 1
    bare_stop = _before_brackets(data, at, stop)
    size = bare_stop - at
    if size == 1:
        return data[at] in (_UPPER_Z, _LOWER_Z), 0
    if size == 3 and data[at] not in (_PLUS, _DASH):
        utc = data[at] == 85 and data[at + 1] == 84 and data[at + 2] == 67
        return utc or (data[at] == 71 and data[at + 1] == 77 and data[at + 2] == 84), 0
    if size < 3 or data[at] not in (_PLUS, _DASH):
        return False, 0
    hours, minutes, seconds = _two(data, at + 1, bare_stop), 0, 0
    if size == 5:
        minutes = _two(data, at + 3, bare_stop)
    elif size in (6, 9) and data[at + 3] == _COLON:
        minutes = _two(data, at + 4, bare_stop)
        if size == 9:
            seconds = _two(data, at + 7, bare_stop) if data[at + 6] == _COLON else -1
    elif size != 3:
        return False, 0
    if not (0 <= hours <= 18 and 0 <= minutes <= 59 and 0 <= seconds <= 59):
        return False, 0
    offset_ms = hours * 3_600_000 + minutes * 60_000 + seconds * 1_000
    return True, (-offset_ms if data[at] == _DASH else offset_ms)


@bare
def _before_brackets(data, at, stop):
    """The position at which the brackets at the end begin, `at` if one is empty, or is marked critical by `!`."""
    while stop > at and data[stop - 1] == _CLOSE:
        opening = stop - 2
        while opening > at and _BLANK < data[opening] < 127 and data[opening] not in (_OPEN, _CLOSE, 33):
            opening -= 1
        if opening <= at or data[opening] != _OPEN or opening == stop - 2:
            return at
        stop = opening
    return stop
