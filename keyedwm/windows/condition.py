"""A condition as the text of a SQL comparison of columns, evaluated over many rows (of a join: pairs of rows) at once.

Rule: comparisons of columns and literals (= <> < <= > >=, BETWEEN, IS NULL) with AND, OR, NOT, + - * and brackets, as
Spark evaluates them: null is unknown, NaN is equal to itself and above every number, a literal with a point is a
decimal, an overflow is an error. Whatever else SQL has is refused when the plan is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.options import nearest
from keyedwm.windows.columns import Flags, as_floats

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>+\-*().]))"
)
_COMPARE = {
    "=": "equal", "==": "equal", "<>": "not_equal", "!=": "not_equal",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
_RECKON = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_WORDS = {"and", "or", "not", "is", "null", "between", "true", "false"}
_DEEPEST = 200
_NO_KERNEL = re.compile(r"Function '(\w+)' has no kernel matching input types \((.*)\)")
# What Arrow raises for types that do not go together.
_UNFIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


@dataclass(frozen=True, slots=True)
class _Column:
    side: int
    name: str


@dataclass(frozen=True, slots=True)
class _Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: tuple[_Column | _Literal | _Call, ...]


_Node = _Column | _Literal | _Call


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition; `columns` are those that it needs, by side. of: whose it is, for errors."""

    text: str
    tree: _Node
    columns: tuple[tuple[str, ...], ...]
    of: str = "join"

    @classmethod
    def parse(cls, text: object, *sides: tuple[str, pa.Schema], of: str = "join") -> Condition:
        """Return the condition of a text; each side is its name and its columns, a single one needs no name.

        Raises OptionError, in one sentence, for what cannot be read, for a column that is not there or on both sides,
        and for types that cannot be compared.
        """
        if not isinstance(text, str):
            example = "left.v < right.w" if len(sides) > 1 else "v > 0"
            raise OptionError(f"{of}: condition={text!r}: the text of a comparison is expected, as {example!r}")
        tree = _parsed(text, sides, of)
        used = [{one.name for one in _columns(tree) if one.side == side} for side in range(len(sides))]
        if not any(used):
            raise OptionError(f"{of}: the condition {text!r} names no column: leave it out, or compare columns")
        found = cls(text, tree, tuple(tuple(sorted(names)) for names in used), of)
        nothing = [{name: pa.nulls(1, schema.field(name).type) for name in schema.names} for _, schema in sides]
        try:
            kind = found._value(tree, nothing).type
        except _UNFIT as error:
            raise OptionError(f"{of}: the condition {text!r} cannot be evaluated: {_unfit(error)}") from error
        if not pa.types.is_boolean(kind):
            raise OptionError(f"{of}: the condition {text!r} is of type {kind}, a comparison is expected")
        return found

    def holds(self, *rows: Any) -> Flags:
        """Return for each row, or pair of rows, whether it is true; rows: of each side, its columns by name."""
        try:
            found = self._value(self.tree, rows)
        except _UNFIT as error:
            raise InputError(f"{self.of}: the condition {self.text!r} failed: {_first_line(error)}") from error
        return pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)

    def _value(self, node: _Node, rows: Sequence[Any]) -> Any:
        if isinstance(node, _Column):
            return rows[node.side][node.name]
        if isinstance(node, _Literal):
            return pa.scalar(node.value)
        values = [self._value(one, rows) for one in node.arguments]
        if node.function in _COMPARE.values() and any(pa.types.is_floating(one.type) for one in values):
            values = [_ordered(one) for one in values]
        try:
            return pc.call_function(node.function, values)
        except pa.ArrowInvalid:  # more than the 38 digits of a decimal; any other error comes again
            return pc.call_function(node.function, [_wide(one) for one in values])


class _Parser:
    """Recursive descent, a method for each level of precedence."""

    def __init__(self, text: str, sides: Sequence[tuple[str, pa.Schema]], of: str) -> None:
        self._text, self._sides, self._told = text, sides, f"{of}: the condition {text!r}"
        self._tokens = list(self._read())
        self._at = 0

    def whole(self) -> _Node:
        node = self._either()
        if self._kind != "end":
            self._refuse()
        return node

    def _read(self) -> Iterator[tuple[str, str]]:
        at = 0
        while self._text[at:].strip():
            token = _TOKEN.match(self._text, at)
            if token is None:
                self._refuse(self._text[at:].strip())
            at = token.end()
            kind, word = str(token.lastgroup), token[str(token.lastgroup)]
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield kind, word
        yield "end", "its end"

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _token(self) -> str:
        return self._tokens[self._at][1]

    def _take(self, *words: str) -> str | None:
        """Step over one of these words or signs, if it comes next."""
        if self._kind in ("word", "sign") and self._token in words:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return None

    def _need(self, word: str) -> None:
        if self._take(word) is None:
            self._refuse()

    def _refuse(self, found: str | None = None) -> NoReturn:
        raise OptionError(
            f"{self._told} cannot be read at {self._token if found is None else found!r}: comparisons of columns and "
            f"literals with and, or, not, between, is null, + - * are expected"
        )

    def _either(self) -> _Node:
        nodes = [self._both()]
        while self._take("or"):
            nodes.append(self._both())
        return _balanced("or_kleene", nodes)

    def _both(self) -> _Node:
        nodes = [self._negated()]
        while self._take("and"):
            nodes.append(self._negated())
        return _balanced("and_kleene", nodes)

    def _negated(self) -> _Node:
        return _Call("invert", (self._negated(),)) if self._take("not") else self._comparison()

    def _comparison(self) -> _Node:
        node = self._sum()
        sign = self._take(*_COMPARE)
        if sign is not None:
            return _Call(_COMPARE[sign], (node, self._sum()))
        if self._take("is"):
            missing = self._take("not") is None
            self._need("null")
            return _Call("is_null" if missing else "is_valid", (node,))
        outside = self._take("not") is not None
        if self._take("between"):
            low = self._sum()
            self._need("and")
            inside = _Call(
                "and_kleene", (_Call("greater_equal", (node, low)), _Call("less_equal", (node, self._sum())))
            )
            return _Call("invert", (inside,)) if outside else inside
        if outside:
            self._refuse()
        return node

    def _sum(self) -> _Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = _Call(_RECKON[sign], (node, self._product()))
        return node

    def _product(self) -> _Node:
        node = self._single()
        while self._take("*"):
            node = _Call(_RECKON["*"], (node, self._single()))
        return node

    def _single(self) -> _Node:
        if self._take("-"):
            return _Call("negate_checked", (self._single(),))
        if self._take("("):
            node = self._either()
            self._need(")")
            return node
        if (word := self._take("true", "false")) is not None:
            return _Literal(word == "true")
        kind, word = self._kind, self._token
        if kind not in ("number", "text", "name"):
            self._refuse()
        self._at += 1
        if kind == "number":
            # A whole number beyond 64 bits is a decimal.
            return _Literal(int(word) if word.isdecimal() and int(word) < 2**63 else Decimal(word))
        return _Literal(word[1:-1].replace("''", "'")) if kind == "text" else self._column(_bare(word))

    def _column(self, word: str) -> _Node:
        """Return the column of a name, or of a side's name, a dot and a name."""
        if len(self._sides) > 1 and self._take("."):
            if self._kind != "name":
                self._refuse()
            name = _bare(self._token)
            self._at += 1
            side = next((at for at, (called, _) in enumerate(self._sides) if called == word), None)
            if side is None:
                called = " and ".join(name for name, _ in self._sides)
                raise OptionError(f"{self._told} names a side {word!r}, the sides are {called}")
            return self._of(side, name)
        holding = [at for at, (_, schema) in enumerate(self._sides) if word in schema.names]
        if len(holding) == 2:
            called = " or ".join(f"{name}.{word}" for name, _ in self._sides)
            raise OptionError(f"{self._told}: both sides have a column {word!r}, write {called}")
        return self._of(holding[0] if holding else None, word)

    def _of(self, side: int | None, name: str) -> _Node:
        sides = self._sides if side is None else [self._sides[side]]
        known = list(dict.fromkeys(column for _, schema in sides for column in schema.names))
        if side is None or name not in known:
            hint = nearest(name, known)
            advice = f"did you mean {hint!r}?" if hint else f"there are {', '.join(known)}"
            raise OptionError(f"{self._told} names a column {name!r} that is not there; {advice}")
        return _Column(side, name)


def columns_named(text: str, names: Sequence[str], of: str) -> tuple[str, ...]:
    """Return which of the columns a condition names, without their types. Raises OptionError as `parse` does."""
    tree = _parsed(text, [("", pa.schema([(name, pa.null()) for name in names]))], of)
    return tuple(sorted({one.name for one in _columns(tree)}))


def _parsed(text: str, sides: Sequence[tuple[str, pa.Schema]], of: str) -> _Node:
    """Return the tree of a text. One that is too deep for the interpreter's stack is refused."""
    try:
        tree = _Parser(text, sides, of).whole()
    except RecursionError:
        tree = None
    if tree is None or _depth(tree) > _DEEPEST:
        raise OptionError(
            f"{of}: the condition that begins with {text[:40]!r} is nested more than {_DEEPEST} levels deep: compute a "
            f"part of it as a column before"
        )
    return tree


def _balanced(function: str, nodes: Sequence[_Node]) -> _Node:
    """Many nodes as a tree that is not deep; the function is associative."""
    if len(nodes) == 1:
        return nodes[0]
    half = len(nodes) // 2
    return _Call(function, (_balanced(function, nodes[:half]), _balanced(function, nodes[half:])))


def _depth(tree: _Node) -> int:
    levels, found = [tree], 0
    while levels:
        found += 1
        levels = [inner for one in levels if isinstance(one, _Call) for inner in one.arguments]
    return found


def _bare(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word


def _columns(node: _Node) -> Iterator[_Column]:
    if isinstance(node, _Column):
        yield node
    elif isinstance(node, _Call):
        for one in node.arguments:
            yield from _columns(one)


def _wide(values: Any) -> Any:
    """Return decimals with room for twice as many digits, other values as they are."""
    kind = values.type
    return values.cast(pa.decimal256(kind.precision, kind.scale)) if pa.types.is_decimal(kind) else values


def _ordered(values: Any) -> Any:
    """Return numbers as whole ones of the same order and equality as Spark gives them: NaN is above all."""
    if isinstance(values, pa.Scalar):
        return _ordered(pa.array([float(values.as_py())]))[0] if values.is_valid else pa.scalar(None, pa.int64())
    floats = as_floats(values)
    plain = floats.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(plain), np.nan, plain).view(np.int64)
    return pa.array(
        np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), mask=values.is_null().to_numpy(zero_copy_only=False)
    )


def _unfit(error: Exception) -> str:
    """Say which types do not go together."""
    found = _NO_KERNEL.search(str(error))
    if found is None:
        return _first_line(error)
    signs = {name: sign for sign, name in reversed([*_COMPARE.items(), *_RECKON.items()])}
    types = " and ".join(found[2].split(", ")) if found[2].count(", ") == 1 else found[2]
    return f"{signs.get(found[1], found[1])} does not take {types}; cast the column before"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
