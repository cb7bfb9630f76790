"""The page on PostgreSQL: its own code, driven through failures, against a real server."""

from __future__ import annotations

import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Postgres

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sinks-without-a-connector.md"


@dataclass
class Batch:
    """What of a batch the page's function uses; it can fail on its way."""

    spark: Any
    rows: list[tuple[str, int, int]]
    before_last: Callable[[], object] = lambda: None

    @property
    def sparkSession(self) -> Batch:
        return self

    sparkContext = sparkSession  # noqa: N815  Spark's name

    def getLocalProperty(self, name: str) -> str:
        assert name == "sql.streaming.queryId"
        return self.spark

    def toLocalIterator(self) -> Iterator[tuple[str, int, int]]:
        yield from self.rows[:-1]
        self.before_last()
        yield from self.rows[-1:]


@pytest.fixture
def write(postgres: Postgres) -> Callable[[Batch, int], None]:
    """The page's function, over tables that are empty."""
    with psycopg.connect(postgres.address) as connection:
        connection.execute("DROP TABLE IF EXISTS turnover, written")
    (block,) = re.findall(r"```python\n(import psycopg\n.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block.replace("postgresql://localhost/shop", postgres.address), str(PAGE), "exec"), names)  # noqa: S102
    return names["write"]


def read_totals(postgres: Postgres) -> list[tuple]:
    with psycopg.connect(postgres.address) as connection:
        return connection.execute("SELECT * FROM turnover ORDER BY shop").fetchall()


def last_written(postgres: Postgres) -> list[int]:
    with psycopg.connect(postgres.address) as connection:
        return [batch for (batch,) in connection.execute("SELECT batch FROM written").fetchall()]


A, B = ("a", 1, 10), ("b", 1, 5)


def fail() -> None:
    raise ConnectionError("the stream broke")


def test_a_batch_is_added_once_however_often_it_comes(write, postgres):
    query = str(uuid.uuid4())
    for number, rows in enumerate([[A, B, A], [A], []]):
        for _ in range(3):
            write(Batch(query, rows), number)
    assert read_totals(postgres) == [("a", 3, 30), ("b", 1, 5)]
    assert last_written(postgres) == [2]


@pytest.mark.parametrize("how", ["an error", "a lost connection", "a crash of the server"])
def test_a_batch_that_fails_on_its_way_leaves_nothing_and_is_added_when_it_comes_again(write, postgres, how):
    def lose_connections() -> None:
        with psycopg.connect(postgres.address) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    query = str(uuid.uuid4())
    write(Batch(query, [A]), 0)
    failing = {"an error": fail, "a lost connection": lose_connections, "a crash of the server": postgres.crash}[how]
    with pytest.raises((ConnectionError, psycopg.OperationalError)):
        write(Batch(query, [A, B], failing), 1)
    if how == "a crash of the server":
        postgres.start()
    assert (read_totals(postgres), last_written(postgres)) == ([("a", 1, 10)], [0])
    write(Batch(query, [A, B]), 1)
    assert (read_totals(postgres), last_written(postgres)) == ([("a", 2, 20), ("b", 1, 5)], [1])


def test_two_drivers_of_one_checkpoint_add_a_batch_once(write, postgres):
    query, other = str(uuid.uuid4()), []

    def begin_another() -> None:
        other.append(threading.Thread(target=write, args=(Batch(query, [A, B]), 0)))
        other[0].start()

    write(Batch(query, [A, B], begin_another), 0)
    other[0].join()
    assert read_totals(postgres) == [("a", 1, 10), ("b", 1, 5)]


def test_a_new_checkpoint_begins_at_0_and_an_old_one_anywhere(write, postgres):
    for first in (0, 57):
        query = str(uuid.uuid4())
        write(Batch(query, [A]), first)
        write(Batch(query, [A]), first + 1)
    assert read_totals(postgres) == [("a", 4, 40)]


def test_a_gap_ends_the_query(write, postgres):
    query = str(uuid.uuid4())
    write(Batch(query, [A]), 3)
    with pytest.raises(RuntimeError, match="batch 5 follows, and the last in the database is 3"):
        write(Batch(query, [A]), 5)
    assert read_totals(postgres) == [("a", 1, 10)]


def test_a_query_that_was_killed_between_both_commits_adds_nothing_twice(write, postgres, spark, tmp_path):
    """Spark's note that the batch is done is taken away, as if the process had been killed before it."""
    input_folder, checkpoint = tmp_path / "given", tmp_path / "checkpoint"
    input_folder.mkdir()

    def run() -> None:
        rows = spark.readStream.schema("shop string, orders bigint, amount bigint").option("maxFilesPerTrigger", 1)
        started = rows.json(str(input_folder)).writeStream.foreachBatch(write).trigger(availableNow=True)
        started.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    for number in range(2):
        (input_folder / f"{number}.json").write_text('{"shop": "a", "orders": 1, "amount": 10}\n')
        run()
    assert (read_totals(postgres), last_written(postgres)) == ([("a", 2, 20)], [1])
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run()
    assert (read_totals(postgres), last_written(postgres)) == ([("a", 2, 20)], [1])
    shutil.rmtree(checkpoint)
    run()
    assert read_totals(postgres) == [("a", 4, 40)]
