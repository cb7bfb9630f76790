"""The operators of a checkpoint and what they hold, by Spark's own state reader.

Rule: it only reads; the query may be stopped or run, the answer is that of its last committed batch. Reading takes
seconds, so a live view has it done in a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from keyedwm.cli.checkpoint_session import checkpoint_session
from keyedwm.cli.query.picture import OperatorPicture, StatePicture
from keyedwm.core.errors import KeyedwmError
from keyedwm.operators.messages.read_only_store import kind_in
from keyedwm.operators.messages.store_description import STORE
from keyedwm.operators.state.description import KIND
from keyedwm.operators.summary import Summary, summary
from keyedwm.savepoint_files import STATE, Files, OperatorState

_EVERY_S = 10.0  # between the end of one reading and the next
Newest = Callable[[], StatePicture | None]
Operators = Callable[[Files], Iterable[tuple[OperatorState, Any]]]


def is_of_store(operator: OperatorState) -> bool:
    """Whether an operator keeps its messages."""
    return (operator.description or {}).get(KIND) == STORE


def buckets_of(operator: OperatorState) -> list[Summary]:
    """Return what each bucket holds."""
    pairs = zip(operator.manifests, operator.states, strict=True)
    return [summary(manifest["blobs"], state) for manifest, state in pairs]


def watermark_ms(description: Mapping[str, Any], state: Mapping[str, Any]) -> int | None:
    """Where event time stands, in a join the lowest of its sides; a store notes it with its windows of time."""
    if "received" in state:
        return min(state["received"].values(), default=None)
    if "axes" in state and not kind_in(description).is_rows:
        of_inputs = [state["axes"].get(str(number), {}).get("horizon") for number in range(len(state["accounts"]))]
        return None if None in of_inputs else min(of_inputs)
    return state.get("watermark_ms", state.get("watermark"))


def picture_of(operator: OperatorState) -> OperatorPicture:
    """Sum an operator up over its buckets."""
    held = buckets_of(operator)
    windows = [one.frames for one in held if one.frames is not None]
    has_windows = bool(windows) and operator.kind == "aggregate"
    sizes = [one.size_bytes for one in held]
    description = operator.description or {}
    watermarks = [watermark_ms(description, one) for one in operator.states]
    return OperatorPicture(
        kind=operator.kind, name=operator.name, buckets=len(held), windows=max(windows) if has_windows else None,
        rows=sum(one.rows for one in held), state_bytes=sum(sizes), largest=sizes.index(max(sizes)),
        largest_bytes=max(sizes),
        oldest_ms=min((one.oldest_ms for one in held if one.oldest_ms is not None), default=None),
        watermark_ms=min((ms for ms in watermarks if ms is not None), default=None),
    )  # fmt: skip


def read_state(read: Operators, files: Files, now_ms: int) -> StatePicture:
    """Read all operators; none is no error, and what cannot be read now is said in the picture."""
    try:
        held: Sequence[OperatorState] = ()
        if files.names(STATE) is not None:
            held = [operator for operator, _ in read(files)]
        return StatePicture(taken_ms=now_ms, operators=tuple(map(picture_of, held)), trouble=None)
    except KeyedwmError as error:  # the query goes on meanwhile, and deletes states that it no longer needs
        return StatePicture(taken_ms=now_ms, operators=(), trouble=error.message)


@contextmanager
def state_reader(files: Files, now_ms: Callable[[], int], *, live: bool) -> Iterator[Newest]:
    """Start Spark, and give a function that returns the newest state; live: it is read again and again."""
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
