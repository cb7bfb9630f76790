"""Workers without the package, or with another version of it: one sentence that names the host."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StructType

from keyedwm.core.errors import OptionError
from keyedwm.plugin import DefaultSource
from keyedwm.runtime.worker import VersionChecked, VersionError
from keyedwm.spark import reason
from keyedwm.spark.hosting.async_rows import AsyncRows
from keyedwm.spark.hosting.bucket import Bucket
from keyedwm.spark.hosting.stage_one import StageOne
from keyedwm.spark.hosting.unpack import Unpack
from pyspark_wm_sink.writer import batch_writer, stream_writer
from pyspark_wm_source.reader import batch_reader, row_schema, stream_reader

KAFKA = {"kafka.bootstrap.servers": "a:1"}
SOURCE = KAFKA | {"subscribe": "t"}
ROWS = StructType().add("value", LongType()).add("n", LongType())
MISSING = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.2 in
stage 0.0 (TID 2) (10.0.0.6 executor 2): x. Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.5 executor 1):
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/serializers.py", line 1, in loads
ModuleNotFoundError: No module named 'pyspark_wm_source'"""


def sent(tmp_path):
    """All that Spark pickles for the tasks of a source or a sink."""
    schema = row_schema(SOURCE)
    yield DefaultSource(CaseInsensitiveDict(SOURCE))
    yield stream_reader(SOURCE, schema)
    yield batch_reader(SOURCE, schema)
    for write in (stream_writer, batch_writer):
        yield write({"path": str(tmp_path / "table"), "snapshot": "batch"}, ROWS, overwrite=False)


@pytest.mark.parametrize("how", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_a_worker_with_another_version_says_so_before_it_looks_for_anything_else(monkeypatch, tmp_path, how):
    for one in sent(tmp_path):
        data = how.dumps(one)
        assert vars(pickle.loads(data)).keys() == vars(one).keys()  # noqa: S301 (what was pickled above)
        name = type(one).__name__.encode()
        unknown = data.replace(name, name[:-1] + b"?")
        assert unknown != data
        with monkeypatch.context() as there:
            there.setattr("keyedwm.runtime.worker.__version__", "0.0.9")
            with pytest.raises(VersionError, match=f"the worker on host {socket.gethostname()} has keyedwm 0.0.9"):
                pickle.loads(unknown)  # noqa: S301 (what was pickled above)
        with pytest.raises(AttributeError):
            pickle.loads(unknown)  # noqa: S301 (what was pickled above)


def functions():
    """What Spark calls in tasks for `aggregate`, the joins and `async_map`, with fields that are not looked into."""
    yield StageOne("inputs", (0,))
    yield Unpack(pa.schema([("n", pa.int64())]), {"watermark": 0})
    yield AsyncRows("calls", pa.schema([]), pa.schema([]), 1)
    yield Bucket.__new__(Bucket)


def test_what_the_gate_lets_pass_is_what_was_sent():
    for one in functions():
        made = pickle.loads(cloudpickle.dumps(one))  # noqa: S301 (what was pickled above)
        assert type(made) is type(one)
        assert isinstance(one, StatefulProcessor) or made == one


def test_a_worker_without_the_package_names_its_host_before_anything_else(tmp_path):
    for one in (*sent(tmp_path), *functions()):
        loads = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
        bare = [sys.executable, "-I", "-S", "-c", loads]  # a Python with nothing installed
        ran = subprocess.run(bare, input=cloudpickle.dumps(one), capture_output=True, check=False, timeout=60)
        last = ran.stderr.decode().splitlines()[-1]
        assert last.startswith(f"ModuleNotFoundError: No module named 'keyedwm' on host {socket.gethostname()} (in ")
        assert f"a worker on host {socket.gethostname()} runs" in reason(f"PythonException: {last}")


def test_a_version_that_knows_nothing_of_this_is_told_in_one_sentence_too(monkeypatch):
    data = pickle.dumps(DefaultSource(CaseInsensitiveDict(SOURCE)))
    monkeypatch.delattr("keyedwm.runtime.worker.arrived")
    with pytest.raises(ImportError) as told:
        pickle.loads(data)  # noqa: S301 (what was pickled above)
    text = reason(f"PythonException: Traceback\nImportError: {told.value}\n\tat org.apache")
    assert text.startswith(f"the worker on host {socket.gethostname()} has an older keyedwm (in {sys.prefix}) than the")
    assert text.endswith(f"[{VersionError.advice}]")


def test_the_sentence_of_another_version_is_found_in_what_spark_says():
    error = VersionError("the worker on host b has keyedwm 1 (in /x), and the driver 2")
    text = f"PythonException: Traceback\n{VersionError.__module__}.VersionError: {error}\n\tat org.apache"
    assert reason(text) == str(error)


def test_a_worker_without_the_package_is_named_by_its_host():
    told = reason(MISSING)
    assert told == (
        "a worker on host 10.0.0.5 runs a Python that does not have the package keyedwm "
        "[install it on every worker, or ship the environment and name its Python in PYSPARK_PYTHON]"
    )
    assert reason("ModuleNotFoundError: No module named 'keyedwm'") == told.replace("on host 10.0.0.5 ", "")
    assert reason("ModuleNotFoundError: No module named 'keyedwm_other'") is None


LOST = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.5 executor 1): "


def test_a_python_that_a_worker_cannot_run_is_named_with_its_host():
    java = 'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory'
    told = reason(LOST + java)
    assert told.startswith(
        "the worker on host 10.0.0.5 cannot run the Python './environment/bin/python' that Spark should"
    )
    assert "a path that is right on the driver and on every worker" in told
    assert reason(java) == told.replace("the worker on host 10.0.0.5", "a host")


def test_a_python_that_spark_did_not_wait_for_is_no_loss():
    spark = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache"
    assert reason(LOST + spark).startswith("Spark waited ten seconds for a Python process on host 10.0.0.5 to start")
    of_the_driver = reason(f"[STREAM_FAILED] Query [id = 1] terminated with exception: {spark}")
    assert of_the_driver == (
        "Spark waited ten seconds for a Python process of the driver to start, and gave up [start the query again: "
        "nothing was lost; if it happens again, give that host less to do, or try its Python by hand]"
    )


def test_everything_that_reads_or_writes_in_tasks_is_checked(tmp_path):
    assert all(isinstance(one, VersionChecked) for one in (*sent(tmp_path), *functions()))
    from pyspark_wm_sink.kafka.writer import KafkaBatchWriter, KafkaStreamWriter

    assert issubclass(KafkaStreamWriter, VersionChecked)
    assert issubclass(KafkaBatchWriter, VersionChecked)


@pytest.mark.parametrize("side", ["source", "sink"])
def test_the_options_of_a_table_of_a_catalog_are_refused_by_what_to_use_instead(side):
    given = {f"{prefix}{name}": value for name, value in SOURCE.items() for prefix in ("", "option.")}
    with pytest.raises(Exception, match=rf"cannot be a keyedwm {side}, .* CREATE TEMPORARY VIEW") as told:
        row_schema(given) if side == "source" else stream_writer(given, ROWS, overwrite=False)
    assert str(told.value).endswith("[fix your options]")


def test_a_table_of_a_catalog_without_options_is_refused_by_what_to_use_instead():
    """With columns of its own Spark makes the table without a word to us, and hands no option on."""
    with pytest.raises(OptionError, match=r"cannot be read, since .* drop it, and use CREATE TEMPORARY VIEW"):
        batch_reader({}, ROWS)
    with pytest.raises(OptionError, match=r"option path is missing: .* drop the empty table of toTable"):
        stream_writer({"checkpointLocation": "/c"}, ROWS, overwrite=False)
