"""Values within a condition, and Spark's operators on them.

Rule: two numbers are computed in Spark's common type. Whole numbers keep the larger width; other numbers beside a float
become doubles. Decimals have Spark's digits: at most 38, the rest rounded half up. A result that does not fit is null,
and its row is marked as failed. AND, OR and the end of the condition decide whether a failed row is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import as_floats
from keyedwm.core.text import shortened

_SIGNS = {"add": "sum", "subtract": "difference", "multiply": "product"}
_MOST_DIGITS, _WIDEST, _LEAST_SCALE = 38, 76, 6
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # bits of a whole number -> its decimal digits
_types = pa.types


@dataclass(frozen=True, slots=True)
class Value:
    """A value. data: an Arrow array or scalar. failed: flags of the rows that do not fit, None without any.

    why: the reason of failed rows. literal: the number of digits of a whole number in the text, None for other values.
    """

    data: Any
    failed: Any = None
    why: str = ""
    literal: int | None = None

    def with_data(self, data: Any) -> Value:
        """Return a value with other data, which failed in the same rows."""
        return replace(self, data=data, literal=None)


def literal(value: Any) -> Value:
    """Return a literal in the type that Spark gives it."""
    if isinstance(value, datetime):
        return Value(pa.scalar(value, pa.timestamp("us", "UTC")))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return Value(pa.scalar(value))
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        narrow = -(2**31) <= value < 2**31
        return Value(pa.scalar(value, pa.int32() if narrow else pa.int64()), literal=len(str(abs(value))))
    exact = Decimal(value)
    _, digits, exponent = exact.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > _MOST_DIGITS:
        raise pa.ArrowInvalid(f"{shortened(str(value))} has {precision} digits, a decimal has {_MOST_DIGITS} at most")
    return Value(pa.scalar(exact, pa.decimal128(precision, scale)))


def compared(function: str, left: Value, right: Value) -> Value:
    """Compare two values: numbers exactly, or as doubles if one is a float; other types as Arrow does."""
    one, other = left.data, right.data
    kinds = (one.type, other.type)
    if any(map(_types.is_date, kinds)) and any(_types.is_timestamp(kind) and kind.tz for kind in kinds):
        problem = f"{one.type} and {other.type} are compared by a session's time zone in Spark, which is unknown here"
        raise pa.ArrowTypeError(f"{problem}; cast the date to a timestamp before")
    if all(_is_number(kind) for kind in kinds):
        if any(_types.is_floating(kind) for kind in kinds):
            one, other = _ordered(_doubles(one)), _ordered(_doubles(other))
        elif one.type != other.type and any(_is_decimal(kind) for kind in kinds):
            one, other = _alike(_decimal(left), _decimal(right))
    return _joined(pc.call_function(function, [one, other]), left, right)


def between(value: Value, low: Value, high: Value) -> Value:
    """Return whether low <= value <= high."""
    return decided("and_kleene", compared("greater_equal", value, low), compared("less_equal", value, high))


def within(value: Value, listed: tuple[Any, ...]) -> Value:
    """Return whether a value equals one of the literals `listed`, none of which is null; unknown for a null value."""
    known, data = _lookup(listed, value.data.type), value.data
    if known is None:
        each = [compared("equal", value, literal(one)).data for one in listed]
        return value.with_data(reduce(pc.or_kleene, each))
    if _types.is_integer(data.type):
        data = data.cast(pa.int64())
    is_listed = pc.is_in(data, value_set=known)
    return value.with_data(pc.if_else(pc.is_valid(data), is_listed, pa.scalar(None, pa.bool_())))


def _lookup(listed: tuple[Any, ...], kind: pa.DataType) -> pa.Array | None:
    """Return an array of the literals for a look-up in a column; None if a literal or the column has another type."""
    if all(isinstance(one, str) for one in listed) and (_types.is_string(kind) or _types.is_binary(kind)):
        return pa.array(listed, pa.string()).cast(kind)
    whole = all(isinstance(one, int) and not isinstance(one, bool) and -(2**63) <= one < 2**63 for one in listed)
    return pa.array(listed, pa.int64()) if whole and _types.is_signed_integer(kind) else None


def reckoned(function: str, left: Value, right: Value) -> Value:
    """Add, subtract or multiply two values."""
    kinds = (left.data.type, right.data.type)
    if not all(_is_number(kind) for kind in kinds):
        return _joined(pc.call_function(f"{function}_checked", [left.data, right.data]), left, right)
    if any(_types.is_floating(kind) for kind in kinds):
        narrow = all(_types.is_float32(kind) or _types.is_float16(kind) for kind in kinds)
        floats = [one.data.cast(pa.float32()) if narrow else _doubles(one.data) for one in (left, right)]
        return _joined(pc.call_function(function, floats), left, right)
    if any(_is_decimal(kind) for kind in kinds):
        return _decimals(function, left, right)
    kind = max((_signed(kind) for kind in kinds), key=lambda one: one.bit_width)
    whole = [one.data.cast(kind) for one in (left, right)]
    try:
        return _joined(pc.call_function(f"{function}_checked", whole), left, right)
    except pa.ArrowInvalid:
        exact = pc.call_function(function, [one.cast(pa.decimal256(_DIGITS[kind.bit_width], 0)) for one in whole])
        limit = 2 ** (kind.bit_width - 1)
        fits = _between(exact, Decimal(-limit), Decimal(limit - 1))
        why = f"the {_SIGNS[function]} of {kinds[0]} and {kinds[1]} does not fit in {kind}"
        return _joined(_null_unless(exact, fits).cast(kind), left, right, pc.invert(fits), why)


def negated(value: Value) -> Value:
    """Change the sign."""
    kind = value.data.type
    if not _types.is_signed_integer(kind):
        return value.with_data(pc.negate_checked(value.data))
    try:
        return value.with_data(pc.negate_checked(value.data))
    except pa.ArrowInvalid:
        fits = pc.greater(value.data, pa.scalar(-(2 ** (kind.bit_width - 1)), kind))
        negative = pc.negate_checked(_null_unless(value.data, fits))
        return _joined(negative, value, value, pc.invert(fits), f"the negative of {kind} does not fit in {kind}")


def decided(function: str, left: Value, right: Value) -> Value:
    """Return AND or OR of two values. A failed row of the right one does not matter if the left one decides the row."""
    result = pc.call_function(function, [left.data, right.data])
    if right.failed is not None:
        decides = left.data if function == "or_kleene" else pc.invert(left.data)
        matters = pc.and_(right.failed, pc.invert(pc.fill_null(decides, fill_value=False)))
        left = replace(
            left, failed=matters if left.failed is None else pc.or_(left.failed, matters), why=left.why or right.why
        )
    return Value(result, left.failed, left.why)


def _joined(data: Any, left: Value, right: Value, failed: Any = None, why: str = "") -> Value:
    """Return a value computed from two others. A row that failed on the right does not count beside a left null."""
    if failed is not None:
        failed = pc.fill_null(failed, fill_value=False)
    if right.failed is not None:
        matters = pc.and_(right.failed, pc.is_valid(left.data))
        failed, why = matters if failed is None else pc.or_(failed, matters), why or right.why
    if left.failed is not None:
        failed, why = left.failed if failed is None else pc.or_(failed, left.failed), why or left.why
    return Value(data, failed, why)


def _decimals(function: str, left: Value, right: Value) -> Value:
    one, other = _decimal(left), _decimal(right)
    (p1, s1), (p2, s2) = ((of.type.precision, of.type.scale) for of in (one, other))
    if function == "multiply":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision <= _MOST_DIGITS:
        return _joined(pc.call_function(function, [one, other]), left, right)
    result_scale = max(_MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE))
    exact = _exact(function, one, other)
    if result_scale < scale:  # cut to one digit more before, so that a carry has room
        head = pc.round(exact, result_scale + 1, "towards_zero").cast(pa.decimal256(_WIDEST, result_scale + 1))
        exact = pc.round(head, result_scale, "half_towards_infinity")
    highest = Decimal((0, (9,) * _MOST_DIGITS, -result_scale))
    fits = _between(exact, highest.copy_negate(), highest)
    kind = pa.decimal128(_MOST_DIGITS, result_scale)
    why = f"the {_SIGNS[function]} of {left.data.type} and {right.data.type} does not fit in {kind}"
    failed = pc.and_(pc.invert(pc.fill_null(fits, fill_value=False)), pc.and_(pc.is_valid(one), pc.is_valid(other)))
    return _joined(_null_unless(exact, fits).cast(kind), left, right, failed, why)


def _exact(function: str, one: Any, other: Any) -> Any:
    """Compute with up to 76 digits. The last digit of a product of 38 and 38 digits is cut; null if it cannot fit."""
    if function != "multiply" or one.type.precision + other.type.precision < _WIDEST:
        return pc.call_function(function, [_wide(one), _wide(other)])
    products = [pc.multiply(_shorter(one), _wide(other)), pc.multiply(_wide(one), _shorter(other))]
    if one.type.scale + other.type.scale > _LEAST_SCALE:  # else such a product does not fit in a decimal
        products.append(_cut_product(*sorted((one, other), key=lambda factor: factor.type.scale, reverse=True)))
    return pc.coalesce(*products)


def _cut_product(one: Any, other: Any) -> Any:
    """Multiply two decimals of 38 digits, with 0 as the last digit; `one` has a scale of at least 1."""
    scale, last = one.type.scale + other.type.scale, one.type.scale - 1
    front = pc.round(_wide(one), last, "towards_zero")
    digit = pc.subtract(_wide(one), front).cast(pa.decimal256(1, one.type.scale))
    high = pc.multiply(front.cast(pa.decimal256(_MOST_DIGITS - 1, last)), _wide(other))
    low = pc.round(pc.multiply(digit, _wide(other)), scale - 1, "towards_zero")
    narrow = pa.decimal256(_WIDEST - 1, scale - 1)
    return pc.add(high.cast(narrow), low.cast(pa.decimal256(_MOST_DIGITS + 1, scale - 1))).cast(
        pa.decimal256(_WIDEST, scale)
    )


def _shorter(values: Any) -> Any:
    """Return decimals of a type with one digit fewer, null if a value needs this digit."""
    kind = pa.decimal256(values.type.precision - 1, values.type.scale)
    highest = Decimal((0, (9,) * kind.precision, -kind.scale))
    return _null_unless(values, _between(values, highest.copy_negate(), highest)).cast(kind)


def _wide(values: Any) -> Any:
    return values.cast(pa.decimal256(values.type.precision, values.type.scale))


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Cast two decimals to one type that can represent the values of both."""
    kinds = (one.type, other.type)
    scale = max(kind.scale for kind in kinds)
    digits = max(kind.precision - kind.scale for kind in kinds) + scale
    kind = pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.decimal256(_WIDEST, scale)
    return one.cast(kind), other.cast(kind)


def _null_unless(data: Any, fits: Any) -> Any:
    """Return the data, null in the rows that do not fit."""
    return pc.if_else(fits, data, pa.scalar(None, data.type))


def _between(values: Any, low: Decimal, high: Decimal) -> Any:
    low_or_above = pc.greater_equal(values, pa.scalar(low, values.type))
    return pc.and_kleene(low_or_above, pc.less_equal(values, pa.scalar(high, values.type)))


def _decimal(value: Value) -> Any:
    kind = value.data.type
    if _types.is_decimal(kind):
        short = kind.precision <= _MOST_DIGITS
        return value.data.cast(pa.decimal128(kind.precision, kind.scale)) if short else value.data
    digits = _DIGITS[_signed(kind).bit_width]
    wide = value.data.cast(pa.decimal128(digits, 0))
    return wide if value.literal is None else wide.cast(pa.decimal128(value.literal, 0))


def _signed(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for whole numbers of this type."""
    if _types.is_signed_integer(kind):
        return kind
    return {8: pa.int16(), 16: pa.int32()}.get(kind.bit_width, pa.int64())


def _is_decimal(kind: pa.DataType) -> bool:
    """Whether numbers of a type are computed as decimals, as uint64 is: Spark has no whole number that wide."""
    return _types.is_decimal(kind) or _types.is_uint64(kind)


def _is_number(kind: pa.DataType) -> bool:
    return _types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind)


def _doubles(values: Any) -> Any:
    if isinstance(values, pa.Scalar):
        return pa.scalar(None if not values.is_valid else float(values.as_py()), pa.float64())
    return as_floats(values)


def _ordered(values: Any) -> Any:
    """Map doubles to whole numbers with Spark's order of doubles: NaN is equal to itself and above all, -0.0 is 0.0."""
    if isinstance(values, pa.Scalar):
        return _ordered(pa.array([values.as_py()], pa.float64()))[0]
    plain = values.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(plain), np.nan, plain).view(np.int64)
    return pa.array(
        np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), mask=values.is_null().to_numpy(zero_copy_only=False)
    )
