"""A decorated function of a pipeline, where Spark answers no question about a frame: each operator has its sentence."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from keyedwm import spark as k
from keyedwm.core.errors import OptionError


class InFunctionError(PySparkException):
    """As Spark Connect's client raises it."""

    def __init__(self) -> None:
        Exception.__init__(self, "Spark's own text")

    def getCondition(self) -> str:
        return "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


def no_answer(_: object) -> NoReturn:
    raise InFunctionError


class Session:
    """What operators ask of a session."""

    readStream = version = "4.3.0"  # noqa: N815

    @property
    def conf(self) -> Session:
        return self

    def get(self, name: str, _: object = None) -> str:
        return "state.RocksDBStateStoreProvider" if "provider" in name else "2"


class Frame(DataFrame):
    """Loaded rows."""

    columns = schema = isStreaming = property(no_answer)  # noqa: N815 - as Spark names them
    sparkSession = property(lambda _: Session())  # noqa: N815

    def __new__(cls) -> Frame:
        return object.__new__(cls)

    def __init__(self) -> None:
        """Take nothing: there is no plan."""


async def same(rows: pa.Table) -> pa.Table:
    return rows


ROWS, MINUTE, ONE = Frame(), k.tumbling("1 minute"), {"n": k.count()}
SCHEMA, STORE = pa.schema([("n", pa.int64())]), k.Store(retention="1 hour")


@pytest.mark.parametrize(
    "call",
    [
        lambda: k.aggregate(ROWS, "key", MINUTE, ONE),
        lambda: k.aggregate(ROWS, "key", MINUTE, ONE, store=STORE),
        lambda: k.async_map(ROWS, same, SCHEMA),
        lambda: k.deduplicate(ROWS, "key"),
        lambda: k.events(ROWS),
        lambda: k.join(ROWS, ROWS, on="key", within="1 minute"),
        lambda: k.join_latest(ROWS, ROWS, on="key"),
        lambda: k.late_rows(ROWS),
        lambda: k.on_time_rows(ROWS),
        lambda: k.process(ROWS, "key", k.Processor, SCHEMA),
        lambda: k.rejected(ROWS),
        lambda: k.running(ROWS, "key", ONE),
        lambda: k.sql_view(Session(), "orders", ROWS),
        lambda: k.window_join(ROWS, ROWS, "key", MINUTE, store=STORE),
        lambda: k.with_rejected(ROWS, ROWS),
        lambda: k.with_watermark(ROWS),
    ],
)
def test_every_function_says_where_a_pipeline_must_call_it(call):
    with pytest.raises(
        OptionError, match="Spark gives no columns of a frame to a decorated function of a pipeline: call"
    ):
        call()
