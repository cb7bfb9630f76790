"""The operators of a checkpoint and their state, by Spark's own state reader.

Rule: it only reads. The query may be stopped or run; the answer is the state of its last committed batch. Reading takes
seconds, so a live view reads in a separate thread. The session is local and quiet, and ends with the command. The
summary of a bucket comes from its manifest alone: no table is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from keyedwm.cli.query.picture import OperatorPicture, StatePicture
from keyedwm.config.secrets import settings_of
from keyedwm.core.errors import KeyedwmError
from keyedwm.operators.frames.frame_log import FRAME
from keyedwm.operators.frames.session_log import DUE, REST, YOUNG
from keyedwm.operators.frames.session_table import SESSIONS
from keyedwm.operators.messages.read_only_store import kind_in
from keyedwm.operators.messages.store_description import STORE
from keyedwm.operators.state.description import KIND
from keyedwm.operators.state.store import PART
from keyedwm.savepoint_files import STATE, Files, OperatorState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return the settings of NAME=VALUE texts, with secrets read from their places. Raises OptionError."""
    return settings_of("--conf", settings, "spark.hadoop.fs.s3a.endpoint=HOST")


@contextmanager
def checkpoint_session(settings: Sequence[str] = ()) -> Iterator[SparkSession]:
    """Start a session, or use the one that runs; settings: NAME=VALUE, as for spark-submit. Raises OptionError."""
    by_name = session_settings(settings)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.master("local[*]").appName("keyedwm")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    for name, value in by_name.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


_SESSION_LOGS = (YOUNG, DUE, REST, SESSIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """`frames`: open slices of event time, None for sessions, processors and joins. rows: the rows of frames, of
    sessions before parts are merged, of a processor's logs, or waiting rows of a join. oldest_ms: the start of the
    oldest frame, the first end of a session, or the earliest row of a join, if known.
    """

    frames: int | None
    rows: int
    size_bytes: int
    oldest_ms: int | None


def summary(blobs: Mapping[str, int], state: Mapping[str, Any]) -> Summary:
    """Return the summary of a bucket. blobs: name → bytes; state: the manifest of its operator."""
    rows = state.get("rows", {})
    size_bytes = sum(blobs.values())
    if "own" in state:  # a processor's, whose logs may have any names
        return Summary(frames=None, rows=sum(rows.values()), size_bytes=size_bytes, oldest_ms=None)
    logs = {name.partition(PART)[0] for name in blobs}
    starts = [int(name.removeprefix(FRAME)) for name in logs if name.startswith(FRAME)]
    if "open" in state:  # of kept messages
        windows, messages, first = state["open"]
        return Summary(frames=windows, rows=messages, size_bytes=size_bytes, oldest_ms=first if windows else None)
    if any(name.startswith(_SESSION_LOGS) for name in logs):
        ends = [state.get("young_end"), state.get("rest_end"), *(first for _, first, _ in state.get("due", ()))]
        rows_held = sum(count for name, count in rows.items() if name.startswith(_SESSION_LOGS))
        first = min((end for end in ends if end is not None), default=None)
        return Summary(frames=None, rows=rows_held, size_bytes=size_bytes, oldest_ms=first)
    if "received" in state:  # a join's
        slices = [one for side in ("left", "right", "waiting") for one in state.get(side, ())]
        changes = state.get("changes", ())
        old = changes[0] if len(changes) > 2 else ()
        rows_held = sum(one[1] for one in (*slices, *old)) + sum(rows.values())
        oldest_ms = min((one[3] for one in slices), default=None)
        return Summary(frames=None, rows=rows_held, size_bytes=size_bytes, oldest_ms=oldest_ms)
    if "accounts" in state:  # of a join of windows: the messages taken on both sides, less the released ones
        counts = state["accounts"]
        removed = sum(one.get(name, 0) for one in counts for name in ("expired", "dropped_messages"))
        accepted = sum(one.get("taken", 0) for one in counts)
        return Summary(frames=None, rows=accepted - removed, size_bytes=size_bytes, oldest_ms=None)
    rows_held = sum(count for name, count in rows.items() if name.startswith(FRAME))
    return Summary(frames=len(starts), rows=rows_held, size_bytes=size_bytes, oldest_ms=min(starts, default=None))


_EVERY_S = 10.0  # between the end of one reading and the next
Newest = Callable[[], StatePicture | None]
Operators = Callable[[Files], Iterable[tuple[OperatorState, Any]]]


def is_of_store(operator: OperatorState) -> bool:
    """Whether an operator keeps its messages."""
    return (operator.description or {}).get(KIND) == STORE


def buckets_of(operator: OperatorState) -> list[Summary]:
    """Return the summary of each bucket."""
    pairs = zip(operator.manifests, operator.states, strict=True)
    return [summary(manifest["blobs"], state) for manifest, state in pairs]


def watermark_ms(description: Mapping[str, Any], state: Mapping[str, Any]) -> int | None:
    """Return the watermark; for a join the lowest of its sides. A store notes it with its windows of time."""
    if "received" in state:
        return min(state["received"].values(), default=None)
    if "axes" in state and not kind_in(description).is_rows:
        of_inputs = [state["axes"].get(str(number), {}).get("horizon") for number in range(len(state["accounts"]))]
        return None if None in of_inputs else min(of_inputs)
    return state.get("watermark_ms", state.get("watermark"))


def picture_of(operator: OperatorState) -> OperatorPicture:
    """Return the summary of an operator over its buckets."""
    buckets = buckets_of(operator)
    windows = [one.frames for one in buckets if one.frames is not None]
    has_windows = bool(windows) and operator.kind == "aggregate"
    sizes = [one.size_bytes for one in buckets]
    description = operator.description or {}
    watermarks = [watermark_ms(description, one) for one in operator.states]
    return OperatorPicture(
        kind=operator.kind, name=operator.name, buckets=len(buckets), windows=max(windows) if has_windows else None,
        rows=sum(one.rows for one in buckets), state_bytes=sum(sizes), largest=sizes.index(max(sizes)),
        largest_bytes=max(sizes),
        oldest_ms=min((one.oldest_ms for one in buckets if one.oldest_ms is not None), default=None),
        watermark_ms=min((ms for ms in watermarks if ms is not None), default=None),
    )  # fmt: skip


def read_state(read: Operators, files: Files, now_ms: int) -> StatePicture:
    """Read all operators. No operator is no error; the picture says if the state cannot be read now."""
    try:
        operators: Sequence[OperatorState] = ()
        if files.names(STATE) is not None:
            operators = [operator for operator, _ in read(files)]
        return StatePicture(taken_ms=now_ms, operators=tuple(map(picture_of, operators)), trouble=None)
    except KeyedwmError as error:  # the query runs meanwhile, and deletes states that it no longer needs
        return StatePicture(taken_ms=now_ms, operators=(), trouble=error.message)


@contextmanager
def state_reader(files: Files, now_ms: Callable[[], int], *, live: bool) -> Iterator[Newest]:
    """Start Spark, and return a function that returns the newest state. live: read the state repeatedly."""
    from keyedwm.spark.api.savepoint import read_operators  # before the session is there, which it prepares

    with checkpoint_session() as spark:
        read = partial(read_operators, spark)
        newest = [read_state(read, files, now_ms())]
        if not live:
            yield lambda: newest[0]
            return
        ended = threading.Event()

        def again() -> None:
            while not ended.wait(_EVERY_S):
                newest[0] = read_state(read, files, now_ms())

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        try:
            yield lambda: newest[0]
        finally:
            ended.set()
            thread.join(_EVERY_S)
