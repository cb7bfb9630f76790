"""Streams with planted passwords, run as a program, to success and into every kind of failure; prints all it is told.

Run: python -m tests.spark.planted CONFIG (a JSON file, see `test_secrets`)
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.other_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Program:
    """What the runs share; `told` shows what a user would see of one of them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.home = Path(given["home"])
        self.spark: SparkSession = session()
        self.spark.sparkContext.setLogLevel("INFO")

    def rows(self, **change: str) -> DataFrame:
        options = self.given["source"] | {"subscribe": self.given["topic"], "startingOffsets": "earliest"} | change
        return self.spark.readStream.format("keyedwm").options(**options).load()

    def stream(self, name: str, frame: Callable[[], DataFrame], sink: dict[str, str]) -> None:
        """Run a stream to its end, then again on its checkpoint; shows plans, progress and what it failed with."""
        print(f"== {name}")
        try:
            made = frame()
            made.explain(extended=True)
            print(made)
            for _ in range(2):
                writer = made.writeStream.format("keyedwm").queryName(name).trigger(availableNow=True)
                query = writer.options(checkpointLocation=str(self.home / name), **sink).start()
                try:
                    query.awaitTermination()
                finally:
                    query.explain(extended=True)
                    print(query.status, query.exception(), [p.json for p in query.recentProgress])
            print(f"== {name} ended")
        except Exception as error:  # noqa: BLE001 (whatever it is, a user would see it)
            told(error)

    def batch(self, name: str, act: Callable[[], Any]) -> None:
        print(f"== {name}")
        try:
            print(act())
            print(f"== {name} ended")
        except Exception as error:  # noqa: BLE001 (likewise)
            told(error)


def told(error: Exception) -> None:
    """Everything that an exception shows, the JVM's own trace included."""
    print(f"== failed: {type(error).__name__}: {error}")
    traceback.print_exception(error)
    if (java := getattr(error, "getStackTrace", lambda: None)()) is not None:
        print(java)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    program = Program(given)
    sink, table = given["sink"], given["table"]
    rows = program.rows
    wrong = given["wrong"]
    values = ("key", "value", "control")
    program.stream("sound", lambda: rows().select(*values), sink)
    program.stream("sound-table", rows, table)
    program.stream("source-login", lambda: rows(**{"kafka.sasl.jaas.config": wrong["login"]}), table)
    program.stream("sink-login", lambda: rows().select(*values), sink | {"kafka.sasl.jaas.config": wrong["login"]})
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    program.stream("source-host", lambda: rows(**nowhere), table)
    program.stream("sink-host", lambda: rows().select(*values), sink | nowhere)
    for number, (option, value) in enumerate(wrong["options"]["source"]):
        program.stream(f"source-{number}", lambda given={option: value}: rows(**given), table)
    for number, (option, value) in enumerate(wrong["options"]["sink"]):
        program.stream(f"sink-{number}", lambda: rows().select(*values), sink | {option: value})
    for number, (option, value) in enumerate(wrong["options"]["table"]):
        program.stream(f"table-{number}", rows, table | {option: value})
    for number, (option, value) in enumerate(given["tokens"]):
        given_token = {"kafka.sasl.mechanism": "OAUTHBEARER", option: value}
        program.stream(f"token-{number}", lambda given=given_token: rows(**given).select(*values), sink | given_token)
    for name, options in given["registries"].items():
        change = options | {"subscribe": given["avro"]}
        program.stream(
            f"registry-{name}", lambda change=change: rows(**change), table | {"path": f"{table['path']}-avro"}
        )
    program.stream("damaged", lambda: rows(subscribe=given["damaged"]), table)
    program.stream("damaged-accepted", lambda: rows(subscribe=given["damaged"], failOnDataLoss="false"), table)
    options = given["source"] | {"subscribe": given["topic"]}

    def read(**change: str) -> DataFrame:
        return program.spark.read.format("keyedwm").options(**(options | change)).load()

    writer = read().select("key", "value").write.format("keyedwm").mode("append")
    program.batch("read", lambda: (read().explain(extended=True), read().count()))
    program.batch("read-login", lambda: read(**{"kafka.sasl.jaas.config": wrong["login"]}).count())
    program.batch("write", lambda: writer.options(**sink).save())
    program.spark.stop()


if __name__ == "__main__":
    main()
