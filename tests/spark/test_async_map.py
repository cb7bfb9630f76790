"""A coroutine over the event rows: nothing is lost, control rows keep their place, and what fails says which rows.

Calls are let go by events and by each other, never by time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Lock

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from keyedwm.arrow.control_rows import control_array, control_rows
from keyedwm.arrow.schema import row_schema
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.operators.process.async_calls import AsyncCalls, CallError
from keyedwm.spark import aggregate, async_map, reason, tumbling
from keyedwm.spark import sum as total
from keyedwm.spark.hosting.async_rows import AsyncRows, kept_columns
from tests.spark.started import AHEAD, event, keyed, panes, steer

GIVEN = row_schema([""], headers=False, control=True)
COLUMNS = pa.schema([("offset", pa.int64()), ("twice", pa.int64())])


def events(*offsets: int, watermark_ms: int = 0) -> pa.RecordBatch:
    """Event rows of channel t-0, each a millisecond after the other."""
    number = len(offsets)
    given = {
        "key": [b"k"] * number,
        "value": [b"v"] * number,
        "topic": ["t"] * number,
        "partition": [0] * number,
        "offset": offsets,
        "event_time": [offset * 1_000 for offset in offsets],
        "watermark": [watermark_ms * 1_000] * number,
    }
    arrays = [
        pa.array(given[field.name], pa.int64()).cast(field.type)
        if field.name in given and pa.types.is_timestamp(field.type)
        else pa.array(given.get(field.name, [None] * number), field.type)
        for field in GIVEN
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=GIVEN)


def control(kind: ControlKind, offset: int, watermark_ms: int | None = None) -> pa.RecordBatch:
    key = 0 if kind is ControlKind.WATERMARK else None
    of_barrier = {"snapshot": 1, "channels": 1} if kind is ControlKind.BARRIER else {}
    row = ControlRow(
        kind=kind, key=key, watermark_ms=watermark_ms, channel="t-0", source="s", offset=offset, **of_barrier
    )
    arrays = [
        control_array([row]) if field.name == "control"
        else pa.array([offset], field.type) if field.name == "offset"
        else pa.nulls(1, field.type)
        for field in GIVEN
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=GIVEN)


BARRIER = control(ControlKind.BARRIER, 99)


def doubled(rows: pa.Table) -> pa.Table:
    return rows.append_column("twice", pa.array([2 * one for one in rows["offset"].to_pylist()]))


async def at_once(rows: pa.Table) -> pa.Table:
    return doubled(rows)


def ran(fn, batches, *, ordered=True, capacity=4, rows_per_call=2, timeout_ms=120_000) -> list:
    """What leaves, in order: the offset of an event row, (kind, watermark) of a control row."""
    hidden = tuple(name for name in kept_columns(GIVEN) if name != "event_time")
    calls = AsyncCalls(
        run=fn, ordered=ordered, capacity=capacity, timeout_ms=timeout_ms, name="fn", hidden_columns=hidden
    )
    task = AsyncRows(calls, GIVEN, COLUMNS, rows_per_call)
    left: list = []
    for batch in task(iter(batches)):
        assert batch.schema == task.result
        rows = pa.Table.from_batches([batch])
        for at, row in enumerate(rows.to_pylist()):
            if row["control"] is None:
                assert row["twice"] == 2 * row["offset"]
                left.append(row["offset"])
            else:
                (read,) = control_rows(rows.slice(at, 1))
                left.append((read.kind, read.watermark_ms, read.offset))
    return left


class Gate:
    """A coroutine whose call with `offset` returns after the call with `after` has returned."""

    def __init__(self, offset: int, after: int) -> None:
        self._offset, self._after = offset, after
        self.started: list[int] = []
        self.is_closed = False

    async def __call__(self, rows: pa.Table) -> pa.Table:
        if not self.started:
            self._opened = asyncio.Event()
        first = rows["offset"][0].as_py()
        self.started.append(first)
        if first == self._offset:
            await self._opened.wait()
        if first == self._after:
            self._opened.set()
        return doubled(rows)

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("ordered", "left"), [(True, [0, 1, 2, 3, 4]), (False, [2, 3, 4, 0, 1])])
def test_calls_run_together_and_results_keep_their_order_if_asked(ordered, left):
    gate = Gate(0, after=4)
    found = ran(gate, [events(0, 1, 2, 3, 4), BARRIER], ordered=ordered)
    assert found == [*left, (ControlKind.BARRIER, None, 99)]
    assert gate.started == [0, 2, 4]
    assert gate.is_closed


def test_a_result_overtakes_a_control_row_only_unordered_and_a_control_row_nothing():
    watermark = control(ControlKind.WATERMARK, 2, 5)
    batches = [events(0, 1), watermark, events(2, 3), BARRIER]
    told = [(ControlKind.WATERMARK, 5, 2), (ControlKind.BARRIER, None, 99)]
    assert ran(Gate(0, after=2), batches) == [0, 1, told[0], 2, 3, told[1]]
    assert ran(Gate(0, after=2), batches, ordered=False) == [2, 3, 0, 1, *told]


def test_no_more_calls_run_at_once_than_the_capacity():
    running: list[int] = []
    most: list[int] = []

    async def counted(rows):
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0)
        running.pop()
        return doubled(rows)

    offsets = list(range(40))
    for ordered in (True, False):
        assert sorted(ran(counted, [events(*offsets)], capacity=3, rows_per_call=1, ordered=ordered)) == offsets
    assert max(most) <= 3


def test_a_call_spans_no_two_watermarks_and_its_rows_keep_theirs():
    sizes: list[int] = []

    async def sized(rows):
        sizes.append(rows.num_rows)
        assert "watermark" not in rows.column_names
        assert "control" not in rows.column_names
        return doubled(rows)

    hidden = ("watermark", "control")
    calls = AsyncCalls(run=sized, ordered=True, capacity=2, timeout_ms=600_000, name="fn", hidden_columns=hidden)
    batches = [events(0, 1, watermark_ms=7), events(2, watermark_ms=8)]
    made = pa.Table.from_batches(AsyncRows(calls, GIVEN, COLUMNS, 1_000)(iter(batches)))
    assert sorted(sizes) == [1, 2]
    assert made["watermark"].cast(pa.int64()).to_pylist() == [7_000, 7_000, 8_000]
    assert made["event_time"].cast(pa.int64()).to_pylist() == [0, 1_000, 2_000]


def test_times_in_another_zone_than_utc_are_taken():
    def zoned(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([(field.name, zoned(field.type)) for field in kind])
        return pa.timestamp("us", "Europe/Berlin") if pa.types.is_timestamp(kind) else kind

    given = pa.schema([(field.name, zoned(field.type)) for field in GIVEN])
    batches = [pa.Table.from_batches([one]).cast(given).to_batches()[0] for one in (events(0, 1), BARRIER)]
    assert ran(at_once, batches) == [0, 1, (ControlKind.BARRIER, None, 99)]


def test_the_words_of_a_call_that_fails_are_short_and_steer_no_terminal():
    async def fails(_rows):
        raise ValueError("\x1b[2J\u202e" + "a server's page " * 100_000)

    with pytest.raises(CallError, match=r"failed: ValueError: \\x1b\[2J\\u202ea server's page") as caught:
        ran(fails, [events(0, 1)])
    assert len(caught.value.message) < 800
    assert caught.value.message.isprintable()


def test_a_call_that_fails_names_its_rows():
    async def fails(rows):
        if 2 in rows["offset"].to_pylist():
            raise ValueError("no price\nfor it")
        return doubled(rows)

    said = (
        r"async_map: the call of fn with 2 rows, t-0 at offset 2 to t-0 at offset 3 failed: ValueError: no price for it"
    )
    with pytest.raises(CallError, match=said):
        ran(fails, [events(0, 1, 2, 3)])


def test_a_call_that_takes_too_long_names_its_rows_and_is_cancelled():
    cancelled: list[bool] = []

    async def never(rows):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return rows

    with pytest.raises(CallError, match=r"1 row, t-0 at offset 7 to .* gave no result within timeout=20 ms: raise the"):
        ran(never, [events(7)], timeout_ms=20)
    assert cancelled == [True]


def test_other_calls_are_cancelled_and_the_object_is_closed_when_one_fails():
    class Fails:
        closed = 0
        cancelled = 0

        async def __call__(self, rows):
            if rows["offset"][0].as_py():
                raise ValueError("no")
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1

        async def aclose(self):
            self.closed += 1

    fn = Fails()
    with pytest.raises(CallError):
        ran(fn, [events(0, 1, 2)])
    assert (fn.closed, fn.cancelled) == (1, 1)


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(3), "SystemExit: 3"), (KeyboardInterrupt(), "Keyb"), (SilentError(), "SilentError: it cannot say")],
)
def test_an_error_that_ends_programs_or_has_no_words_is_told_like_any_other(error, said):
    async def fails(_rows):
        raise error

    with pytest.raises(CallError, match=f"t-0 at offset 1 failed: {said}"):
        ran(fails, [events(0, 1)])


def test_a_coroutine_that_cancels_whatever_runs_is_told_at_once():
    async def cancels(rows):
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)
        return rows

    with pytest.raises(CallError, match="was cancelled"):
        ran(cancels, [events(0, 1)])


def test_an_object_that_cannot_be_closed_is_one_sentence_and_hides_no_failed_call():
    class Unclosed:
        error: Exception | None = None

        async def __call__(self, rows):
            if self.error is not None:
                raise self.error
            return doubled(rows)

        async def aclose(self):
            raise ValueError("still in use")

    with pytest.raises(CallError, match="aclose of fn failed: ValueError: still in use"):
        ran(Unclosed(), [events(0, 1)])
    failing = Unclosed()
    failing.error = KeyError("first")
    with pytest.raises(CallError, match="failed: KeyError: 'first'"):
        ran(failing, [events(0, 1)])


def test_an_object_whose_call_is_inherited_or_partial_is_a_coroutine(spark):
    class Child(Gate):
        pass

    frame = spark.createDataFrame([], "a int, event_time timestamp, watermark timestamp")
    for fn in (Child(0, after=4), partial(Child(0, after=4))):
        assert async_map(frame, fn, "a int").columns == ["a", "event_time", "watermark"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda rows: rows.num_rows, "fn returned int for 1 row, t-0 at offset 7 to .*: an Arrow table is expected"),
        (lambda rows: rows, "offset, twice, event_time are expected, each once, and twice is missing or there twice"),
        (lambda rows: doubled(rows).drop_columns(["event_time"]), "event_time is missing"),
        (lambda rows: rows.append_column("twice", pa.array(["x"])), "does not fit its schema, for 1 row"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_one_sentence(answer, said):
    async def answers(rows):
        return answer(rows)

    with pytest.raises(InputError, match=said):
        ran(answers, [events(7)])


def test_nulls_in_a_column_that_has_none_are_one_sentence():
    async def nothing(rows):
        return rows.append_column("twice", pa.nulls(rows.num_rows, pa.int64()))

    calls = AsyncCalls(
        run=nothing, ordered=True, capacity=1, timeout_ms=600_000, name="fn", hidden_columns=("control",)
    )
    task = AsyncRows(calls, GIVEN, pa.schema([pa.field("twice", pa.int64(), nullable=False)]), 1)
    with pytest.raises(InputError, match="fn returned nulls in 'twice', which its schema has as NOT NULL, for 1 row"):
        list(task([events(7)]))


def test_a_batch_without_rows_asks_nothing():
    assert ran(at_once, [events()]) == []


def test_a_coroutine_may_return_fewer_rows_or_none():
    async def first(rows):
        return doubled(rows).slice(0, 1 if rows["offset"][0].as_py() else 0)

    assert ran(first, [events(0, 1, 2, 3), BARRIER]) == [2, (ControlKind.BARRIER, None, 99)]


def plain(rows):
    return rows


async def of_nothing():
    return None


async def of_more(rows, client):
    return rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fn": plain}, "async_map: fn=plain: a coroutine is expected"),
        ({"fn": Gate}, "async_map: fn=Gate: a coroutine is expected"),
        ({"fn": of_nothing}, "async_map: fn=of_nothing cannot be called with the rows alone"),
        ({"fn": of_more}, "missing a required argument: 'client'.: write `async def fn.rows.`, and bind other"),
        ({"fn": partial(of_more, client=Lock())}, "fn=of_more cannot be sent to Spark's workers .*lock"),
        ({"fn": 3}, "async_map: fn=3: a coroutine is expected"),
        ({"df": 1}, "async_map: df=1: a frame, or keyedwm.spark.kafka.*, is expected"),
        ({"schema": "a strin"}, "async_map: schema='a strin' is no schema of Spark"),
        ({"schema": "a int, event_time timestamp"}, "a result column cannot be called 'event_time'"),
        ({"capacity": 0}, "option capacity: '0' is wrong; a whole number of at least 1 is expected"),
        ({"timeout": "soon"}, "option timeout: 'soon' is wrong"),
        ({"timeout": "0 s"}, "async_map: timeout='0 s': a time in which a call can answer is expected"),
        ({"rows_per_call": 0}, "option rows_per_call: '0' is wrong"),
        ({"ordered": "yes"}, "async_map: ordered='yes': True or False is expected"),
    ],
)
def test_a_wrong_call_is_one_sentence(spark, change, said):
    frame = spark.createDataFrame([], "a int, event_time timestamp, watermark timestamp")
    given = {"df": frame, "fn": partial(at_once), "schema": "a int"} | change
    with pytest.raises(OptionError, match=said):
        async_map(**given)


def test_windows_over_it_close_and_a_failure_is_one_sentence(topic_of, load, started, bucket_conf):
    async def enriched(rows):
        import pyarrow.compute as pc

        await asyncio.sleep(0)
        if 13 in rows["v"].to_pylist():
            raise ValueError("no price for 13")
        return rows.append_column("w", pc.multiply(rows["v"], 10))

    topic = topic_of(2)
    frame = async_map(keyed(load(topic, idleTimeout="none")), enriched, "offset long, k string, w long", ordered=False)
    query = started(aggregate(frame, "k", tumbling("10 seconds"), {"n": total("w")}))
    query.give(topic, [AHEAD, event(1_000, "a", 1), event(2_000, "b", 2), event(3_000, "a", 3)])
    made = query.give(topic, [steer(10_000)])
    assert sorted(panes(made)) == [(0, 10_000, "a", 40), (0, 10_000, "b", 20)]
    with pytest.raises(StreamingQueryException) as failed:
        query.give(topic, [event(12_000, "a", 13)])
    assert f"1 row, {topic}-0 at offset 4 to {topic}-0 at offset 4 failed: ValueError: no price" in reason(failed.value)
