"""What a new user mistypes is answered by one sentence that names the fix, not by an advice to try again."""

from __future__ import annotations

import builtins
import errno
import socket

import pyarrow as pa
import pytest

from keyedwm import __version__
from keyedwm.cli.main import main
from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.text import span_text
from keyedwm.spark import sliding, with_watermark
from keyedwm.testing.broker import broker
from keyedwm.testing.container import why_no_container
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta.stage import DeltaStagePlan
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_source.options.source_options import SourceOptions


@pytest.mark.parametrize(
    ("error", "said"),
    [
        *(
            (OSError(code, "no"), "cannot be written")
            for code in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EROFS)
        ),
        (
            OSError("Generic LocalFileSystem error: File name too long (os error 36)"),
            "a file of /proc/x has a name that",
        ),
        (OSError("<Code>KeyTooLongError</Code>"), "a file of /proc/x has a name that is too long for its store"),
    ],
)
def test_a_path_that_cannot_be_written_is_an_option_to_fix(error, said, monkeypatch):
    def refused(*_args):
        raise error

    monkeypatch.setattr("pyspark_wm_sink.delta.stage.files_of", refused)
    schema = pa.schema([("n", pa.int64())])
    plan = DeltaStagePlan(
        path="/proc/x", storage={}, schema=schema, has_control=False, inline=False, has_offsets=False, indexed=schema
    )
    rows = pa.RecordBatch.from_pydict({"n": [1]}, schema=schema)
    with pytest.raises(OptionError, match=f"option path: .*{said}"):
        stage(plan, Task(query=None, run=None, batch=None, partition=0, attempt=0), [rows])


def test_an_axis_that_the_source_does_not_have_is_named_with_those_it_has():
    with pytest.raises(InputError, match=r"the source has no time axis 'shipped'; it has ordered"):
        with_watermark(_frame_with("event_time_ordered", "watermark_ordered", "control"), "shipped")
    with pytest.raises(InputError, match=r"no time axis 'shipped'; it has a single one without a name"):
        with_watermark(_frame_with("event_time", "watermark", "control"), "shipped")


def _frame_with(*columns: str) -> object:
    return type("Frame", (), {"columns": list(columns)})()


def test_testcontainers_that_are_not_installed_are_named_with_the_command(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("testcontainers"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install testcontainers" in why_no_container()


@pytest.mark.parametrize("port", [-1, 0, 99999])
def test_a_port_that_does_not_exist_is_refused_before_a_broker_is_looked_for(port):
    with pytest.raises(OptionError, match=rf"port {port} is wrong: a whole number from 1 to 65535"), broker(port=port):
        pass


def test_a_port_that_is_taken_is_refused_before_a_broker_is_fetched(monkeypatch):
    monkeypatch.setattr("keyedwm.testing.broker.local_broker", lambda **_: pytest.fail("a broker was started"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OptionError, match=rf"port {port} is taken.*name another one"), broker("local", port=port):
            pass


def test_a_negative_duration_is_told_to_be_none():
    with pytest.raises(OptionError, match="is expected, and no negative one"):
        duration_ms("watermarkLag", "-1 seconds")


def test_a_mistyped_bootstrap_server_is_named():
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers is missing.*kafka.bootstrap.server is set"):
        SourceOptions.parse({"kafka.bootstrap.server": "localhost:9092", "subscribe": "t"})


def test_a_slide_that_does_not_divide_the_size_is_answered_in_the_units_of_the_user():
    with pytest.raises(
        OptionError, match=r"a window of 10 minutes every 3 minutes .* \(a size of 9 minutes would do\)"
    ):
        sliding("10 minutes", "3 minutes")
    assert [span_text(ms) for ms in (0, 1, 1_500, 1_000, 90_000, 3_600_000, 172_800_000)] == [
        "0 ms", "1 ms", "1500 ms", "1 second", "90 seconds", "1 hour", "2 days",
    ]  # fmt: skip


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"keyedwm {__version__}\n"


def test_an_empty_path_is_refused(capsys):
    assert main(["inspect", ""]) == 2
    assert "PATH is empty" in capsys.readouterr().err


def test_days_that_the_data_does_not_have_are_refused_before_a_missing_package(capsys, monkeypatch):
    monkeypatch.setattr("examples.demo.show.find_spec", lambda _name: None)
    assert main(["demo", "--days", "400"]) == 2
    assert "--days 400: the data has the days of 2013" in capsys.readouterr().err
