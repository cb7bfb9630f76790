"""Two plans with the same digest compute the same thing: changed functions and changed fields change it."""

from __future__ import annotations

import functools
import math
import pickle
import re
from collections import Counter

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import tumbling
from tests.operators.streams import plan_of

WINDOW = tumbling(10)
FACTOR = 2
PATTERN = re.compile("a+")


def doubled(value):
    return FACTOR * value


def digest(**functions) -> str:
    given = {"create": int, "accumulate": lambda total, value: total + value, "combine": lambda a, b: a + b}
    own = agg.Aggregate(column="n", result=pa.int64(), **{**given, **functions})
    return plan_of(WINDOW, aggregates=(("own", own),)).digest()


def scaled(factor):
    return lambda total, value: total + factor * value


def nested(limit):
    def accumulate(total, value):
        return total + sum(one for one in [value] if one < limit)

    return accumulate


CHANGES = {
    "a constant": (lambda total, value: total + 2 * value, lambda total, value: total + 3 * value),
    "an operation": (lambda total, value: total + value, lambda total, value: total - value),
    "a closure's number": (scaled(2), scaled(3)),
    "a closure's function": (scaled(len), scaled(abs)),
    "a default": (lambda total, value, by=1: total + by * value, lambda total, value, by=2: total + by * value),
    "a keyword's default": (lambda t, v, *, by=1: t + by * v, lambda t, v, *, by=2: t + by * v),
    "an attribute": (lambda _, value: math.floor(value), lambda _, value: math.ceil(value)),
    "a nested function": (nested(5), lambda total, value: total + sum(one for one in [value] if one <= 5)),
    "a nested function's closure": (nested(5), nested(6)),
    "an argument of partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "a global of another name": (lambda _, value: doubled(value), lambda _, value: FACTOR * value),
    "a pattern": (lambda t, v: t + len(PATTERN.findall(v)), lambda t, v: t + len(re.findall("a", v))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_function_changes_the_digest(change):
    before, after = CHANGES[change]
    assert digest(accumulate=before) != digest(accumulate=after)
    assert digest(accumulate=before) == digest(accumulate=before)


def test_a_changed_global_changes_the_digest(monkeypatch):
    of = {"create": int, "accumulate": lambda total, value: total + doubled(value)}
    before = digest(**of)
    assert digest(**of) == before
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert digest(**of) != before
    monkeypatch.setitem(globals(), "FACTOR", 2)
    monkeypatch.setitem(globals(), "doubled", lambda value: value + value)
    assert digest(**of) != before


def test_the_same_functions_built_twice_or_sent_to_another_process_have_one_digest():
    assert digest(accumulate=scaled(2)) == digest(accumulate=scaled(2))
    for accumulate in (scaled(2), nested(4), doubled):
        for _ in range(200):  # Python rewrites the code of a function that is called often
            accumulate(1, 1) if accumulate is not doubled else accumulate(1)
        sent = pickle.loads(cloudpickle.dumps(accumulate))  # noqa: S301  pickled here
        assert digest(accumulate=sent) == digest(accumulate=accumulate)


def test_a_recursive_function_and_a_class_as_a_function_have_a_digest():
    def count(total, value):
        return total if value <= 0 else count(total + 1, value - 1)

    assert digest(accumulate=count, create=Counter) != digest(accumulate=count, create=dict)


def test_a_function_whose_changes_cannot_be_noticed_is_refused():
    lock = object()
    with pytest.raises(OptionError, match=r"Aggregate\('n'\): accumulate uses <object object at .*>, .* plain value"):
        digest(accumulate=lambda total, value: total if lock else value)


def test_another_field_under_the_same_name_of_a_key_changes_the_digest():
    plans = [
        plan_of(WINDOW, aggregates=(("rows", agg.count()),), read_from=fields)
        for fields in (("json:$.origin",), ("json:$.dest",), ())
    ]
    assert len({plan.digest() for plan in plans}) == 3
