"""Break the schema registry of a running query, and kill the query, in every order; count what is lost or doubled.

Run: python -m tests.e2e.registry_faults [ROUNDS 20] [SEED 1]
A round draws a fault of the registry, records of two types and of schemas that are old, new, deleted or unknown, and
whether the driver is killed meanwhile. Afterwards the registry is whole again, and every record must be in the table
once, with the fields that were written: no null and no rejection may come of the registry's fault.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from keyedwm.testing.broker import broker
from keyedwm.testing.local import free_ports
from tests.e2e.killed import LIMIT_S, ms, program
from tests.formats.avro_laws import framed
from tests.formats.generated_avro import number, text
from tests.support.fake_registry import PATH, FakeRegistry, Reply, fake_registry, reply
from tests.support.proxy import Link, Proxy
from tests.tools import Record, make_topic, produce, wait_until

PARTITIONS = 3
FIRST_MS = 1_767_225_600_000
UNKNOWN = 7_000_000
PAGE = b"<html>Sign in</html>"
ABSENT = reply(404, {"error_code": 40403, "message": "no such schema"})
# What the registry answers in place of schemas, or how its network is.
ANSWERS: Mapping[str, Reply] = MappingProxyType({
    "401": reply(401, {"error_code": 401, "message": "no"}), "403": reply(403, PAGE, "text/html"),
    "429": reply(429, b""), "500": reply(500, {"error_code": 50001, "message": "store"}),
    "503": reply(503, PAGE, "text/html"), "page": reply(200, PAGE, "text/html"), "other": reply(200, {"hello": 1}),
    "list": reply(200, []), "cut": reply(200, b'{"schema": "{'), "redirect": reply(302, b"", Location="http://sso/"),
    "route": reply(404, PAGE, "text/html"),
})  # fmt: skip
LINKS = MappingProxyType({"refused": Link.REFUSED, "silent": Link.SILENT, "mute": Link.MUTE})
FAULTS = (*ANSWERS, *LINKS)
Row = tuple[int | None, str | None, str | None, int | None, int | None, str | None]


def order_schema(version: int) -> str:
    """Orders; each version has another field in front."""
    fields = [{"name": f"f{version}", "type": "string"}, {"name": "number", "type": "long"},
              {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
              {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["paid", "open"]}},
              {"name": "note", "type": ["string", "null"]}]  # fmt: skip
    return json.dumps({"type": "record", "name": "order", "fields": fields})


PING = json.dumps({"type": "record", "name": "ping", "fields": [
    {"name": "host", "type": "string"}, {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]})  # fmt: skip


@dataclass
class World:
    """What was written and what must be read of it, by partition and offset. deletes: whether known ids may go."""

    chance: random.Random
    registry: FakeRegistry
    bootstrap: str
    topic: str
    rejects: bool
    deletes: bool = False
    expected: dict[tuple[int, int], Row] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    deleted_ids: set[int] = field(default_factory=set)
    rule: Reply | None = None

    def __post_init__(self) -> None:
        self.registry.rule = self._answer
        self.ping = self.registry.add("pings", PING)
        self.newer()

    def _answer(self, _method: str, path: str) -> Reply | None:
        if self.rule is not None:
            return self.rule
        paths = {f"{PATH}/schemas/ids/{one}" for one in self.deleted_ids}
        return ABSENT if path in paths else None

    def newer(self) -> None:
        """Register the next version of the orders' schema."""
        self.ids.append(self.registry.add("orders", order_schema(len(self.ids))))

    def write(self, count: int, *, known: bool = False) -> None:
        """Append records. known: of ids that tasks have read before alone."""
        ends = Counter(partition for partition, _ in self.expected)
        records = []
        for _ in range(count):
            partition = self.chance.randrange(PARTITIONS)
            value, row = self._known() if known else self._drawn()
            self.expected[partition, ends[partition]] = row
            ends[partition] += 1
            records.append(Record(partition, FIRST_MS, value))
        produce(self.bootstrap, self.topic, records)

    def _known(self) -> tuple[bytes, Row]:
        return self._order(self.chance.choice(self.ids[:-1] or self.ids))

    def _order(self, schema_id: int) -> tuple[bytes, Row]:
        at, kind, note = FIRST_MS + len(self.expected), self.chance.choice(["paid", "open"]), self.chance.random()
        text_or_null = None if note < 0.2 else f"note {note:.3f}"
        body = text(b"in front") + number(len(self.expected)) + number(at) + number(["paid", "open"].index(kind))
        body += number(1) if text_or_null is None else number(0) + text(text_or_null.encode())
        return framed(schema_id, body), (len(self.expected), kind, text_or_null, schema_id, at, None)

    def _drawn(self) -> tuple[bytes | None, Row]:
        """A record: mostly an order; else a ping, a tombstone, no head, an unknown id, or a value that is cut."""
        which, at = self.chance.random(), FIRST_MS + len(self.expected)
        if which < 0.7:
            return self._order(self.chance.choice([self.ids[-1], self.chance.choice(self.ids)]))
        if which < 0.85:
            return framed(self.ping, text(b"h") + number(at)), (None, None, None, self.ping, at, None)
        if which < 0.9:
            return None, (None, None, None, None, None, None)
        if which < 0.93:
            return b"{}", self._bad(None, "no head")
        schema_id = UNKNOWN + self.chance.randrange(3)
        return framed(schema_id, b"\2x"), self._bad(schema_id, f"no schema with the id {schema_id}")

    def _bad(self, schema_id: int | None, reason: str) -> Row:
        return (None,) * 5 + (reason,) if self.rejects else (None, None, None, schema_id, None, None)


def by_place(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[int, int], Row], int]:
    """What came out, by partition and offset, and how many rows came twice."""
    of_place: dict[tuple[int, int], Row] = {}
    count = 0
    for row in rows:
        at = None if row["event_time"] is None else ms(row["event_time"])
        fields = row["number"], row["kind"], row["note"], row["schema_id"], at, row["reason"]
        of_place[row["partition"], row["offset"]] = fields
        count += 1
    return of_place, count - len(of_place)


def rows_of(table: Path) -> tuple[dict[tuple[int, int], Row], int]:
    """What the table holds."""
    try:
        return by_place(DeltaTable(table).to_pyarrow_table().to_pylist())
    except TableNotFoundError:
        return {}, 0


def differing(expected: Mapping[tuple[int, int], Row], rows: Mapping[tuple[int, int], Row]) -> list[str]:
    """Say which rows are other ones than those that were written."""
    wrong = []
    for place, right in expected.items():
        row = rows.get(place)
        reason = right[5] is None if row is None or row[5] is None else right[5] is not None and right[5] in row[5]
        if row is None or row[:5] != right[:5] or not reason:
            wrong.append(f"{place}: {row} in place of {right}")
    return wrong


@dataclass
class Life:
    """The driver: a program that is started again, however it ended."""

    arguments: tuple[object, ...]
    lives: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start it, killed if it runs."""
        self.kill()
        self.lives += 1
        self._process = self._stack.enter_context(program("tests.e2e.avro_rows", *self.arguments))

    def kill(self) -> None:
        """Kill it with all its processes."""
        self._stack.close()
        self._process = None

    def check(self) -> None:
        """Fail if it ended by itself."""
        assert self._process is None or self._process.poll() is None, "the driver ended"


@contextmanager
def worlds(seed: int) -> Iterator[tuple[World, Proxy, Life, Path]]:
    """A broker, a registry behind a proxy, and a driver; what is cached and what becomes of bad values is drawn."""
    chance = random.Random(f"{seed} registry")
    cached, on_bad = chance.random() < 0.6, chance.choice(["reject", "null"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, broker() as kafka, fake_registry() as fake:
        (port,) = free_ports(1)
        target = int(fake.url.removesuffix(PATH).rpartition(":")[2])
        topic = make_topic(kafka.bootstrap, f"registry-faults-{seed}-{time.time_ns()}", PARTITIONS)
        world = World(chance, fake, kafka.bootstrap, topic, on_bad == "reject", deletes=cached)
        cache = f"{place}/schemas" if cached else "none"
        print(
            f"seed {seed}: schemaRegistry.cache {'a directory' if cached else 'none'}, onBadValue={on_bad}", flush=True
        )
        with closing(Proxy(port, target)) as proxy:
            url = f"http://127.0.0.1:{port}{PATH}"
            life = Life((kafka.bootstrap, url, topic, place, cache, on_bad))
            try:
                yield world, proxy, life, Path(place)
            finally:
                life.kill()


def play(rounds: int, seed: int) -> int:
    """Play the rounds; return how many rows were lost, doubled or wrong."""
    with worlds(seed) as (world, proxy, life, place):

        def errors() -> int:
            path = place / "errors"
            return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

        def whole() -> bool:
            life.check()
            return len(rows_of(place / "table")[0]) >= len(world.expected)

        faults = [*FAULTS] * (rounds // len(FAULTS) + 1)
        world.chance.shuffle(faults)
        for turn, fault in enumerate(faults[:rounds], 1):
            steps = _round(world, proxy, life, fault, errors, whole)
            rows, doubled = rows_of(place / "table")
            wrong = differing(world.expected, rows)
            print(
                f"{turn:3} {fault}: {', '.join(steps)}; {len(rows)} rows, {len(wrong)} wrong, {doubled} doubled",
                flush=True,
            )
            if wrong or doubled:
                print(*wrong[:5], sep="\n")
                return len(wrong) + doubled
        failed = f"{rounds} rounds, {life.lives} drivers, {errors()} failed queries, {len(world.expected)} records"
        print(f"seed {seed}: {failed}: 0 lost, 0 doubled, 0 wrong", flush=True)
    return 0


def _round(
    world: World, proxy: Proxy, life: Life, fault: str, errors: Callable[[], int], whole: Callable[[], bool]
) -> list[str]:
    """One fault, from its beginning until all records are there; returns what was done."""
    chance, steps = world.chance, []
    if not life.lives and chance.random() < 0.5:
        life.start()  # else the first start falls into the fault
    can_be_cached = life.lives > 0 and world.deletes and bool(world.expected)  # an earlier round has read its ids
    if can_be_cached and len(world.ids) > 2 and chance.random() < 0.5:
        world.deleted_ids.add(world.ids[chance.randrange(len(world.ids) - 1)])
        steps.append("an id deleted")
    world.rule = ANSWERS.get(fault)
    proxy.set(LINKS.get(fault, Link.OPEN))
    before = errors()
    if not life.lives or chance.random() < 0.4:
        life.start()
        steps.append("started in the fault")
    if can_be_cached and chance.random() < 0.6:
        world.write(chance.randrange(5, 30), known=True)
        wait_until(whole, "records of known ids while the registry is away", LIMIT_S)
        steps.append("known ids read")
    world.newer()
    world.write(chance.randrange(20, 90))
    wait_until(lambda: errors() > before, f"an error of the registry's ({fault})", LIMIT_S)
    steps.append("failed")
    if chance.random() < 0.4:
        life.start()
        steps.append("killed and started")
    world.rule = None
    proxy.set(Link.OPEN)
    if chance.random() < 0.3:
        life.start()
        steps.append("killed when it was whole")
    wait_until(whole, f"all records after {fault}", LIMIT_S)
    return steps


if __name__ == "__main__":
    arguments = [*map(int, sys.argv[1:])]
    sys.exit(play(*(arguments + [20, 1][len(arguments) :])) > 0)
