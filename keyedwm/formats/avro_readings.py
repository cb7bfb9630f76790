"""How a value of the writer's type is read as the requested type.

Rule: a value is converted by its logical type, or by a promotion of Avro's specification: int to long, any number to
double, bytes and strings to each other. A plain number is a time only by an event time's unit. A decimal loses no
digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from keyedwm.core.places import DecimalType, FieldType, Unit
from keyedwm.formats.avro_kernels import Op
from keyedwm.formats.avro_types import Kind, Leaf, Logical
from keyedwm.formats.field_requests import TO_MS, Layout, Stored

_NUMBERS = (Kind.INT, Kind.LONG)
_NUMBER, _SPAN, _DOUBLE = Layout(), Layout(Stored.SPAN), Layout(Stored.DOUBLE)
_MS_PER_DAY = 86_400_000
_TO_US = {Unit.MILLISECONDS: (1_000, 1), Unit.MICROSECONDS: (1, 1), Unit.NANOSECONDS: (1, 1_000)}
_TIMES = {
    Logical.TIMESTAMP_MILLIS: Unit.MILLISECONDS, Logical.LOCAL_TIMESTAMP_MILLIS: Unit.MILLISECONDS,
    Logical.TIMESTAMP_MICROS: Unit.MICROSECONDS, Logical.LOCAL_TIMESTAMP_MICROS: Unit.MICROSECONDS,
    Logical.TIMESTAMP_NANOS: Unit.NANOSECONDS, Logical.LOCAL_TIMESTAMP_NANOS: Unit.NANOSECONDS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A step of a program, and how it stores the value."""

    op: Op
    argument: int = 0
    layout: Layout = _NUMBER


def reading_of(leaf: Leaf, type_: FieldType | DecimalType | Unit) -> Reading | None:
    """Return how a value is read, None if it cannot be read as the requested type."""
    if isinstance(type_, Unit):
        return _event_time(leaf, type_)
    return _decimal(leaf, type_) if isinstance(type_, DecimalType) else _READINGS[type_](leaf)


def _whole(leaf: Leaf) -> Reading | None:
    return Reading(Op.NUMBER, 1) if leaf.kind in _NUMBERS else None


def _boolean(leaf: Leaf) -> Reading | None:
    return Reading(Op.BOOLEAN, 1) if leaf.kind is Kind.BOOLEAN else None


def _date(leaf: Leaf) -> Reading | None:
    return Reading(Op.NUMBER, 1) if leaf.logical is Logical.DATE else None


def _timestamp(leaf: Leaf) -> Reading | None:
    return _scaled(*_TO_US[_TIMES[leaf.logical]]) if leaf.logical in _TIMES else None


def _scaled(factor: int, divisor: int) -> Reading:
    return Reading(Op.NUMBER, factor) if divisor == 1 else Reading(Op.NUMBER_DOWN, divisor)


def _event_time(leaf: Leaf, unit: Unit) -> Reading | None:
    if leaf.logical in _TIMES:
        return _scaled(*TO_MS[_TIMES[leaf.logical]])
    if leaf.logical is Logical.DATE:
        return Reading(Op.NUMBER, _MS_PER_DAY)
    if leaf.logical is not None:
        return None
    if leaf.kind is Kind.STRING:
        return Reading(Op.TEXT, layout=_SPAN)
    if unit is Unit.ISO:
        return None
    return _scaled(*TO_MS[unit]) if leaf.kind in _NUMBERS else _double(leaf)


def _double(leaf: Leaf) -> Reading | None:
    if leaf.kind in _NUMBERS:
        return Reading(Op.NUMBER_AS_DOUBLE, layout=_DOUBLE)
    ops = {Kind.FLOAT: (Op.FLOAT, 4), Kind.DOUBLE: (Op.DOUBLE, 8)}
    return Reading(*ops[leaf.kind], _DOUBLE) if leaf.kind in ops else None


def _string(leaf: Leaf) -> Reading | None:
    if leaf.kind is Kind.ENUM:
        return Reading(Op.SYMBOL, layout=_SPAN)
    is_text = leaf.kind is Kind.STRING or (leaf.kind is Kind.BYTES and leaf.logical is None)
    return Reading(Op.TEXT, layout=_SPAN) if is_text else None


def _bytes(leaf: Leaf) -> Reading | None:
    if leaf.kind is Kind.FIXED:
        return Reading(Op.FIXED, leaf.size, _SPAN)
    return Reading(Op.TEXT, layout=_SPAN) if leaf.kind in (Kind.BYTES, Kind.STRING) else None


def _decimal(leaf: Leaf, type_: DecimalType) -> Reading | None:
    if leaf.logical is not Logical.DECIMAL or leaf.scale > type_.scale:
        return None
    op, size = (Op.FIXED_DECIMAL, leaf.size) if leaf.kind is Kind.FIXED else (Op.DECIMAL, 0)
    return Reading(op, size, Layout(Stored.DECIMAL_WORDS, leaf.scale))


_READINGS: Mapping[FieldType, Callable[[Leaf], Reading | None]] = MappingProxyType({
    FieldType.STRING: _string, FieldType.BIGINT: _whole, FieldType.DOUBLE: _double, FieldType.BOOLEAN: _boolean,
    FieldType.TIMESTAMP: _timestamp, FieldType.DATE: _date, FieldType.BINARY: _bytes,
})  # fmt: skip
