# ruff: noqa: ARG002  processors have the signatures of their base
"""A user's own operator: the same rows in every cut and after every restart; what it does wrong is one sentence."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore

SECOND_MS = 1_000
TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("event_time", TIMESTAMP), ("__time", pa.int64())])
RESULT = pa.schema([("id", pa.string()), ("n", pa.int64())])


class Deduplicate(Processor):
    """The first event of each id in each second of event time."""

    def on_rows(self, input_number, rows):
        ms = pc.cast(rows["event_time"], pa.int64()).to_numpy() // 1_000
        if self.watermark_ms is not None:
            in_time = ms >= self.watermark_ms
            self.late_rows += int((~in_time).sum())
            rows, ms = rows.filter(pa.array(in_time)), ms[in_time]
        for second in np.unique(ms // SECOND_MS).tolist():
            second_rows = rows.filter(pa.array(ms // SECOND_MS == second))
            seen_rows = self.state.read(f"seen-{second}")
            if seen_rows is not None:
                second_rows = second_rows.filter(pc.invert(pc.is_in(second_rows["id"], value_set=seen_rows["id"])))
            _, first = np.unique(second_rows["id"].to_numpy(), return_index=True)
            new = second_rows.take(pa.array(np.sort(first)))
            self.state.append(f"seen-{second}", new.select(["id"]))
            yield new

    def on_watermark(self, input_number, key, time_ms):
        for log in self.state.logs("seen-"):
            if int(log.removeprefix("seen-")) < time_ms // SECOND_MS:
                self.state.drop(log)
        return ()


class Longest(Processor):
    """A machine with a state of every kind: facts, a log that is replaced, a clock, and every call that there is."""

    uses_clock = True

    def on_rows(self, input_number, rows):
        self.state.facts["rows"] = self.state.facts.get("rows", 0) + rows.num_rows
        earlier_rows = self.state.read("longest")
        best = rows if earlier_rows is None else pa.concat_tables([earlier_rows, rows])
        self.state.replace("longest", best.sort_by([("n", "descending")]).slice(0, 1))
        return ()

    def _longest_row(self, label):
        best = self.state.read("longest")
        if best is not None:
            yield best.set_column(0, "id", pa.array([f"{label} {self.state.facts['rows']}"]))

    def on_watermark(self, input_number, key, time_ms):
        return self._longest_row(f"watermark {time_ms}")

    def on_idle(self, input_number):
        return self._longest_row("idle")

    def on_barrier(self, snapshot):
        return self._longest_row(f"barrier {snapshot}")

    def on_timer(self, now_ms):
        self.next_timer_ms = now_ms + 100
        return self._longest_row(f"timer {now_ms}")

    def output_watermark_ms(self, watermark_ms):
        return watermark_ms - 5


ONE = ProcessInput(schema=SCHEMA, by=("id",), time="__time")


def plan_of(make, **how) -> ProcessPlan:
    settings = {"inputs": (ONE,), "result": RESULT, "called": "Mine", "version": 1}
    return ProcessPlan(make=make, **(settings | how))


def table(events) -> pa.Table:
    ids, numbers, ms = zip(*events, strict=True)
    times = pa.array([one * 1_000 for one in ms], pa.int64()).cast(TIMESTAMP)
    return pa.table([pa.array(ids), pa.array(numbers, pa.int64()), times, pa.array(ms, pa.int64())], schema=SCHEMA)


class Restarted:
    """An operator that is built anew from its blobs for every batch."""

    def __init__(self, plan):
        self.plan, self.blobs, self.late_rows = plan, {}, 0

    def batch(self, *calls):
        operator = operator_of(self.plan, MemoryStore(dict(self.blobs)))
        result_rows = []
        for name, *arguments in calls:
            result_rows += [row for output in getattr(operator, name)(*arguments) for row in output.rows.to_pylist()]
        changes = operator.drain()
        self.blobs = {n: blob for n, blob in self.blobs.items() if n not in changes.removed} | dict(changes.blobs)
        self.late_rows += operator.late_rows
        self.operator = operator
        return result_rows


def stream(seed: int) -> list[tuple[str, int, int]]:
    """Ids that come again, in the same second and later."""
    rng = random.Random(seed)
    return [(f"id {rng.randrange(40)}", number, number * 20 + rng.randrange(200)) for number in range(400)]


@pytest.mark.parametrize("batches", [1, 3, 20, 400])
def test_neither_the_cut_nor_a_restart_after_each_batch_can_be_seen(batches, seed):
    events = stream(seed)
    again = Restarted(plan_of(Deduplicate))
    result_rows = []
    size = -(-len(events) // batches)
    for at in range(0, len(events), size):
        result_rows += again.batch(("on_rows", 0, table(events[at : at + size]), None))
    whole = Restarted(plan_of(Deduplicate)).batch(("on_rows", 0, table(events), None))
    assert sorted(result_rows, key=str) == sorted(whole, key=str)
    assert 40 < len(result_rows) < len(events)


def test_what_the_watermark_passes_is_forgotten_and_late_rows_are_counted(seed):
    events = stream(seed)
    again = Restarted(plan_of(Deduplicate))
    whole = Restarted(plan_of(Deduplicate)).batch(("on_rows", 0, table(events), None))
    result_rows = []
    for at in range(0, len(events), 20):
        result_rows += again.batch(("on_rows", 0, table(events[at : at + 20]), None), ("on_watermark", 0, 0, at * 20))
        assert len(again.operator._state.logs("seen-")) <= 4
    assert Counter(row["n"] for row in result_rows) == Counter(row["n"] for row in whole)
    again.batch(("on_rows", 0, table([("late", 1, 0)]), None))
    assert again.late_rows == 1


def test_every_call_reaches_the_processor_and_its_state_comes_back():
    again = Restarted(plan_of(Longest))
    assert again.batch(("on_rows", 0, table([("a", 3, 10), ("b", 9, 20)]), 500), ("on_timer", 500)) == [
        {"id": "timer 500 2", "n": 9}
    ]
    assert again.operator.next_timer_ms == 600
    assert again.batch(("on_timer", 599)) == []
    result_rows = again.batch(
        ("on_rows", 0, table([("c", 1, 30)]), 600), ("on_watermark", 0, 0, 25), ("on_watermark", 0, 0, 25),
        ("on_timer", 600), ("on_idle", 0), ("on_barrier", 7),
    )  # fmt: skip
    assert [row["id"] for row in result_rows] == ["watermark 25 3", "timer 600 3", "idle 3", "barrier 7 3"]
    assert again.operator.output_watermark_ms(25) == 20


def emitting(*tables) -> ProcessPlan:
    class Emitting(Processor):
        def on_rows(self, input_number, rows):
            return tables

    return plan_of(Emitting)


GOOD = table([("a", 1, 1)]).drop_columns(["__time"])


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([1], "Mine emitted list, Arrow tables are expected"),
        (GOOD.drop_columns(["n"]), "columns id, event_time, the result has id, n, and event_time is expected beside"),
        (GOOD.set_column(1, "n", pa.array(["x"])), "Mine emitted a table that does not fit"),
        (GOOD.set_column(2, "event_time", pa.nulls(1, TIMESTAMP)), "emitted rows without an event_time"),
    ],
)
def test_a_wrong_table_is_one_sentence(answer, sentence):
    with pytest.raises(InputError, match=sentence):
        Restarted(emitting(answer)).batch(("on_rows", 0, table([("a", 1, 1)]), None))


def test_state_that_cannot_be_written_is_one_sentence():
    class Wrong(Processor):
        def on_rows(self, input_number, rows):
            self.state.facts["x"] = {1, 2}
            return ()

    with pytest.raises(InputError, match=r"put something into state\.facts that JSON has no value for"):
        Restarted(plan_of(Wrong)).batch(("on_rows", 0, table([("a", 1, 1)]), None))

    class Misnamed(Processor):
        def on_rows(self, input_number, rows):
            self.state.append("note", rows)
            return ()

    with pytest.raises(FormatError, match="a log cannot be called 'note'"):
        Restarted(plan_of(Misnamed)).batch(("on_rows", 0, table([("a", 1, 1)]), None))


def once(action) -> ProcessPlan:
    class Once(Processor):
        uses_clock = True

        def on_rows(self, input_number, rows):
            action(self, rows)
            return ()

    return plan_of(Once)


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"by": {1: 2}}, "the key 1 is int, keys are texts"),
        ({"by": [{"x": {None: 2}}]}, "the key None is NoneType, keys are texts"),
        ({"x": CIRCLE}, "Circular reference detected"),
        ([1], "facts are list, a dict is expected"),
    ],
)
def test_facts_that_json_would_give_back_as_something_else_are_refused_before_they_are_written(facts, sentence):
    plan = once(lambda processor, _: setattr(processor.state, "facts", facts))
    with pytest.raises(InputError, match=re.escape(sentence)):
        Restarted(plan).batch(("on_rows", 0, table([("a", 1, 1)]), None))


def test_a_table_of_another_schema_is_refused_by_the_log_in_a_later_batch_and_in_the_same():
    def append(processor, rows):
        number = processor.state.facts["batch"] = processor.state.facts.get("batch", 0) + 1
        processor.state.append("log", rows.select(["id" if number % 2 else "n"]))

    wrong = Restarted(once(append))
    wrong.batch(("on_rows", 0, table([("a", 1, 1)]), None))
    sentence = r"the log 'log' would hold tables of several schemas \(id: string and n: int64\)"
    with pytest.raises(InputError, match=sentence):
        wrong.batch(("on_rows", 0, table([("a", 1, 1)]), None))
    again = Restarted(once(append))
    again.batch(("on_rows", 0, table([("a", 1, 1)]), None))
    again.operator._state.replace("log", table([("a", 1, 1)]).select(["n"]))  # all of it anew, so any schema will do
    again.operator._state.append("log", table([("a", 1, 1)]).select(["n"]))
    with pytest.raises(InputError, match=r"several schemas \(n: int64 and id: string\)"):
        again.operator._state.append("log", table([("a", 1, 1)]).select(["id"]))


def test_what_is_no_table_no_name_and_no_time_is_one_sentence():
    rows = ("on_rows", 0, table([("a", 1, 1)]), None)
    with pytest.raises(InputError, match="list was appended to the log 'log', an Arrow table is expected"):
        Restarted(once(lambda processor, rows: processor.state.append("log", rows.to_pylist()))).batch(rows)
    with pytest.raises(FormatError, match="a log cannot be called 5"):
        Restarted(once(lambda processor, rows: processor.state.append(5, rows))).batch(rows)
    with pytest.raises(InputError, match=r"Mine gave 5\.5 as next_timer_ms, a whole number of ms is expected"):
        Restarted(once(lambda processor, _: setattr(processor, "next_timer_ms", 5.5))).batch(rows)
    for answer, type_name in ((5, "int"), (pa.table({"id": ["a"]}), "Table"), ("text", "str")):
        processor_type = type("Mine", (Processor,), {"on_rows": lambda *_, answer=answer: answer})
        with pytest.raises(
            InputError, match=f"Mine answered with {type_name}: yield Arrow tables, or return a list of"
        ):
            Restarted(plan_of(processor_type)).batch(rows)
    with pytest.raises(InputError, match="Mine gave 'two' as late_rows, a whole number is expected"):
        Restarted(once(lambda processor, _: setattr(processor, "late_rows", "two"))).batch(rows)
    with_timer = Restarted(once(lambda processor, _: setattr(processor, "next_timer_ms", np.int64(5))))
    with_timer.batch(rows)
    assert with_timer.operator.next_timer_ms == 5


def test_state_of_another_version_is_refused():
    again = Restarted(plan_of(Deduplicate))
    again.batch(("on_rows", 0, table([("a", 1, 1)]), None))
    again.plan = plan_of(Deduplicate, version=2)
    with pytest.raises(FormatError, match="belongs to plan"):
        again.batch(("on_barrier", 1))
    with pytest.raises(OptionError, match="which cannot be a key"):
        replace(ONE, schema=pa.schema([("id", pa.list_(pa.string()))]))


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "processors.md"
SHOP = pa.schema([("shop", pa.string()), ("n", pa.int64()), ("event_time", TIMESTAMP), ("__time", pa.int64())])
TWO = (
    ProcessInput(schema=SHOP, by=("shop",), time="__time"),
    ProcessInput(schema=SHOP.remove(1), by=("shop",), time="__time"),
)
STATES = ("selling", "refunding")


def stretches() -> ProcessPlan:
    """The state machine of the page, over both inputs; its minutes have a second."""
    (block,) = (
        one
        for one in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        if "class Stret" in one
    )
    names: dict = {}
    exec(compile(block.replace("60_000", "1_000"), str(PAGE), "exec"), names)  # noqa: S102  our own docs
    result = pa.schema([("shop", pa.string()), ("state", pa.string()), ("began", TIMESTAMP)])
    return ProcessPlan(inputs=TWO, make=names["Stretches"], result=result, called="Stretches", version=1)


def two_streams(seed: int) -> list[tuple[int, tuple[str, int, int]]]:
    """Events of both inputs by time, each a little out of order."""
    rng = random.Random(seed)
    events = [(rng.randrange(2), (f"shop {rng.randrange(6)}", n, n * 20 + rng.randrange(80))) for n in range(400)]
    return [*events, (0, ("end", 400, 60_000)), (1, ("end", 401, 60_000))]


def rows_of(number: int, events) -> pa.Table:
    rows = table(events).rename_columns(SHOP.names)
    return rows.select(TWO[number].schema.names)


def run(events, size: int) -> list[dict]:
    """Run the events in batches of so many; an input that brings nothing in a batch tells nothing in it."""
    again = Restarted(stretches())
    result_rows = []
    for at in range(0, len(events), size):
        calls, then = [], []
        for number in (0, 1):
            input_events = [event for of, event in events[at : at + size] if of == number]
            if input_events:
                calls.append(("on_rows", number, rows_of(number, input_events), None))
                then.append(("on_watermark", number, 0, max(ms for *_, ms in input_events) - 80))
        result_rows += again.batch(*calls, *then, ("on_barrier", at))
    assert again.late_rows == 0
    return result_rows


@pytest.mark.parametrize("size", [1, 7, 50, 402])
def test_neither_the_cut_of_two_inputs_nor_a_restart_after_each_batch_can_be_seen(size, seed):
    events = two_streams(seed)
    result_rows = run(events, size)
    by_shop: dict[str, list[tuple[int, bool]]] = {}
    for number, (shop, _, ms) in events:
        by_shop.setdefault(shop, []).append((ms, number == 0))  # as the names of the states are sorted
    expected_stretches = []
    for shop, shop_states in by_shop.items():
        states = [(ms, sells) for ms, sells in sorted(shop_states) if ms < 59_000]
        begins = [states[0], *(then for now, then in pairwise(states) if now[1] != then[1])] if states else []
        expected_stretches += [(shop, STATES[not sells], ms) for (ms, sells), _ in pairwise(begins)]
    assert Counter(
        (row["shop"], row["state"], round(row["began"].timestamp() * 1_000)) for row in result_rows
    ) == Counter(expected_stretches)
    assert len(expected_stretches) > 100


def test_the_watermark_is_the_lowest_of_the_inputs_once_each_has_told_one():
    again = Restarted(stretches())
    watermarks = []
    for call in (("on_watermark", 0, 0, 900), ("on_watermark", 1, 0, 400), ("on_watermark", 1, 0, 1_200)):
        again.batch(call)
        processor = again.operator._processor
        watermarks.append((processor.watermark_ms, processor.watermarks_ms))
    assert watermarks == [(None, (900, None)), (400, (900, 400)), (900, (900, 1_200))]
    late = rows_of(1, [("late", 1, 100)])
    again.batch(("on_rows", 1, late, None))  # no second is complete yet
    again.batch(("on_watermark", 0, 0, 1_000))
    again.batch(("on_rows", 1, late, None))
    assert again.late_rows == 1


def test_a_plan_describes_its_inputs_and_keys_of_two_types_are_refused():
    columns = [["id", "string"], ["n", "int64"], ["event_time", "timestamp[us, tz=UTC]"], ["__time", "int64"]]
    assert plan_of(Deduplicate).description() == {
        "kind": "process", "processor": "Mine", "version": 1, "by": ["id"],
        "inputs": [{"name": "input 0", "schema": columns}],
    }  # fmt: skip
    assert plan_of(Deduplicate).digest() != plan_of(Deduplicate, inputs=(ONE, ONE)).digest()
    numbered = replace(ONE, schema=ONE.schema.set(0, pa.field("id", pa.int64())))
    with pytest.raises(OptionError, match=r"'id' is of type string in input 0 and int64 in input 1"):
        plan_of(Deduplicate, inputs=(ONE, numbered))
    with pytest.raises(OptionError, match=r"process: by names the column 'id' twice: name it once"):
        replace(ONE, by=("id", "id"))
