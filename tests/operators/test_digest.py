"""Two plans with the same digest compute the same thing: versions of functions and changed fields change it.

State of 0.2.0 knows a user's functions by their byte-code; such a digest is still told, and accepted where it matches.
"""

from __future__ import annotations

import functools
import json
import math
import pickle
import re
from collections import Counter
from dis import opmap
from types import FunctionType

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.window_rules import Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan, tumbling
from keyedwm.operators.frames.rescale import FrameRescale
from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.panes import Early
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from tests.operators.streams import Event, plan_of, table

WINDOW = tumbling(10)
FACTOR = 2
PATTERN = re.compile("a+")
ROWS = table([Event("a", time_ms, time_ms, None, None, time_ms) for time_ms in (1, 2)])


def doubled(value):
    return FACTOR * value


def own_plan(**settings) -> WindowPlan:
    functions = {"create": int, "accumulate": lambda total, value: total + value, "combine": lambda a, b: a + b}
    own = agg.Aggregate(column="n", result=pa.int64(), **{**functions, **settings})
    return plan_of(WINDOW, aggregates=(("own", own),))


def digest(**functions) -> str:
    """The digest of 0.2.0."""
    (earlier,) = own_plan(**functions).earlier_digests
    return earlier


def compiled_otherwise(function):
    """The function as another Python might compile it: other byte-code that does the same."""
    code = function.__code__
    longer = code.replace(co_code=code.co_code + bytes([opmap["NOP"], 0]))
    return FunctionType(longer, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


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
def test_a_changed_function_changes_the_digest_of_0_2_0(change):
    before, after = CHANGES[change]
    assert digest(accumulate=before) != digest(accumulate=after)
    assert digest(accumulate=before) == digest(accumulate=before)


def test_a_changed_global_changes_the_digest_of_0_2_0(monkeypatch):
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
        sent_function = pickle.loads(cloudpickle.dumps(accumulate))  # noqa: S301  pickled here
        assert digest(accumulate=sent_function) == digest(accumulate=accumulate)


def test_a_recursive_function_and_a_class_as_a_function_have_a_digest():
    def count(total, value):
        return total if value <= 0 else count(total + 1, value - 1)

    assert digest(accumulate=count, create=Counter) != digest(accumulate=count, create=dict)


def test_a_function_whose_changes_0_2_0_could_not_notice_has_a_version_and_no_earlier_digest():
    lock = object()
    plan = own_plan(accumulate=lambda total, value: total if lock else value)
    assert plan.earlier_digests == ()
    assert plan.digest() == own_plan().digest()


def test_a_version_and_not_the_code_of_a_function_is_in_the_digest():
    assert own_plan(accumulate=scaled(2)).digest() == own_plan(accumulate=scaled(3)).digest()
    assert own_plan(version=2).digest() != own_plan().digest() == own_plan(version=1).digest()
    whole = window_function(len, pa.int64())
    assert whole.describe() == window_function(sorted, pa.int64()).describe()
    assert whole.describe() != window_function(len, pa.int64(), version=2).describe()


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (0, r"Aggregate\('n'\): version is 0, a whole number of at least 1 is expected"),
        ("2", r"Aggregate\('n'\): version is '2': a whole number is expected"),
    ],
)
def test_a_version_is_a_whole_number_from_1(version, sentence):
    with pytest.raises(OptionError, match=sentence):
        own_plan(version=version)


def held_by(plan: WindowPlan, version: str) -> MemoryStore:
    """The state that a plan leaves after some rows; version: that wrote it."""
    store = MemoryStore()
    operator = operator_of(plan, store)
    list(operator.on_rows(0, combine_rows(plan, ROWS), None))
    store.apply(operator.drain())
    if version == "0.2.0":
        note = json.loads(store.blobs[MANIFEST])
        del note["checksum"]
        store.blobs[MANIFEST] = json.dumps({**note, "plan": plan.earlier_digests[0]}).encode()
    return store


def totals(plan: WindowPlan, store: MemoryStore) -> list[int]:
    return [row for output in operator_of(plan, store).on_end() for row in output.rows["own"].to_pylist()]


def add(total, value):
    return total + value


@pytest.mark.parametrize("version", ["0.2.0", "now"])
def test_state_goes_on_with_the_same_functions(version):
    plan = own_plan(accumulate=add)
    assert totals(plan, held_by(plan, version)) == [3]


def test_state_goes_on_under_another_python_and_with_another_version_it_is_refused():
    plan, otherwise = own_plan(accumulate=add), own_plan(accumulate=compiled_otherwise(add))
    assert plan.earlier_digests != otherwise.earlier_digests
    assert totals(otherwise, held_by(plan, "now")) == [3]
    with pytest.raises(FormatError, match="belongs to plan"):
        totals(own_plan(accumulate=add, version=2), held_by(plan, "now"))


def test_state_of_0_2_0_under_another_python_is_refused_with_what_to_do_and_one_batch_of_the_old_one_is_enough():
    plan, otherwise = own_plan(accumulate=add), own_plan(accumulate=compiled_otherwise(add))
    store = held_by(plan, "0.2.0")
    with pytest.raises(FormatError, match=r"run the query for one batch with that Python and this keyedwm"):
        totals(otherwise, store)
    store.apply(operator_of(plan, store).drain())
    assert totals(otherwise, store) == [3]


def test_state_of_0_2_0_moves_to_other_buckets_by_its_digest():
    plan = own_plan(accumulate=add)
    facts = json.loads(held_by(plan, "0.2.0").blobs[MANIFEST])
    old = {"who": "w", "count": 1, "digest": facts["plan"], "description": None, "states": (facts,), "blobs": ((),)}
    rescale = FrameRescale(plan=plan, **old)
    assert all(name == was for name, was in rescale.columns.items())
    with pytest.raises(OptionError, match=r"state is of keyedwm 0\.2\.0"):
        FrameRescale(plan=own_plan(accumulate=scaled(2)), **old)


def test_another_field_under_the_same_name_of_a_key_changes_the_digest():
    plans = [
        plan_of(WINDOW, aggregates=(("rows", agg.count()),), read_from=fields)
        for fields in (("json:$.origin",), ("json:$.dest",), ())
    ]
    assert len({plan.digest() for plan in plans}) == 3


def test_digests_of_0_2_0_do_not_depend_on_what_classes_are_called_today():
    plans = {
        "sliding": plan_of(SlidingWindow(20, 10, 3), early=Early(rows=3)),
        "session": plan_of(SessionWindow(5, Touching.SEPARATE), lateness_ms=3),
    }
    digests = {name: plan.digest() for name, plan in plans.items()}
    assert digests == {"sliding": "b1d1e2b2bac87cbb", "session": "daeddaa0e890a467"}
