"""Random messages, their cuts, and a standalone operator that is restarted after each step."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from keyedwm.operators.aggregates.functions import collect
from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.laws.small import SMALL

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("event_time", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
KEEP_ALL = Retention(max_messages=10**9)


class Message(NamedTuple):
    k: str | None
    n: int
    time: int | None
    topic: str
    partition: int
    offset: int


def records_text(window: pa.Table) -> str:
    return " ".join(f"{row['topic']}{row['partition']}:{row['offset']}" for row in window.to_pylist())


IN_ORDER = (("told", window_function(records_text, pa.string())),)


def plan_of(window, aggregates=IN_ORDER, by=("k",), retention=KEEP_ALL, **settings) -> StorePlan:
    return StorePlan(schema=SCHEMA, by=by, window=window, aggregates=tuple(aggregates), retention=retention, **settings)


def table(messages) -> pa.Table:
    columns = zip(*messages, strict=True) if messages else [[]] * len(SCHEMA)
    return pa.table([pa.array(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def messages_of(names: str, *rows: tuple, partition: int = 0) -> list[Message]:
    """Messages of one partition; names: the columns of a row, of k, n, time and offset; n is the time otherwise."""
    row_values = [dict(zip(names.split(), row, strict=True)) for row in rows]
    return [
        Message(one.get("k", "k"), one.get("n", one.get("time", 1)), one.get("time", 1), "t", partition, one["offset"])
        for one in row_values
    ]


def operator_of(window, aggregate=None, store=None, **settings) -> WindowOperator:
    """An operator of which `n` tells the values that are in a window, or another aggregate of them."""
    return WindowOperator(
        plan_of(window, (("n", collect("n") if aggregate is None else aggregate),), **settings), store
    )


def panes_of(names: str, operator: WindowOperator) -> list[tuple]:
    """New panes; names: of what is told of each, of its columns, of start and end of its window, and of the pane."""
    panes = []
    for row in operator.flush().to_pylist():
        start, end = edges(row)
        facts = {**row, "start": start, "end": end, **row["pane"]}
        panes.append(tuple(facts[name] for name in names.split()))
    return panes


def edges(row: dict) -> tuple[int, int]:
    """The edges of a pane's window in ms, or offsets."""
    start, end = row["window"].values()
    if isinstance(start, int):
        return start, end
    return round(start.timestamp() * 1000), round(end.timestamp() * 1000)


def random_messages(seed: int, count: int, *, span: int = 100, channels: int = 3) -> list[Message]:
    """In order of offset by channel, with holes, out of order in time, with duplicates and redelivered runs."""
    rng = random.Random(seed)
    names = [("a", 0), ("a", 1), *(("b", partition) for partition in range(13))][:channels]
    following = {name: rng.randrange(5) for name in names}
    messages: list[Message] = []
    for at in range(count):
        name = rng.choice(names)
        time = at * span // count + rng.choice([0, 0, -3, 5, -30, 20, rng.randrange(-12, 12)])
        messages.append(
            Message(
                rng.choice([None, "x", "y"]), rng.randrange(9), None if rng.random() < 0.05 else time, *name,
                following[name],
            )
        )  # fmt: skip
        following[name] += rng.choice([1, 1, 1, 3])
        if rng.random() < 0.1:
            messages.append(rng.choice(messages))
        if rng.random() < 0.03:
            messages += messages[-rng.randrange(1, 6) :]
    return messages


class Restarted:
    """A standalone operator that is put away and built anew after each step."""

    def __init__(self, plan: StorePlan, *, always: bool = True) -> None:
        self.plan, self.always, self.store = plan, always, MemoryStore(limits=SMALL)
        self.operator = WindowOperator(plan, self.store)
        self.results: list = []
        self.rejected: list = []

    def step(self, name: str, *arguments, flush: bool = True) -> list:
        getattr(self.operator, name)(*arguments)
        if not flush:
            return []
        self.rejected += [
            (Message(*list(row.values())[:-1]), row["reason"]) for row in self.operator.get_rejected().to_pylist()
        ]
        panes = [pane_tuple(row) for row in self.operator.flush().to_pylist()]
        self.results += panes
        if self.always:
            self.operator = WindowOperator(self.plan, self.store)
        return panes


def pane_tuple(row: dict) -> tuple:
    pane = row["pane"]
    return *edges(row), row["k"], row["told"], pane["timing"], pane["index"], pane["last"]


def split_steps(seed: int, messages: list[Message], watermarks: bool) -> list[tuple]:
    """Into steps: rows and, in between, watermarks that trail the messages."""
    rng = random.Random(seed)
    steps: list[tuple] = []
    at, top = 0, -(10**6)
    while at < len(messages):
        piece = messages[at : at + rng.choice([1, 2, 5, 20])]
        at += len(piece)
        steps.append(("add_message", piece))
        top = max([top, *(one.time for one in piece if one.time is not None)])
        if watermarks and rng.random() < 0.5:
            steps.append(("watermark", top - rng.randrange(0, 20)))
    return steps


def once_each(messages: list) -> list[list]:
    """In lists of which none has a record twice; at least one list."""
    record_counts: Counter = Counter()
    parts: list[list] = [[]]
    for one in messages:
        record = tuple(one)[3:]  # topic, partition and offset
        if record_counts[record] == len(parts):
            parts.append([])
        parts[record_counts[record]].append(one)
        record_counts[record] += 1
    return parts
