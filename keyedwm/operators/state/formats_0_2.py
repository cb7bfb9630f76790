"""The texts to compare with state of keyedwm 0.2.0: the digest of a plan's windows, and the text of a user's function.

Rule: these texts do not change, even if classes and enums are renamed. The digest also has a text for an aggregate
without a name.

A function is its byte-code, constants, names, defaults, closure and the globals it reads, recursively. A value whose
changes cannot be detected raises ValueError. Another Python may compile a function to other byte-code, so new state
identifies a user's functions by their version.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

import pyarrow as pa

from keyedwm.operators.aggregates.functions import FUNCTIONS, Aggregate
from keyedwm.operators.aggregates.spec import AggregateSpec

_PLAIN = (
    type(None), type(...), bool, int, float, complex, str, bytes, Decimal, Fraction, date, time, timedelta, timezone,
    PurePath, re.Pattern, range, slice,
)  # fmt: skip
# Kind in a description → the class of such windows in 0.2.0, or a class with the same name.
_CALLED = {"sliding": "SlidingWindow", "zoned": "ZonedWindow", "session": "SessionWindow", "row gaps": "RowGapWindow"}


def digest_v1(description: Mapping[str, Any], aggregates: Sequence[str], partials: pa.Schema) -> str:
    """Return the digest of a plan. description: of the plan. aggregates: their texts. partials: their columns."""
    window = {name: value for name, value in description["window"].items() if name != "kind"}
    late = (f"LateRule.{description['late_rule'].upper()}", description["lateness_ms"], description["accumulating"])
    lines = [
        f"{_CALLED[description['window']['kind']]}({_fields(window)})",
        " ".join(map(str, (*late, _early(description["early"])))),
        *(f"{name} {text}" for (name, *_), text in zip(description["aggregates"], aggregates, strict=True)),
        *(f"{inner.name} {inner.type}" for inner in partials),
        *description["read_from"],
        *([json.dumps(description["key_watermark"], sort_keys=True)] if "key_watermark" in description else []),
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(name, value)}" for name, value in values.items())


def _text(name: str, value: Any) -> str:
    return f"<Touching.{value.upper()}: {value!r}>" if name == "touching" else repr(value)


def _early(early: Mapping[str, Any] | None) -> str:
    if early is None:
        return "None"
    return f"Early({_fields({name: value for name, value in early.items() if (name, value) != ('by', 'clock')})})"


def described_by_code(spec: AggregateSpec) -> str:
    """Return the text of an aggregate in such a digest; raise ValueError if 0.2.0 raised an error."""
    if not isinstance(spec, Aggregate):
        return spec.describe()
    arguments = [
        f"{name} {fingerprint(function)}" for name in FUNCTIONS if (function := getattr(spec, name)) is not None
    ]
    return f"Aggregate({spec.column}: {', '.join(arguments)}; {spec.result}; {spec.single_stage})"


def fingerprint(function: Callable) -> str:
    """Return a short text for this function; raise ValueError if 0.2.0 raised an error."""
    digest = hashlib.sha256()
    for piece in _Walk().pieces(function):
        digest.update(f"{len(piece)}:{piece}".encode())
    return digest.hexdigest()[:16]


class _Walk:
    """Visits a function and everything that it refers to, each function once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def pieces(self, value: Any) -> Iterator[str]:
        """Yield texts that are equal for equal values."""
        yield type(value).__qualname__
        if isinstance(value, _PLAIN) and not isinstance(value, Enum):
            yield repr(value)
        elif isinstance(value, (FunctionType, CodeType)):
            yield from self._once(value)
        elif isinstance(value, (type, ModuleType, BuiltinFunctionType, MethodDescriptorType, Enum)):
            yield from self._by_name(value)
        elif isinstance(value, (tuple, list)):
            for one in value:
                yield from self.pieces(one)
        elif isinstance(value, (set, frozenset)):
            yield from sorted("".join(self.pieces(one)) for one in value)
        elif isinstance(value, Mapping):
            for key, one in value.items():
                yield from self.pieces(key)
                yield from self.pieces(one)
        else:
            yield from self._composed(value)

    def _composed(self, value: Any) -> Iterator[str]:
        if isinstance(value, functools.partial):
            parts: tuple = (value.func, value.args, value.keywords)
        elif isinstance(value, MethodType):
            parts = (value.__func__, value.__self__)
        elif isinstance(getattr(value, "py_func", None), FunctionType):  # compiled by numba
            parts = (value.py_func,)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType):  # functools.cache, for example
            parts = (value.__wrapped__,)
        elif is_dataclass(value):
            parts = (type(value), *(getattr(value, field.name) for field in fields(value)))
        else:
            raise ValueError(f"changes of {type(value).__name__} between two starts could not be noticed")
        yield from self.pieces(parts)

    def _by_name(self, value: Any) -> Iterator[str]:
        """Yield the texts of an object with a name; for a user's class also of its functions."""
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', None) or str(value)}"
        if isinstance(value, Enum):
            yield value.name
        elif isinstance(value, type) and value.__module__ == "__main__" and id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            for name, one in sorted(vars(value).items()):
                if isinstance(one, FunctionType):
                    yield name
                    yield from self.pieces(one)

    def _once(self, value: FunctionType | CodeType) -> Iterator[str]:
        if id(value) in self._numbers:
            yield f"again {self._numbers[id(value)]}"
            return
        self._numbers[id(value)] = len(self._numbers)
        yield from self._code(value) if isinstance(value, CodeType) else self._function(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield from self.pieces(function.__code__)
        yield from self.pieces((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            yield from self.pieces(cell.cell_contents)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__ and function.__globals__[name] is not getattr(builtins, name, None):
                yield name
                yield from self.pieces(function.__globals__[name])

    def _code(self, code: CodeType) -> Iterator[str]:
        yield code.co_code.hex()
        yield repr((code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags))
        yield from self.pieces(code.co_consts)


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and its inner functions look up; some are attributes, not globals."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*inner)
