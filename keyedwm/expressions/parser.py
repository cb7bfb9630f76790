"""The parser of a condition's text: it returns a tree of comparisons of columns and literals.

Rule: a condition may have = <> < <= > >=, BETWEEN, IN of literals, IS NULL, AND, OR, NOT, + - * and brackets. Other SQL
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest
from keyedwm.expressions.advice import Advice

_TOKEN = re.compile(
    r"(?:(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)|(?P<text>'(?:[^'\\]|''|\\.)*')|(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>+\-*().,]))"
)
COMPARE = {
    "=": "equal", "==": "equal", "<>": "not_equal", "!=": "not_equal",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
AND, OR = "and_kleene", "or_kleene"
BETWEEN, IN = "between", "in"  # names of ours: Arrow has no such functions
RECKON = {"+": "add", "-": "subtract", "*": "multiply"}
# Escapes in a text, as Spark reads them; any other character behind a backslash is an error.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "\\": "\\", "'": "'", '"': '"'}
_BLANKS = re.compile(r"\s*")
_QUOTED = re.compile(r"''|\\(.)", re.DOTALL)
_KEYWORDS = {"and", "or", "not", "is", "null", "between", "in", "true", "false"}
# Words of SQL that conditions do not have.
_NOT_KNOWN = {"like", "ilike", "rlike", "regexp", "case", "cast", "exists", "select", "interval", "date", "div", "xor"}
_EXPECTED = "comparisons of columns and literals with and, or, not, between, in, is null, + - * are expected"
# The beginning of a token that cannot be read -> the advice.
_CURES = {
    '"': "texts stand in single quotes, names that are no plain words in backticks",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT",
    "--": "comments are not read",
    "/*": "comments are not read",
    ";": "leave it out",
    "null": "ask for it with IS NULL or IS NOT NULL",
}
_NO_LITERALS = (("sign", ")"), ("word", "null"))
_DEEPEST = 200
_WHOLE_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one of the sides."""

    side: int
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, a truth value or a time; for IN, a tuple of such values."""

    value: Any


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function, by Arrow's name (or BETWEEN or IN), and its arguments."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Column | Literal | FunctionCall


def parsed(text: str, sides: Sequence[tuple[str, pa.Schema]], of: str, advice: Advice) -> Node:
    """Parse a text; raise OptionError if the text cannot be read, or its tree is deeper than _DEEPEST."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{of}: the condition {text!r} has half a surrogate pair, which no text holds") from None
    try:
        tree = _Parser(text, sides, of, advice).whole()
    except RecursionError:
        tree = None
    if tree is None or _depth(tree) > _DEEPEST:
        raise OptionError(
            f"{of}: the condition that begins with {text[:40]!r} is nested more than {_DEEPEST} levels deep: compute a "
            f"part of it as a column before"
        )
    return tree


def columns_of(node: Node) -> Iterator[Column]:
    """Yield the columns that a tree names."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, FunctionCall):
        for one in node.arguments:
            yield from columns_of(one)


def conjuncts_of(node: Node) -> list[Node]:
    """Return the nodes that an AND joins, in the order of the text; any other node is returned alone."""
    if isinstance(node, FunctionCall) and node.function == AND:
        return [one for inner in node.arguments for one in conjuncts_of(inner)]
    return [node]


def conjunction(nodes: Sequence[Node]) -> Node:
    """Return the AND of some nodes, at least one."""
    return _balanced(AND, nodes)


class _Parser:
    """Recursive descent, a method for each level of precedence."""

    def __init__(self, text: str, sides: Sequence[tuple[str, pa.Schema]], of: str, advice: Advice) -> None:
        self._text, self._sides, self._whose = text, sides, f"{of}: the condition {text!r}"
        self._advice = advice
        self._tokens = list(self._read())
        self._at = 0

    def whole(self) -> Node:
        node = self._either()
        if self._kind != "end":
            self._refuse()
        return node

    def _read(self) -> Iterator[tuple[str, str]]:
        text, at = self._text, 0
        while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it always matches
            token = None if text.startswith("--", at) else _TOKEN.match(text, at)
            if token is None:
                self._refuse(text[at:].strip())
            at = token.end()
            kind, word = str(token.lastgroup), token[str(token.lastgroup)]
            if kind == "name" and word.lower() in _KEYWORDS:
                kind, word = "word", word.lower()
            yield kind, word
        yield "end", "its end"

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _token(self) -> str:
        return self._tokens[self._at][1]

    def _accept(self, *tokens: str) -> str | None:
        """Step over one of these words or signs, if it comes next."""
        if self._kind in ("word", "sign") and self._token in tokens:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return None

    def _is_at(self, sign: str) -> bool:
        return self._tokens[self._at] == ("sign", sign)

    def _need(self, word: str) -> None:
        if self._accept(word) is None:
            self._refuse()

    def _refuse(self, token: str | None = None, cure: str = "") -> NoReturn:
        token = self._token if token is None else token
        cure = cure or next((known_cure for start, known_cure in _CURES.items() if token.startswith(start)), "")
        if token.lower() in _NOT_KNOWN:
            cure = f"{token.upper()} is not known to conditions; {self._advice.compute}"
        elif self._advice.path and token.startswith((":", "$")):
            cure = self._advice.path
        raise OptionError(f"{self._whose} cannot be read at {token!r}: {cure or _EXPECTED}")

    def _either(self) -> Node:
        nodes = [self._both()]
        while self._accept("or"):
            nodes.append(self._both())
        return _balanced(OR, nodes)

    def _both(self) -> Node:
        nodes = [self._negated()]
        while self._accept("and"):
            nodes.append(self._negated())
        return conjunction(nodes)

    def _negated(self) -> Node:
        return FunctionCall("invert", (self._negated(),)) if self._accept("not") else self._comparison()

    def _comparison(self) -> Node:
        node = self._sum()
        sign = self._accept(*COMPARE)
        if sign is not None:
            return FunctionCall(COMPARE[sign], (node, self._sum()))
        if self._accept("is"):
            missing = self._accept("not") is None
            self._need("null")
            return FunctionCall("is_null" if missing else "is_valid", (node,))
        outside = self._accept("not") is not None
        if self._accept("between"):
            low = self._sum()
            self._need("and")
            inside = FunctionCall(BETWEEN, (node, low, self._sum()))
            return FunctionCall("invert", (inside,)) if outside else inside
        if self._accept("in"):
            inside = FunctionCall(IN, (node, Literal(self._listed())))
            return FunctionCall("invert", (inside,)) if outside else inside
        if outside:
            self._refuse()
        return node

    def _listed(self) -> tuple[Any, ...]:
        """Read a list of literals in brackets, and return their values."""
        cure = "IN takes literals in brackets, as in IN ('a', 'b')"
        if not self._accept("("):
            self._refuse(cure=cure)
        values: list[Any] = []
        while not values or self._accept(","):
            at = self._at
            node = None if self._tokens[at] in _NO_LITERALS else self._single()
            if not isinstance(node, Literal):
                self._refuse(self._tokens[at][1], cure)
            values.append(node.value)
        self._need(")")
        return tuple(values)

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._accept("+", "-"):
            node = FunctionCall(RECKON[sign], (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._single()
        while self._accept("*"):
            node = FunctionCall(RECKON["*"], (node, self._single()))
        return node

    def _single(self) -> Node:
        if self._accept("-"):
            if self._kind == "number":  # -2**63 is a whole number of 64 bits, 2**63 is none
                self._at += 1
                return Literal(-_number(self._tokens[self._at - 1][1]))
            return FunctionCall("negate", (self._single(),))
        if self._accept("("):
            node = self._either()
            self._need(")")
            return node
        if (word := self._accept("true", "false")) is not None:
            return Literal(word == "true")
        if self._kind not in ("number", "text", "name"):
            self._refuse()
        self._at += 1
        return self._leaf(*self._tokens[self._at - 1])

    def _leaf(self, kind: str, word: str) -> Node:
        """Return the node of a number, text or name, or of TIMESTAMP and the text behind it."""
        if kind == "number":
            return Literal(_number(word))
        if kind == "text":
            return Literal(self._unquoted(word[1:-1]))
        if word.lower() == "timestamp" and self._kind == "text":
            self._at += 1
            return Literal(self._instant(self._tokens[self._at - 1][1][1:-1]))
        if self._is_at("("):
            raise OptionError(
                f"{self._whose} calls {word!r}: functions and casts are not known to conditions; {self._advice.compute}"
            )
        return self._column(_bare(word))

    def _instant(self, text: str) -> datetime:
        """Return the instant of a time; raise OptionError for a time without a zone: the session's is unknown."""
        try:
            instant = datetime.fromisoformat(text.strip())
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None:
            raise OptionError(f"{self._whose} has the time {text!r}: one such as '2026-01-31T12:00:00Z' is expected")
        return instant

    def _unquoted(self, word: str) -> str:
        """Return a text with its escapes replaced; raise OptionError for an escape that is not supported."""
        for match in _QUOTED.finditer(word):
            is_octal = match[1] == "0" and word[match.end() : match.end() + 1].isdecimal()
            if match[1] is not None and (match[1] not in _ESCAPED or is_octal):
                raise OptionError(f"{self._whose} has {match[0]!r} in a text: a backslash is written as two")
        return _QUOTED.sub(lambda match: "'" if match[1] is None else _ESCAPED[match[1]], word)

    def _column(self, word: str) -> Node:
        """Return the column of a name, or of a side's name, a dot and a name."""
        if len(self._sides) > 1 and self._accept("."):
            if self._kind != "name":
                self._refuse()
            name = _bare(self._token)
            self._at += 1
            side = next((at for at, (called, _) in enumerate(self._sides) if called == word), None)
            if side is None:
                called = " and ".join(name for name, _ in self._sides)
                raise OptionError(f"{self._whose} names a side {word!r}, the sides are {called}")
            return self._of(side, name)
        holding = [at for at, (_, schema) in enumerate(self._sides) if word in schema.names]
        if len(holding) == 2:
            called = " or ".join(f"{name}.{word}" for name, _ in self._sides)
            raise OptionError(f"{self._whose}: both sides have a column {word!r}, write {called}")
        return self._of(holding[0] if holding else None, word)

    def _of(self, side: int | None, name: str) -> Node:
        sides = self._sides if side is None else [self._sides[side]]
        known = list(dict.fromkeys(column for _, schema in sides for column in schema.names))
        if side is None or name not in known:
            hint = nearest(name, known)
            advice = f"did you mean {hint!r}?" if hint else f"there are {', '.join(known)}"
            if name.lower() in _NOT_KNOWN:
                self._refuse(name)
            name_advice = self._advice.name_advice.replace("NAME", name)
            raise OptionError(f"{self._whose} names a column {name!r} that is not there; {advice}{name_advice}")
        return Column(side, name)


def _balanced(function: str, nodes: Sequence[Node]) -> Node:
    """Join many nodes by an associative function, in a balanced tree: it stays flat."""
    if len(nodes) == 1:
        return nodes[0]
    half = len(nodes) // 2
    return FunctionCall(function, (_balanced(function, nodes[:half]), _balanced(function, nodes[half:])))


def _depth(tree: Node) -> int:
    levels, depth = [tree], 0
    while levels:
        depth += 1
        levels = [inner for one in levels if isinstance(one, FunctionCall) for inner in one.arguments]
    return depth


def _number(word: str) -> int | Decimal:
    return int(word) if word.isdecimal() and len(word) <= _WHOLE_DIGITS else Decimal(word)


def _bare(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word
