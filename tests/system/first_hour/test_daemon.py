"""Python workers that are forked from a process which has loaded everything, and only where a session asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from keyedwm.daemon import OPERATORS_CODE, READING_CODE
from keyedwm.runtime.forked import sweep
from keyedwm.spark import recommended_conf, session_conf
from tests.installed import PATIENCE_S
from tests.system.first_hour.conftest import Run

NAME = "spark.python.daemon.module"
SCRIPT = """
import json, sys
import keyedwm.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in {**keyedwm.spark.session_conf(cores=1), **json.loads(sys.argv[1])}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def loaded(_):
    import sys
    given = getattr(sys.modules["__main__"], "__spec__", None)
    return given and given.name, "numba" in sys.modules

print("FOUND", json.dumps(spark.sparkContext.range(1).map(loaded).first()))
spark.stop()
"""


def test_the_setting_stands_beside_those_that_a_session_takes_later(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # without a CDS archive
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert NAME not in recommended_conf()
    assert session_conf(cores=3) == {
        **recommended_conf(cores=3), NAME: "keyedwm.daemon", "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - a container of YARN has longer paths
    }  # fmt: skip


def test_a_local_checkpoint_changes_one_setting_and_only_where_it_is_asked_for():
    added = set(session_conf(local_checkpoint=True).items()) - set(session_conf().items())
    assert [name for name, _ in added] == ["spark.sql.streaming.checkpointFileManagerClass"]
    assert added < set(recommended_conf(local_checkpoint=True).items())


@pytest.mark.starts
@pytest.mark.parametrize(
    ("own", "found"),
    [({}, ["keyedwm.daemon", True]), ({NAME: "pyspark.daemon"}, ["pyspark.daemon", False])],
    ids=["ours", "the session's own"],
)
def test_workers_have_everything_loaded_unless_the_session_has_a_daemon_of_its_own(
    shell: Run, python: str, tmp_path, own, found
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = shell([python, script, json.dumps(own)])
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert json.loads(line.removeprefix("FOUND ")) == found
    assert "RuntimeWarning" not in ran.stderr


UNPREPARED = """
import json, sys, time
import keyedwm.spark
from keyedwm.runtime.forked import place_of
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def loaded(_):
    import sys
    return sys.modules["__main__"].__spec__.name, "numba" in sys.modules

given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "a"}
if sys.argv[1] == "with the source":
    spark.readStream.format("keyedwm").options(**given).load()
    place = place_of(spark.sparkContext._gateway.proc.pid)
    while not place.exists():
        time.sleep(0.1)
print("FOUND", json.dumps(spark.sparkContext.range(1).map(loaded).first()))
spark.stop()
"""


@pytest.mark.starts
@pytest.mark.parametrize(
    ("how", "found"),
    [("with the source", ["keyedwm.daemon", True]), ("without it", ["pyspark.daemon", False])],
)
def test_workers_of_a_session_that_nobody_has_prepared_have_the_source_loaded_once_it_is_read(
    shell: Run, python: str, tmp_path, how, found
):
    script = tmp_path / "script.py"
    script.write_text(UNPREPARED)
    ran = shell([python, script, how])
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert json.loads(line.removeprefix("FOUND ")) == found


DRAWS = """
import os
from collections import deque
import numpy
from keyedwm.daemon import load
deque(load(), maxlen=0)
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.starts
def test_workers_that_are_forked_draw_random_numbers_of_their_own():
    ran = subprocess.run([sys.executable, "-c", DRAWS], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert len(set(ran.stdout.split())) == 2


KEPT = """
import json, sys
from importlib.util import find_spec
from zipimport import zipimporter
from keyedwm.daemon import load

def kept():
    finders = sys.path_importer_cache.values()
    return sorted({finder.archive for finder in finders if isinstance(finder, zipimporter)})

find_spec("no_such_module")
before = kept()
while_loading = [archive for _ in load() for archive in kept()]
print(json.dumps([before, sorted(set(while_loading)), kept(), find_spec("py4j.version") is not None]))
"""


@pytest.mark.starts
def test_what_is_forked_does_not_read_the_archives_of_spark_again_but_those_of_users(tmp_path):
    home = Path(pyspark.__file__).parent
    of_spark = [str(one) for place in ("python/lib/*.zip", "jars/spark-core_*.jar") for one in home.glob(place)]
    (tmp_path / "python" / "lib").mkdir(parents=True)
    own = str(tmp_path / "python" / "lib" / "pyspark.zip")  # named and placed as Spark's, in no Spark's home
    with ZipFile(own, "w") as archive:
        archive.writestr("mine.py", "")
    ran = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*of_spark, own])},
    )  # fmt: skip
    assert len(of_spark) == 3
    assert json.loads(ran.stdout) == [sorted([*of_spark, own]), [own], [own], True]


LEFT = """
import importlib.util, socket, sys
from pyspark.daemon import worker
from keyedwm.runtime.worker import quiet

how, sys.argv = sys.argv[1], sys.argv[:1]
__spec__ = importlib.util.find_spec("pyspark.daemon")
if how == "our daemon":
    worker = quiet(worker)
elif how == "PySpark's daemon":
    import keyedwm.plugin
ours, spark = socket.socketpair()
spark.close()
worker(ours, True)
"""


@pytest.mark.parametrize(
    ("how", "says"), [("our daemon", False), ("PySpark's daemon", False), ("nothing of ours", True)]
)
def test_a_worker_that_spark_has_left_ends_without_a_traceback(how, says):
    ran = subprocess.run(
        [sys.executable, "-c", LEFT, how], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env=os.environ | {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"},
    )  # fmt: skip
    assert ran.returncode == 1
    assert ("BrokenPipeError" in ran.stderr) is says
    assert says or not ran.stderr


ENDED = """
import importlib.util, sys

name, error = sys.argv[1:]
__spec__ = importlib.util.find_spec(name)
import keyedwm.plugin
from keyedwm.runtime.worker import hush
hush()  # as an operator does that is told here
print("a step")
raise getattr(__builtins__, error)("the end")
"""


@pytest.mark.parametrize(
    ("module", "error", "prints", "tells"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", "BrokenPipeError", True, False),
        ("pyspark.sql.streaming.python_streaming_source_runner", "EOFError", True, True),
        ("pyspark.sql.streaming.transform_with_state_driver_worker", "ConnectionResetError", False, False),
        ("pyspark.sql.streaming.transform_with_state_driver_worker", "ValueError", False, True),
        ("json", "BrokenPipeError", True, True),  # a program of the user
    ],
)
def test_a_process_of_spark_says_neither_its_steps_nor_that_spark_has_left(module, error, prints, tells):
    ran = subprocess.run(
        [sys.executable, "-c", ENDED, module, error], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert ran.returncode == 1
    assert (error in ran.stderr) is tells
    assert tells or not ran.stderr
    assert ran.stdout == ("a step\n" if prints else "")


def test_what_the_first_tasks_wait_for_is_said_once(tmp_path):
    tmp_path.chmod(0o700)
    tell = "from keyedwm.runtime.compiled import say_if_first as tell; tell(); tell()"

    def said() -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", tell], capture_output=True, text=True, check=True, timeout=PATIENCE_S,
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        return ran.stderr.splitlines()

    (line,) = said()
    assert line.endswith("about a minute in the first batch; keyedwm warm does it ahead")
    (tmp_path / "windows_1").mkdir()
    (tmp_path / "windows_1" / "kernels.f-1.py311.kept.nbi").touch()
    assert said() == []


def test_what_a_killed_host_left_is_swept_once_its_jvm_has_ended(tmp_path):
    """Left alone: files of a JVM that runs, of this one, of another machine, and of others' names."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = [f"a-host-{os.getpid()}.sock", f"a-host-{os.getppid()}.lock", f"b-host-{ended.pid}.sock", "a-host-x.sock",
            f"a-host-2-{ended.pid}.sock", f"a-host-{ended.pid}.txt", f"a-host-{2**70}.lock"]  # fmt: skip
    for name in [*kept, f"a-host-{ended.pid}.sock", f"a-host-{ended.pid}.lock"]:
        (tmp_path / name).touch()
    sweep(tmp_path / f"a-host-{os.getpid()}.sock")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


NEEDS = """
import sys
from collections import deque
from keyedwm.daemon import load
deque(load(), maxlen=0)
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.reader import StreamReader

loaded = set(sys.modules)
StreamReader(SourceOptions.parse({"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}))._planner
print(*sorted(set(sys.modules) - loaded))
"""


@pytest.mark.starts
def test_a_planning_imports_nothing_on_its_way_that_was_not_loaded_before_the_fork():
    ran = subprocess.run([sys.executable, "-c", NEEDS], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout.split() == []


COUNTS = """
from collections import deque
from keyedwm import daemon
from keyedwm.cli.warm import windowing as warm
from keyedwm.runtime import compiled
from keyedwm.windows import count

deque(daemon.load(), maxlen=0)
window, counts = warm.SlidingWindow(1_000, 1_000), (("n", count()),)
plan = warm.WindowPlan(schema=warm._SCHEMA, by=("text",), window=window, time="__time", aggregates=counts)
warm.play(plan, warm._input_rows)
print(sorted({*daemon.READING_CODE, *daemon.OPERATORS_CODE} - {one.__module__ for one in compiled._all}))
print(sorted({one.__module__ for one in compiled._all if getattr(one._dispatcher, "signatures", [])}))
"""


@pytest.mark.starts
def test_a_count_by_windows_calls_no_compiled_function_but_those_that_are_loaded_before_the_fork():
    ran = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    unknown, loaded = map(json.loads, ran.stdout.replace("'", '"').splitlines())
    assert unknown == []
    assert set(OPERATORS_CODE) <= set(loaded) <= {*READING_CODE, *OPERATORS_CODE}


LEAVES = """
import sys
from collections import deque
from keyedwm.daemon import load
deque(load(), maxlen=0)
print(*[name for name in sys.modules if name.startswith("google.protobuf")])
"""


@pytest.mark.starts
def test_protobuf_is_left_to_the_version_that_a_user_brings():
    ran = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout.split() == []
