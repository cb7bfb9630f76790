"""Checks of columns, names and lengths that all plans over rows share: each raises OptionError."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from keyedwm.config.validation import MS, number, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates.aggregate_function import column_type
from keyedwm.operators.results import CONTROL, HIDDEN_PREFIX, PANE, WINDOW

# Types that Arrow does not compare, hash or sort → the cure for such a column.
_NO_KEYS = (
    (pa.types.is_nested, "take its parts, or a text of it"),
    (pa.types.is_null, "cast it to the type that its values will have"),
    (pa.types.is_float16, "cast it to float32"),
    (pa.types.is_interval, "take a number of its months, days or seconds"),
    (pa.types.is_string_view, "cast it to string"),
    (pa.types.is_binary_view, "cast it to binary"),
)
FARTHEST_MS = 2**52  # 140,000 years; a result's timestamp in microseconds must hold the window's end


def check_length(name: str, ms: int) -> None:
    """Raise OptionError if a length of time is too long for results."""
    if ms > FARTHEST_MS:
        raise OptionError(f"the {name} is {ms} ms, it must be {FARTHEST_MS} ms (140,000 years) or less")


def settle_spans(window: object, step: str) -> None:
    """Make plain numbers of the size, step and offset of a window in ms, or raise OptionError. step: its name."""
    size_ms, step_ms, offset_ms = (
        number(f"the {name} of a window", getattr(window, f"{name}_ms"), MS) for name in ("size", step, "offset")
    )
    for name, ms in (("size", size_ms), (step, step_ms)):
        if ms < 1:
            raise OptionError(f"the {name} of a window is {ms} ms, it must be 1 or more")
        check_length(f"{name} of a window", ms)
    if not 0 <= offset_ms < step_ms:
        raise OptionError(f"the offset of a window is {offset_ms} ms, it must be 0 or more and below {step_ms} ms")
    set_fields(window, **{"size_ms": size_ms, f"{step}_ms": step_ms, "offset_ms": offset_ms})


def check_aggregation(
    schema: pa.Schema,
    *,
    by: Sequence[str],
    time: str,
    order: Sequence[str],
    aggregates: Sequence[str],
    places: Sequence[str] = (),
) -> None:
    """Raise OptionError unless the columns of an aggregation exist and its results can have their names.

    aggregates: the names of their results. places: columns of the input that results have, besides `by`.
    """
    check_key_columns(schema, (*by, time, *order), by)
    check_time_column(schema, time)
    check_result_names((*by, *places, *aggregates), has_aggregates=bool(aggregates))


def check_result_names(names: Sequence[str], *, has_aggregates: bool) -> None:
    """Raise OptionError unless a result can have these columns beside its window and pane."""
    if not has_aggregates:
        raise OptionError("an aggregation needs at least one aggregate, for example count()")
    for name in names:
        if not name.strip():
            raise OptionError(f"a result column is called {name!r}: a name is expected, such as 'orders'")
        if name.lower() in (WINDOW, PANE, CONTROL) or name.startswith(HIDDEN_PREFIX):
            raise OptionError(
                f"a result column cannot be called {name!r}: {WINDOW}, {PANE}, {CONTROL} and names that begin with "
                f"{HIDDEN_PREFIX} are taken; give it another name"
            )
    lower = [name.lower() for name in names]  # Spark ignores the case of names
    doubled = sorted({name for name in names if lower.count(name.lower()) > 1})
    if doubled:
        raise OptionError(f"the result would have two columns called {doubled[0]!r}; name one of them differently")


def check_key_columns(schema: pa.Schema, columns: Sequence[str], by: Sequence[str]) -> None:
    """Raise OptionError unless the input has these columns and the columns of `by` can be keys."""
    for name in columns:
        column_type(schema, name)
    for name in by:
        check_key_type(name, column_type(schema, name))


def check_named_once(argument: str, columns: Sequence[str]) -> None:
    """Raise OptionError if a column is named twice: state and rows have it once.

    argument: the argument with the names.
    """
    twice = next((name for at, name in enumerate(columns) if name in columns[:at]), None)
    if twice is not None:
        raise OptionError(f"{argument} names the column {twice!r} twice: name it once")


def check_key_type(name: str, kind: pa.DataType, who: str = "") -> None:
    """Raise OptionError unless values of this type can be keys: compared, hashed and put in order."""
    cure = next((cure for is_such, cure in _NO_KEYS if is_such(kind)), None)
    if cure is not None:
        raise OptionError(f"{who}the key column {name!r} is of type {kind}, which cannot be a key: {cure}")


def check_time_column(schema: pa.Schema, name: str) -> None:
    """Raise OptionError unless a column can hold event times."""
    kind = column_type(schema, name)
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
        raise OptionError(
            f"the event-time column {name!r} is of type {kind}, it must be a timestamp or int64 milliseconds"
        )


def check_gap_column(schema: pa.Schema, name: str) -> None:
    """Raise OptionError unless a column can hold the gaps of sessions."""
    kind = column_type(schema, name)
    if not pa.types.is_duration(kind):
        raise not_a_gap(name, str(kind))


def not_a_gap(name: str, kind: str) -> OptionError:
    """Build the error for a column of a type that holds no gaps of sessions."""
    return OptionError(
        f"the gap column {name!r} of a session is of type {kind}, it must be an INTERVAL DAY TO SECOND, as of "
        "make_dt_interval(0, 0, minutes)"
    )
