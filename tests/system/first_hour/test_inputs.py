"""Wrong inputs and the one sentence that each of them gets, as in inputs.tsv: read it to judge the sentences.

Of the table: `side` says how the input is given (options of the source or the sink, a start of the sink with rows, a
command, a call, a running query), `stands` where the user meets the sentence first, `written` what there is afterwards
that was not there before. Wherever Spark puts it, `reason` finds the sentence, and the console shows it last.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

import keyedwm.spark
from keyedwm.cli.main import main
from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import reason
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_sink.writer import stream_writer
from pyspark_wm_source.options.source_options import SourceOptions

TABLE = Path(__file__).with_name("inputs.tsv")
with TABLE.open(encoding="utf-8") as table:
    ROWS = list(csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
HERE = [row for row in ROWS if row[0] != "running"]
SCHEMA = StructType().add("value", LongType())
# As Spark words what a Python process of its own raised, with its own lines before and behind.
SPARK = """\
py4j.protocol.Py4JJavaError: An error occurred while calling o42.load.
: org.apache.spark.SparkException: [PYTHON_DATA_SOURCE_ERROR] Failed to create: Traceback (most recent call last):
  File "/lib/pyspark/worker_util.py", line 170, in worker_run
    main(infile, outfile)
{kind}: {sentence}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


def given(side: str, text: str, tmp_path: Path) -> None:
    """Do what the row says."""
    text = text.replace("{tmp}", str(tmp_path))
    if side == "source":
        SourceOptions.parse(json.loads(text)).for_stream()
    elif side == "sink":
        SinkOptions.parse(json.loads(text))
    elif side == "start":
        stream_writer(json.loads(text), SCHEMA, overwrite=False)
    else:
        eval(text, vars(keyedwm.spark))  # noqa: S307 - our own table


def sentence_of(side: str, text: str, tmp_path: Path) -> str:
    if side == "command":
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            assert main(json.loads(text.replace("{tmp}", str(tmp_path)))) == 2
        line = said.getvalue().splitlines()[-1]
        return line.removeprefix("keyedwm: ")
    with pytest.raises(KeyedwmError) as refused:
        given(side, text, tmp_path)
    error = refused.value
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    assert reason(SPARK.format(kind=kind, sentence=error)) == str(error)
    return str(error)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the rows work: a directory `plain` holds somebody's Parquet file."""
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "plain" / "a.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("side", "text", "sentence", "stands", "written"), HERE, ids=[f"{side} {text}" for side, text, *_ in HERE]
)
def test_a_wrong_input_gets_its_sentence_and_writes_nothing(side, text, sentence, stands, written, place):
    before = sorted(place.rglob("*"))
    assert sentence_of(side, text, place).replace(str(place), "{tmp}") == sentence
    where = {"source": "load()", "sink": "first batch", "start": "first batch"}
    assert (stands, written) == (where.get(side, "console"), "nothing")
    assert sorted(place.rglob("*")) == before


def test_the_table_has_95_rows_and_none_twice():
    assert len({(side, text) for side, text, *_ in ROWS}) == len(ROWS) >= 95


def test_every_sentence_is_one_line_that_ends_in_its_advice():
    assert [row for row in ROWS if "\n" in row[2] or not row[2].endswith("]")] == []
