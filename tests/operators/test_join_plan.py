"""What is wrong with a join is told when the plan is built; what follows from its bounds; what its condition means."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.expressions.condition import Condition
from keyedwm.operators.join import exchange_side, side_buffer
from keyedwm.operators.join.bounds import Bound, TimeBounds
from keyedwm.operators.join.exchange_side import same_keys
from keyedwm.operators.join.operator import JoinOperator
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.state.store import MemoryStore, StateLimits
from tests.operators.joins import SCHEMAS, DrivenJoin, Mark, Row, Rows, plan_of, table

TEN = (Bound(0, 0, 0, 10),)
NAN = float("nan")


def side(name: str, *, axis: str = "", on: tuple[str, ...] = ("k",), schema: pa.Schema = SCHEMAS[0]) -> JoinInputSpec:
    return JoinInputSpec(name, schema, on, (Axis(axis or name, 0),))


WRONG = {
    "nothing bounds how far r0 may be ahead of l0": lambda: plan_of([Bound(0, 0, 0, None)]),
    "nothing bounds how far r0 may be behind l0": lambda: plan_of([Bound(0, 0, None, 5)]),
    "the time bound from 5 ms to 4 ms is empty": lambda: plan_of([Bound(0, 0, 5, 4)]),
    "it must be within": lambda: plan_of([Bound(0, 0, 0, 2**60)]),
    "the time bounds contradict each other": lambda: plan_of(
        [Bound(0, 0, 0, 1), Bound(0, 1, 50, 60), Bound(1, 0, 0, 1), Bound(1, 1, 0, 1)], (2, 2)
    ),
    "both sides have a time axis called 'at'": lambda: JoinPlan(
        left=side("l", axis="at"), right=side("r", axis="at"), bounds=TEN
    ),
    "has no column 'z' to join on, it has k, n, v": lambda: side("l", on=("z",)),
    "of type list<item: int64>, which cannot be joined on": lambda: side(
        "l", schema=pa.schema([("k", pa.list_(pa.int64()))])
    ),
    **{
        f"of type {kind}, which cannot be joined on": lambda kind=kind: side("l", schema=pa.schema([("k", kind)]))
        for kind in (pa.float16(), pa.month_day_nano_interval(), pa.string_view(), pa.binary_view())
    },
    "'k' of the l side is of type string and 'k' of the r side of type int64: cast": lambda: JoinPlan(
        left=side("l"), right=side("r", schema=pa.schema([("k", pa.int64())])), bounds=TEN
    ),
    "the result would have two columns called 'v_l'": lambda: JoinPlan(
        left=side("l", schema=pa.schema([("k", pa.string()), ("v", pa.int64()), ("v_l", pa.int64())])),
        right=side("r"),
        bounds=TEN,
    ),
    "a column cannot be called '__x'": lambda: JoinPlan(
        left=side("l", schema=pa.schema([("k", pa.string()), ("__x", pa.int64())])), right=side("r"), bounds=TEN
    ),
    "a column cannot be called '__hash'": lambda: JoinPlan(
        left=side("l"),
        right=side("r", schema=pa.schema([("k", pa.string()), ("__hash", pa.int64())])),
        bounds=TEN,
        how=How.LEFT_SEMI,
    ),
    "names a column 'vv' that is not there; did you mean 'v'": lambda: plan_of(TEN, condition="vv < w"),
    "both sides have a column 'n', write left.n or right.n": lambda: plan_of(TEN, condition="n = 1"),
    "names a side 'up', the sides are left and right": lambda: plan_of(TEN, condition="up.n = 1"),
    "< does not take string and int64; cast the column before": lambda: plan_of(TEN, condition="left.k < v"),
    "is of type int64, a comparison is expected": lambda: plan_of(TEN, condition="v + w"),
    "cannot be read at '/ 2 = w': comparisons of columns and literals": lambda: plan_of(TEN, condition="v / 2 = w"),
    "cannot be read at 'its end'": lambda: plan_of(TEN, condition="v <"),
    "names no column": lambda: plan_of(TEN, condition="1 = 1"),
    "the text of a comparison is expected": lambda: plan_of(TEN, condition=5),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_plan_is_refused_in_one_sentence(sentence):
    with pytest.raises(OptionError, match=re.escape(sentence)) as error:
        WRONG[sentence]()
    assert "\n" not in error.value.message


def test_bounds_follow_from_one_another():
    bounds = TimeBounds(["a", "b"], ["x", "y"], [Bound(0, 0, 0, 5), Bound(0, 1, 2, 9), Bound(1, 0, -1, 1)])
    # y - b = (y - a) + (a - x) + (x - b), each within its own bounds.
    assert bounds.least[1][3] == 2 - 5 - 1
    assert -bounds.least[3][1] == 9 - 0 + 1
    assert bounds.main == Bound(1, 0, -1, 1)


def test_an_axis_that_no_bound_points_at_has_no_watermark_in_the_result():
    plan = plan_of([Bound(0, 0, 0, 5), Bound(1, 0, 0, None)], (2, 1))
    assert plan.watermark_columns == ["watermark_l0", "watermark_r0"]
    assert plan.result_schema.names[-3:] == ["event_time_l0", "event_time_l1", "event_time_r0"]


def test_columns_of_equal_names_get_the_name_of_their_side_and_equal_keys_are_one():
    assert plan_of(TEN).result_schema.names[:5] == ["k", "n_left", "v", "n_right", "w"]
    assert plan_of(TEN, how=How.LEFT_ANTI).result_schema.names == ["k", "n", "v", "event_time_l0"]


TRUE_FOR = {
    "a < b": [(1, 2)],
    "a <= b AND a >= b": [(2, 2)],
    "NOT a = b": [(1, 2), (3, 2)],
    "a = b OR a IS NULL": [(2, 2), (None, 2)],
    "a + 1 = b * 1 - 0": [(1, 2)],
    "left.a BETWEEN 2 AND `right`.b": [(2, 2)],
    "a NOT BETWEEN 2 AND b": [(1, 2), (3, 2)],
    "-(a) < -2.5": [(3, 2)],
    "b IS NOT NULL and not (a <> b)": [(2, 2)],
}


@pytest.mark.parametrize("text", TRUE_FOR)
def test_a_condition_is_read_as_sql(text):
    pairs = [(1, 2), (2, 2), (3, 2), (None, 2), (2, None)]
    schemas = (("left", pa.schema([("a", pa.int64())])), ("right", pa.schema([("b", pa.int64())])))
    left, right = (pa.array(column, pa.int64()) for column in zip(*pairs, strict=True))
    condition_values = Condition.parse(text, *schemas).holds({"a": left}, {"b": right})
    assert [pair for pair, holds in zip(pairs, condition_values, strict=True) if holds] == TRUE_FOR[text]


def test_nan_is_equal_to_itself_and_above_every_number_as_in_spark():
    schemas = (("left", pa.schema([("a", pa.float64())])), ("right", pa.schema([("b", pa.float64())])))
    left, right = pa.array([NAN, NAN, 1.0, -0.0, -2.0]), pa.array([NAN, 1.0, NAN, 0.0, -1.0])
    answers = {
        text: Condition.parse(text, *schemas).holds({"a": left}, {"b": right}).tolist()
        for text in ("a = b", "a > b", "a < b")
    }
    assert answers == {
        "a = b": [True, False, False, True, False],
        "a > b": [False, True, False, False, False],
        "a < b": [False, False, True, False, True],
    }
    assert same_keys([left], [right], len(left)).tolist() == answers["a = b"]


def test_a_sum_that_overflows_ends_the_query():
    join = DrivenJoin(plan_of(TEN, condition="v + w > 0"))
    join.step(Rows(LEFT, (Row("a", 1, 2**63 - 1, (5,)),)))
    with pytest.raises(InputError, match="overflow"):
        join.step(Rows(RIGHT, (Row("a", 1, 1, (5,)),)))


def test_late_rows_end_the_query_when_asked_for():
    join = DrivenJoin(plan_of(TEN, late=LatePolicy.FAIL))
    join.step(Mark(LEFT, 0, 10))
    with pytest.raises(InputError, match=r"1 rows were late \(earliest: 9 ms\), behind the watermark of 10 ms"):
        join.step(Rows(LEFT, (Row("a", 1, 1, (9,)), Row("a", 1, 1, (10,)))))


def test_keys_of_equal_hash_are_compared(monkeypatch):
    for module in (exchange_side, side_buffer):
        monkeypatch.setattr(module, "key_hashes", lambda _, rows: pa.array([7] * rows, pa.int64()).to_numpy())
    monkeypatch.setattr("tests.operators.joins.key_hashes", exchange_side.key_hashes)
    join = DrivenJoin(plan_of(TEN, how=How.LEFT), restarts=True)
    join.step(Rows(LEFT, tuple(Row(key, 1, 1, (5,)) for key in ("a", "b"))))
    result_rows = join.step(Rows(RIGHT, (Row("b", 1, 2, (5,)), Row("c", 1, 3, (5,)))))
    assert [(row["k"], row["w"]) for row in result_rows] == [("b", 2)]


def test_a_hot_key_leaves_in_pieces():
    plan = plan_of(TEN)
    join = DrivenJoin(plan, limits=StateLimits(result_rows=7))
    join.step(Rows(LEFT, tuple(Row("a", at, at, (5,)) for at in range(10))))
    outputs = list(join.operator.on_rows(RIGHT, table(plan, RIGHT, [Row("a", at, at, (5,)) for at in range(10)]), None))
    assert [one.rows.num_rows for one in outputs] == [7] * 14 + [2]
    assert len({(row["v"], row["w"]) for one in outputs for row in one.rows.to_pylist()}) == 100


class RecordingStore:
    """A store that tells what was read."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.reads: list[str] = []

    @property
    def sizes(self):
        return self._store.sizes

    def get(self, name: str) -> bytes:
        self.reads.append(name)
        return self._store.get(name)


def test_small_slices_are_merged_and_only_those_in_reach_are_read():
    join = DrivenJoin(plan_of((Bound(0, 0, 0, 0),)), restarts=True)
    for at in range(100):
        join.step(Rows(LEFT, (Row("a", at, at, (at,)),)))
        assert len([name for name in join.store.blobs if name.startswith("left")]) <= 16
    recording_store = RecordingStore(join.store)
    rows = table(join.plan, RIGHT, [Row("a", 1, 1, (99,))])
    outputs = list(JoinOperator(join.plan, recording_store).on_rows(RIGHT, rows, None))
    assert [one.rows.num_rows for one in outputs] == [1]
    assert len(recording_store.reads) == 2  # the note, and the slice of the last row


def test_state_of_another_plan_is_refused():
    join = DrivenJoin(plan_of(TEN), restarts=True)
    join.step(Mark(LEFT, 0, 10))
    with pytest.raises(FormatError, match="belongs to plan"):
        JoinOperator(plan_of(TEN, how=How.LEFT), join.store)
