"""Random conditions, evaluated by us and by Spark over a table of odd values.

By command: `python -m tests.spark.conditions --count 5000 --seed 1`. A result is true or not, or that Spark ends the
query (an overflow).
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.expressions.advice import Advice
from keyedwm.expressions.condition import Condition, _value
from keyedwm.expressions.evaluation import Value, _decimal
from keyedwm.expressions.parser import parsed

ROWS = 40
_A_SELECT = 100  # conditions: Spark analyses so many at once in little time
_WHOLE = {"b": pa.int8(), "h": pa.int16(), "i": pa.int32(), "l": pa.int64()}
_FLOATS = {"f": pa.float32(), "x": pa.float64()}
_DECIMALS = {
    "d5": pa.decimal128(5, 2),
    "d18": pa.decimal128(18, 6),
    "d38": pa.decimal128(38, 10),
    "d0": pa.decimal128(38, 0),
}
_TIMES = {"day": pa.date32(), "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")}
_TEXTS = {"s": pa.string(), "r": pa.string(), "bytes": pa.binary()}
NUMBERS = (*_WHOLE, *_FLOATS, *_DECIMALS)
SCHEMA = pa.schema([*(_WHOLE | _FLOATS | _DECIMALS | _TIMES | _TEXTS | {"t": pa.bool_(), "u": pa.bool_()}).items()])
LITERALS = (
    "0", "1", "-1", "2", "127", "32768", "2147483647", "-2147483648", "2147483648", "16777217", "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "99999999999999999999", "0.1", "0.10", ".5",
    "1.", "-0.25", "1.005", "16777217.5", "0.0000001", "12345678901234567890.123456789",
)  # fmt: skip
# Spark would compile for minutes what it evaluates once.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPARE = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_OF_OTHER_TYPES = (
    "s r", "s bytes", "bytes r", "t u", "day day", "at at", "local local", "local day", "s 'a'", "'é' r",
    "t true", "bytes 'ab'",
)  # fmt: skip
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_NAME = re.compile(r"[a-z]\w*")


@dataclass(frozen=True)
class Asked:
    """ours: a text. value: the same for Spark, null where it overflows. fails: where Spark would end the query."""

    ours: str
    value: str
    fails: str = "false"


_DAYS = [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]
_MOMENTS = [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc),
            datetime(2024, 2, 29, tzinfo=timezone.utc)]  # fmt: skip
_WORDS = ["", "a", "A", "b", "ab", "é", "\uffff", "\U0001f600", "'"]
_OTHERS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False], pa.date32(): _DAYS, pa.string(): _WORDS, pa.binary(): [word.encode() for word in _WORDS],
    _TIMES["at"]: _MOMENTS, _TIMES["local"]: [moment.replace(tzinfo=None) for moment in _MOMENTS],
}  # fmt: skip


def odd_value(rng: random.Random, name: str) -> Any:
    """One value of a column, null now and then."""
    if rng.random() < 0.12:
        return None
    kind = SCHEMA.field(name).type
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return rng.choice(
            [0, 1, -1, most - 1, -most, most - 2, most // 2, rng.randrange(-most, most), rng.randrange(-9, 9)]
        )
    if pa.types.is_floating(kind):
        widest = 3.4028234663852886e38 if pa.types.is_float32(kind) else 1.7976931348623157e308
        odd = [
            0.0,
            -0.0,
            float("nan"),
            float("inf"),
            float("-inf"),
            widest,
            -widest,
            16777216.0,
            2.0**53,
            2.0**63,
            0.1,
            0.25,
        ]
        return rng.choice([*odd, rng.uniform(-9, 9), float(rng.randrange(-9, 9))])
    if pa.types.is_decimal(kind):
        digits = rng.choice([kind.precision, kind.precision - 1, kind.precision // 2, kind.scale, 1])
        unscaled = rng.choice([10**digits - 1, -(10**digits) + 1, rng.randrange(-(10**digits) + 1, 10**digits), 0, 1])
        return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -kind.scale))
    return rng.choice(_OTHERS[kind])


def odd_table(rng: random.Random) -> pa.Table:
    columns = [pa.array([odd_value(rng, name) for _ in range(ROWS)], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.table(columns, schema=SCHEMA)


def number(rng: random.Random, depth: int) -> Asked:
    kind = rng.random()
    if depth and kind < 0.5:
        one, sign, other = number(rng, depth - 1), rng.choice("+-*"), number(rng, depth - 1)
        if not _names_a_column(one) and not _names_a_column(other):
            other = Asked(*[rng.choice(NUMBERS)] * 2)  # literals that overflow are refused with the plan
        value = f"{_TRY[sign]}({one.value}, {other.value})"
        present = f"{one.value} IS NOT NULL AND {other.value} IS NOT NULL"
        fails = f"({_either_fails(one, other)} OR ({present} AND {value} IS NULL))"
        return Asked(f"({one.ours} {sign} {other.ours})", value, fails)
    if depth and kind < 0.6:
        name = rng.choice((*_WHOLE, *_FLOATS, "d5", "d18"))  # Spark rounds the others to 34 digits
        if name not in _WHOLE:
            return Asked(f"(-{name})", f"(-{name})")
        least = f"(cast({name} as bigint) = {-(2 ** (_WHOLE[name].bit_width - 1))})"
        return Asked(f"(-{name})", f"(CASE WHEN {least} THEN NULL ELSE -{name} END)", f"coalesce({least}, false)")
    word = rng.choice(LITERALS) if kind > 0.85 and depth < 2 else rng.choice(NUMBERS)
    return Asked(word, word)


def _names_a_column(asked: Asked) -> bool:
    return not set(SCHEMA.names).isdisjoint(_NAME.findall(asked.ours))


def _either_fails(one: Asked, other: Asked) -> str:
    """Spark does not look at the right side beside a null."""
    return f"({one.fails} OR ({one.value} IS NOT NULL AND {other.fails}))"


def _comparable(*texts: str) -> bool:
    """Whether Spark compares each text with the next one: it ends the query, or rounds, where 38 digits cannot hold two
    decimals, and takes `null < 9223372036854775808` for true.
    """
    nothing = [{name: pa.nulls(1, SCHEMA.field(name).type) for name in SCHEMA.names}]
    values = [_value(parsed(text, [("", SCHEMA)], "test", Advice()), nothing) for text in texts]
    return all(_are_comparable(*pair) for pair in pairwise(values))


def _are_comparable(one: Value, other: Value) -> bool:
    if pa.types.is_floating(one.data.type) or pa.types.is_floating(other.data.type):
        return True
    if _is_beyond(one) or _is_beyond(other):
        return not (pa.types.is_integer(one.data.type) or pa.types.is_integer(other.data.type))
    pair = _decimal(one).type, _decimal(other).type
    return max(of.precision - of.scale for of in pair) + max(of.scale for of in pair) <= 38


def _is_beyond(value: Value) -> bool:
    """Whether it is a literal of more than 64 bits."""
    return isinstance(value.data, pa.Scalar) and value.data.is_valid and not -(2**63) <= value.data.as_py() < 2**63


def comparison(rng: random.Random) -> Asked:
    while True:
        one, other, sign = number(rng, rng.choice([1, 1, 2])), number(rng, 1), rng.choice(_COMPARE)
        if _comparable(one.ours, other.ours):
            fails = _either_fails(one, other)
            return Asked(f"({one.ours} {sign} {other.ours})", f"({one.value} {sign} {other.value})", fails)


def between(rng: random.Random) -> Asked:
    while True:
        one, low, high = number(rng, 1), number(rng, 0), number(rng, 0)
        if _comparable(low.ours, one.ours, high.ours):
            text = f"({{}} {rng.choice(['', 'NOT '])}BETWEEN {low.ours} AND {high.ours})"
            return Asked(text.format(one.ours), text.format(one.value), one.fails)


def within(rng: random.Random) -> Asked:
    """Of a column, IN a list of literals."""
    while True:
        of, listed = rng.choice(NUMBERS), rng.sample(LITERALS, rng.randrange(1, 4))
        if _comparable(of, *listed) and all(_comparable(of, one) for one in listed):
            text = f"({of} {rng.choice(['', 'NOT '])}IN ({', '.join(listed)}))"
            return Asked(text, text)


def of_other_types(rng: random.Random) -> Asked:
    one, other = rng.choice(_OF_OTHER_TYPES).split()
    text = f"({one} {rng.choice(_COMPARE)} {other})"
    if rng.random() < 0.2:
        text = f"({rng.choice(['s', 'bytes'])} {rng.choice(['', 'NOT '])}IN ('a', '', 'é'))"
    return Asked(text, text)


def condition(rng: random.Random, depth: int) -> Asked:
    kind = rng.random()
    if depth and kind < 0.45:
        one, word, other = condition(rng, depth - 1), rng.choice(["AND", "OR"]), condition(rng, depth - 1)
        open_ = f"coalesce({one.value}, true)" if word == "AND" else f"NOT coalesce({one.value}, false)"
        fails = f"({one.fails} OR ({open_} AND {other.fails}))"
        return Asked(f"({one.ours} {word} {other.ours})", f"({one.value} {word} {other.value})", fails)
    if depth and kind < 0.55:
        inner = condition(rng, depth - 1)
        return Asked(f"NOT ({inner.ours})", f"(NOT {inner.value})", inner.fails)
    if kind < 0.62:
        word, of = rng.choice(["IS NULL", "IS NOT NULL"]), number(rng, 1)
        return Asked(f"({of.ours} {word})", f"({of.value} {word})", of.fails)
    if kind < 0.72:
        return rng.choice([between, within])(rng)
    return of_other_types(rng) if kind < 0.82 else comparison(rng)


def conditions(rng: random.Random, count: int) -> list[Asked]:
    """Conditions that name a column."""
    made: list[Asked] = []
    while len(made) < count:
        asked = condition(rng, 2)
        if _names_a_column(asked):
            made.append(asked)
    return made


def of_spark(spark: Any, table: pa.Table, asked: list[Asked]) -> Iterator[list[Any]]:
    """Each condition's results: of each row True, False (also where it is unknown) or "fails"."""
    frame = spark.createDataFrame(table)
    for at in range(0, len(asked), _A_SELECT):
        some = asked[at : at + _A_SELECT]
        for name, value in _INTERPRETED.items():
            spark.conf.set(name, value)
        try:
            told = frame.selectExpr(*[text for one in some for text in (one.fails, one.value)]).collect()
        finally:
            for name in _INTERPRETED:
                spark.conf.unset(name)
        for place, _ in enumerate(some):
            yield ["fails" if row[2 * place] else bool(row[2 * place + 1]) for row in told]


def of_ours(table: pa.Table, text: str) -> list[Any]:
    """The same by us; unknown is not told apart from false."""
    made = Condition.parse(text, ("", SCHEMA))
    columns = {name: table[name].combine_chunks() for name in made.columns[0]}
    try:
        return made.holds(columns).tolist()
    except InputError:
        return [_of_row(made, {name: column.slice(at, 1) for name, column in columns.items()}) for at in range(ROWS)]


def _of_row(made: Condition, row: dict[str, pa.Array]) -> Any:
    try:
        return bool(made.holds(row)[0])
    except InputError as error:
        return "fails" if "overflow in 1 rows" in str(error) else str(error)


def differences(spark: Any, seed: int, count: int) -> Iterator[str]:
    """Evaluate so many conditions in both ways; yield a line for each that differs."""
    rng = random.Random(seed)
    table, asked = odd_table(rng), conditions(rng, count)
    for text, told in zip([one.ours for one in asked], of_spark(spark, table, asked), strict=True):
        try:
            ours = of_ours(table, text)
        except Exception as error:  # noqa: BLE001  whatever comes is what differs
            yield f"seed {seed}: {text}: {type(error).__name__}: {str(error)[:200]}"
            continue
        for at, (mine, theirs) in enumerate(zip(ours, told, strict=True)):
            if mine != theirs:
                row = {name: table[name][at].as_py() for name in SCHEMA.names if name in _NAME.findall(text)}
                yield f"seed {seed}: {text}: row {row}: {mine}, Spark {theirs}"
                break


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.conditions")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR").getOrCreate()
    found = 0
    for at in range(0, given.count, 500):
        for line in differences(spark, given.seed + at // 500, min(500, given.count - at)):
            found += 1
            print(line)
    print(f"{given.count} conditions, {ROWS} rows each: {found} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
