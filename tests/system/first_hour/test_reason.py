"""One sentence out of what Spark raises: `keyedwm.spark.reason`, and the last line of a console."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from keyedwm.core.errors import DataLossError, OptionError
from keyedwm.spark import reason

SENTENCE = "option assign: '{\"t\":[0]}' is wrong; did you mean [0]? [fix your options]"
FROM_LOAD = f"""[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source keyedwm: Traceback:
  File "/x/keyedwm/plugin.py", line 35, in schema
    return _half("pyspark_wm_source.reader").row_schema(self.options)
keyedwm.core.errors.OptionError: {SENTENCE}
 SQLSTATE: 38000"""
FROM_A_TASK = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/scan.py", line 1, in read
keyedwm.kafka.client.errors.UnknownTopicError: topic 't' does not exist [create the topic]

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
keyedwm.core.errors.OptionError: {SENTENCE}

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
Driver stacktrace: [id = 3]"""


class Query:
    """What `reason` asks of a StreamingQuery."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def exception(self) -> Exception | None:
        return self._error


@pytest.mark.parametrize("text", [FROM_LOAD, FROM_A_TASK], ids=["from load", "from a task"])
def test_the_sentence_and_its_advice_come_out_of_what_spark_says(text):
    assert reason(text) == SENTENCE
    assert reason(RuntimeError(text)) == SENTENCE
    assert reason(Query(RuntimeError(text))) == SENTENCE


FROM_A_FUNCTION = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] \
An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/app.py", line 22, in <lambda>
ValueError: invalid literal for int() with base 10: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/app.py", line 24, in convert
    raise LookupError("no number: " + value)
          ^^^^^^^^^^^
LookupError: no number: x
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ==="""


def test_of_a_function_of_the_users_the_last_error_is_told():
    assert reason(FROM_A_FUNCTION) == (
        "An exception was thrown from the Python worker: LookupError: no number: x [Spark: PYTHON_EXCEPTION]"
    )


def test_an_error_of_ours_speaks_for_itself_and_as_a_cause():
    ours = DataLossError("records 3 to 5 of t-0 are gone")
    assert reason(ours) == str(ours)
    outer = RuntimeError("the job failed")
    outer.__cause__ = ours
    assert reason(outer) == str(ours)


OF_SPARK = {
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nokey` cannot be resolved. Did you mean one of the "
    "following? [`key`]. SQLSTATE: 42703;\n'Project ['nokey]\n+- x": "A column with name `nokey` cannot be resolved. "
    "Did you mean one of the following? [`key`] [Spark: UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [USER_RAISED_EXCEPTION] x y SQLSTATE: P0001 "
    "SQLSTATE: XXKST\n=== Streaming Query ===": "x y [Spark: USER_RAISED_EXCEPTION]",
    "An error occurred while calling o1.load.\n: org.apache.spark.SparkClassNotFoundException: "
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: "
    "keydwm. Make sure the provider name is correct. SQLSTATE: 42K02": "Failed to find the data source: keydwm. Make "
    "sure the provider name is correct [Spark: DATA_SOURCE_NOT_FOUND]",
}


@pytest.mark.parametrize("text", OF_SPARK, ids=["a column", "a query", "a format"])
def test_an_error_of_spark_s_own_has_spark_s_first_sentence(text):
    assert reason(text) == OF_SPARK[text]
    assert reason(Query(RuntimeError(text))) == OF_SPARK[text]


def test_an_error_of_spark_s_without_a_condition_has_its_first_line():
    error = PySparkException("checkpointLocation must be specified\nJVM stacktrace:")
    assert reason(error) == "checkpointLocation must be specified [Spark]"


def test_what_is_not_ours_nor_spark_s_has_no_reason():
    assert reason(Query(None)) is None
    assert reason(ValueError("keyedwm has nothing to do with it")) is None


def test_a_format_that_is_not_found_is_explained():
    told = reason("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: keyedwm. Make sure the provider name is")
    assert "the Python that it starts does not have this package" in str(told)
    assert sys.executable in str(told)


@pytest.mark.parametrize("value", ["keyedwm.a: [", " ", "[a", "(TID 1) ("])
def test_a_long_value_in_an_error_is_looked_through_once(value: str) -> None:
    text = f"[UDF_ERROR] failed: invalid literal {value * 1_000_000}"
    shown = reason(Query(PySparkException(text)))
    assert shown is not None
    assert shown.startswith("failed: invalid literal ")
    assert len(shown) < 5_000


def test_a_script_that_fails_shows_the_sentence_as_its_last_line():
    script = f"import keyedwm.spark\nraise RuntimeError({FROM_A_TASK!r})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"keyedwm: {SENTENCE}"


def test_a_script_that_fails_otherwise_shows_nothing_more():
    ran = subprocess.run(
        [sys.executable, "-c", "import keyedwm.spark\nraise OSError('no')"], capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1] == "OSError: no"


def test_an_error_of_ours_that_ends_a_script_is_not_said_twice():
    script = "import keyedwm.spark\nfrom keyedwm.core.errors import OptionError\nraise OptionError('option x')"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stderr.count(str(OptionError("option x"))) == 1
