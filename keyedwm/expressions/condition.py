"""A condition: a SQL comparison of columns, evaluated over many rows (in a join, pairs of rows) at once.

Rule: a condition has the result that Spark's SQL has. Null is unknown; NaN is equal to itself and above every number. A
literal with a point is a decimal; numbers of two types are compared in Spark's common type. An overflow is an error,
unless the left side decides an AND or OR alone. Other SQL is an error when the plan is built.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.text import words_of
from keyedwm.expressions.advice import Advice
from keyedwm.expressions.evaluation import Value, between, compared, decided, literal, negated, reckoned, within
from keyedwm.expressions.parser import (
    AND,
    BETWEEN,
    COMPARE,
    IN,
    OR,
    RECKON,
    Column,
    FunctionCall,
    Literal,
    Node,
    columns_of,
    conjunction,
    conjuncts_of,
    parsed,
)

_NO_KERNEL = re.compile(r"Function '(\w+)' has no kernel matching input types \((.*)\)")
_OVER_FRAMES = Advice()
_NAMES_OF_SIGNS = {"invert": "NOT", AND: "AND", OR: "OR", "negate": "-"}
# Spark's names of types.
_TYPES = {"timestamp[us, tz=UTC]": "timestamp", "timestamp[us]": "timestamp_ntz", "bool": "boolean"}
# Arrow's errors for types that cannot be combined.
_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. columns: for each side, the columns that the condition names. of: its owner, for errors."""

    text: str
    tree: Node
    columns: tuple[tuple[str, ...], ...]
    of: str = "join"
    advice: Advice = _OVER_FRAMES

    @classmethod
    def parse(
        cls, text: object, *sides: tuple[str, pa.Schema], of: str = "join", advice: Advice = _OVER_FRAMES
    ) -> Condition:
        """Parse a condition. sides: the name and columns of each side; a single side needs no name.

        Raises OptionError for a text that cannot be parsed or names no column. It also rejects a column that is missing
        or on both sides, and types that cannot be compared.
        """
        if not isinstance(text, str):
            example = "left.v < right.w" if len(sides) > 1 else "v > 0"
            raise OptionError(f"{of}: condition={text!r}: the text of a comparison is expected, as {example!r}")
        tree = parsed(text, sides, of, advice)
        columns_used = [{one.name for one in columns_of(tree) if one.side == side} for side in range(len(sides))]
        if not any(columns_used):
            raise OptionError(f"{of}: the condition {text!r} names no column: leave it out, or compare columns")
        condition = cls(text, tree, tuple(tuple(sorted(names)) for names in columns_used), of, advice)
        nothing = [{name: pa.nulls(1, schema.field(name).type) for name in schema.names} for _, schema in sides]
        try:
            kind = _value(tree, nothing).data.type
            _check_literals(tree)
        except _UNFIT as error:
            raise OptionError(
                f"{of}: the condition {text!r} cannot be evaluated: {_unfit(error, advice.cast)}"
            ) from error
        if not pa.types.is_boolean(kind):
            raise OptionError(f"{of}: the condition {text!r} is of type {kind}, a comparison is expected")
        return condition

    def in_turn(self, names: Collection[str]) -> tuple[Condition, ...]:
        """Split a condition of one side into one or two parts: rows that meet all parts meet the condition.

        The first of two parts has the leading comparisons that name only these columns.
        """
        nodes = conjuncts_of(self.tree)
        first = list(takewhile(lambda node: {one.name for one in columns_of(node)} <= set(names), nodes))
        if not any(one for node in first for one in columns_of(node)):
            return (self,)
        return tuple(self._of(some) for some in (first, nodes[len(first) :]) if some)

    def _of(self, nodes: Sequence[Node]) -> Condition:
        tree = conjunction(nodes)
        return replace(self, tree=tree, columns=(tuple(sorted({one.name for one in columns_of(tree)})),))

    def holds(self, *rows: Any) -> Flags:
        """Return whether the condition is true for each row, or pair of rows. rows: of each side, column -> values."""
        return pc.fill_null(self.truth(*rows), fill_value=False).to_numpy(zero_copy_only=False)

    def truth(self, *rows: Any) -> Any:
        """Return Arrow's booleans, null for an unknown row. rows: see `holds`. Raises InputError if a row fails."""
        try:
            value = _value(self.tree, rows)
        except _UNFIT as error:
            raise InputError(f"{self.of}: the condition {self.text!r} failed: {words_of(error)}") from error
        if value.failed is not None and (many := pc.sum(value.failed).as_py()):
            raise InputError(
                f"{self.of}: the condition {self.text!r} failed: overflow in {many} rows, where {value.why}; "
                f"{self.advice.wider}"
            )
        return value.data


def columns_named(text: str, names: Sequence[str], of: str) -> tuple[str, ...]:
    """Return the columns of `names` that a condition names; no types are needed. Raises OptionError as `parse` does."""
    tree = parsed(text, [("", pa.schema([(name, pa.null()) for name in names]))], of, _OVER_FRAMES)
    return tuple(sorted({one.name for one in columns_of(tree)}))


def _value(node: Node, rows: Sequence[Any]) -> Value:
    if isinstance(node, Column):
        return Value(rows[node.side][node.name])
    if isinstance(node, Literal):
        return literal(node.value)
    if node.function == IN:
        one, listed = node.arguments
        return within(_value(one, rows), listed.value)  # type: ignore[union-attr]  # the parser makes it of a literal
    return _called(node.function, [_value(one, rows) for one in node.arguments])


def _check_literals(node: Node) -> None:
    """Raise ArrowInvalid if a part without columns overflows: the part would overflow in every row."""
    if not isinstance(node, FunctionCall):
        return
    if any(columns_of(node)):
        for inner in node.arguments:
            _check_literals(inner)
    elif (value := _value(node, ())).failed is not None and value.failed.as_py():
        raise pa.ArrowInvalid(f"{value.why}; write a literal of another type, such as 1.0")


def _called(function: str, values: Sequence[Value]) -> Value:
    if function in COMPARE.values():
        return compared(function, *values)
    if function in RECKON.values():
        return reckoned(function, *values)
    if function == BETWEEN:
        return between(*values)
    if function == "negate":
        return negated(*values)
    if len(values) == 2:
        return decided(function, *values)
    return values[0].with_data(pc.call_function(function, [values[0].data]))


def _unfit(error: Exception, cast: str) -> str:
    """Return which types cannot be combined, and the advice. cast: the advice."""
    kernel = _NO_KERNEL.search(str(error))
    if kernel is None:
        return words_of(error)
    signs = {name: sign for sign, name in reversed([*COMPARE.items(), *RECKON.items()])} | _NAMES_OF_SIGNS
    name = kernel[1].removesuffix("_checked")
    types = kernel[2]
    for arrow, spark in _TYPES.items():
        types = types.replace(arrow, spark)
    types = " and ".join(types.split(", ")) if types.count(", ") == 1 else types
    return f"{signs.get(name, name)} does not take {types}; {cast}"
