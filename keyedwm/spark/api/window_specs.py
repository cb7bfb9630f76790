"""Windows, early panes and watermarks of keys as a user writes them: durations are Spark interval strings."""

from __future__ import annotations

from collections.abc import Sequence

from keyedwm.config.validation import choice, duration_ms, months_of, names_months, offset_ms, whole
from keyedwm.core.errors import OptionError
from keyedwm.core.text import short_repr, span_text
from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import FrameWindow, RowGapWindow, SessionWindow, SlidingWindow
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.messages import windows
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.windows import HoppingWindow, KeyRowWindow, RowWindow, SessionRowWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.spark.api.store import Store


def tumbling(size: str, offset: str = "0 seconds", *, zone: str | None = None) -> FrameWindow:
    """Windows `[start, start + size)`, end to end from the epoch; `offset` shifts them, a negative offset back.

    zone: the time zone whose clock sets hours, days, weeks (from Monday) and months, such as "Europe/Berlin". Without a
    zone it is UTC, and weeks begin on Thursday, as in Spark. Raises OptionError unless -size < offset < size.
    """
    return sliding(size, size, offset, zone=zone)


def sliding(size: str, slide: str, offset: str = "0 seconds", *, zone: str | None = None) -> FrameWindow:
    """Windows of `size`, one every `slide` (hopping windows); zone: as for `tumbling`.

    Raises OptionError unless the slide divides the size and -slide < offset < slide.
    """
    if zone is not None and not isinstance(zone, str):
        raise OptionError(f"zone={zone!r}: the name of a time zone is expected, such as 'Europe/Berlin'")
    months, slide_months, later_ms = months_of(size), months_of(slide), offset_ms("offset", offset)
    if months is not None and slide_months is not None:
        return _zoned("UTC" if zone is None else zone, (months, slide_months), later_ms, are_months=True)
    if zone is not None and months is None and slide_months is None:
        return _zoned(zone, (duration_ms("size", size), duration_ms("slide", slide)), later_ms)
    if names_months(size) or names_months(slide):
        raise OptionError(
            f"a window of {short_repr(size)} every {short_repr(slide)}: whole months, quarters or years are expected "
            "for both, or for none, as months differ in length"
        )
    size_ms, slide_ms = duration_ms("size", size), duration_ms("slide", slide)
    return SlidingWindow(size_ms, slide_ms, _forward(later_ms, slide_ms))


def _zoned(zone: str, lengths: tuple[int, int], later_ms: int, *, are_months: bool = False) -> ZonedWindow:
    """A window of a zone's clock. lengths: size and slide."""
    size, slide = lengths
    if slide < 1 or size < 1 or size % slide:
        texts = [f"{one} months" if are_months else span_text(one) for one in lengths]
        raise OptionError(f"a window of {texts[0]} every {texts[1]}: the slide must be above 0 and divide the size")
    frames_each = size // slide
    if are_months:
        return ZonedWindow(zone, 0, slide, frames_each, later_ms)
    return ZonedWindow(zone, slide, 0, frames_each, _forward(later_ms, slide))


def _forward(later_ms: int, slide_ms: int) -> int:
    """An offset of 0 or more that gives the same windows."""
    if slide_ms and abs(later_ms) >= slide_ms:
        raise OptionError(
            f"the offset of a window is {span_text(later_ms)}, it must be nearer to 0 than the step from window to "
            f"window, {span_text(slide_ms)}"
        )
    return later_ms + slide_ms if later_ms < 0 else later_ms


def hopping(size: str, step: str, offset: str = "0 seconds", *, zone: str | None = None) -> HoppingWindow:
    """Windows of `size`, one every `step`; they need a store.

    The step need not divide the size, and may be larger than it. Raises OptionError unless size and step are above 0
    and -step < offset < step; also if a zone is given, since windows with a store have no zone.
    """
    if zone is not None:
        raise OptionError(
            f"hopping: zone={zone!r}: windows that keep their messages have one length, and days of a time zone have "
            "not: take sliding(size, slide, zone=...) without a store"
        )
    step_ms = duration_ms("step", step)
    return HoppingWindow(duration_ms("size", size), step_ms, _forward(offset_ms("offset", offset), step_ms))


def on_demand(size: str, opens: str) -> OnDemandWindow:
    """Windows of `size` of a key; they need a store. Each row for which `opens` is true starts a window.

    opens: a comparison of the row's columns as SQL writes it, `kind = 'alarm'`. Raises OptionError unless the size is
    above 0.
    """
    return OnDemandWindow(duration_ms("size", size), opens)


def tumbling_rows(rows: int) -> RowWindow:
    """Windows of `rows` offsets of a topic and partition, end to end from its first message on; they need a store.

    Raises OptionError unless the number is above 0.
    """
    return windows.tumbling_rows(whole("rows", str(rows)))


def hopping_rows(size: int, step: int) -> RowWindow:
    """Windows of `size` offsets of a topic and partition, one every `step` offsets; they need a store.

    Raises OptionError unless both are above 0.
    """
    return RowWindow(whole("size", str(size)), whole("step", str(step)))


def tumbling_key_rows(rows: int) -> KeyRowWindow:
    """Windows of `rows` messages of a key in a topic and partition, end to end; they need a store.

    Raises OptionError unless the number is above 0.
    """
    return windows.tumbling_key_rows(whole("rows", str(rows)))


def hopping_key_rows(size: int, step: int) -> KeyRowWindow:
    """Windows of `size` messages of a key in a topic and partition, one every `step` of its messages.

    They need a store. Raises OptionError unless both are above 0.
    """
    return KeyRowWindow(whole("size", str(size)), whole("step", str(step)))


def session_rows(between: int) -> SessionRowWindow:
    """Messages of a key in a topic and partition with at most `between` offsets from one to the next; needs a store.

    Raises OptionError unless the number is 0 or more.
    """
    return windows.session_rows(whole("between", str(between), at_least=0))


def session(
    gap: str | None = None, touching: str = "merge", *, gap_column: str | None = None, zone: str | None = None
) -> SessionWindow:
    """Rows of a key less than `gap` apart; exactly `gap` apart they merge, or stay `separate` (rule 11).

    gap_column: a column with the gap behind each row, an INTERVAL DAY TO SECOND, instead of `gap`. Rows in which it is
    null, 0 or less belong to no session, as with Spark's `session_window`. gap_column cannot be used with a store, nor
    with a source that is not loaded.

    Raises OptionError unless the gap is above 0, either `gap` or `gap_column` is given, and `touching` is merge or
    separate; also if a zone is given, as a gap is the same length of time by every clock.
    """
    if zone is not None:
        raise OptionError(
            f"session: zone={zone!r}: a gap is a length of time, which no time zone changes: leave it out"
        )
    joined = choice("touching", touching, Touching)
    if gap_column is None:
        if gap is None:
            raise OptionError("session: a gap such as '10 minutes' is expected, or gap_column='the column that has it'")
        return SessionWindow(duration_ms("gap", gap), joined)
    if gap is not None or not isinstance(gap_column, str) or not gap_column:
        raise OptionError(f"session: gap={gap!r}, gap_column={gap_column!r}: a gap or the name of a column is expected")
    return RowGapWindow(touching=joined, gap_column=gap_column)


def early(rows: int | None = None, every: str | None = None, by: str = EveryBy.CLOCK.value) -> Early:
    """Panes before the watermark: after `rows` new rows of a window, after each `every` with new rows, or both.

    by: whether `every` is wall-clock time (`clock`) or `event` time, that is how far the watermark moves between panes.
    Raises OptionError if both are missing, or one is not above 0.
    """
    return Early(
        rows=None if rows is None else whole("rows", str(rows)),
        every_ms=None if every is None else duration_ms("every", every),
        by=choice("by", by, EveryBy),
    )


def per_key(
    lag: str,
    *,
    behind: str | None = None,
    by: str | Sequence[str] | None = None,
    idle: str | None = None,
    partitions: str = "slowest",
) -> PerKey:
    """A watermark for each key, its highest event time less `lag`, for `aggregate`, `process` and `running`.

    behind, which is required: how far a key may be behind the watermark of all. (watermark of all - behind) closes the
    windows of every key and is the watermark of the results. by: the key columns that own a watermark, by default all
    of them. idle: if a key has no row while the watermark of all rises by this much, the key's windows close by the
    watermark of all. partitions: a key that comes from several partitions follows the `slowest` of these partitions (at
    most `behind` below the watermark of all), or the `fastest`. See docs/how-to/per-key-watermarks.md.
    """
    if behind is None:
        raise OptionError(
            "per_key: behind is missing: it says how far a key may be behind the watermark of all, and bounds the "
            "state: give behind='1 day', for example"
        )
    return PerKey(
        lag_ms=duration_ms("lag of per_key()", lag),
        behind_ms=duration_ms("behind of per_key()", behind),
        by=(by,) if isinstance(by, str) else by,  # type: ignore[arg-type]  # PerKey accepts names only
        idle_ms=None if idle is None else duration_ms("idle of per_key()", idle),
        partitions=choice("partitions of per_key()", partitions, Partitions),
    )


def checked_key_watermark(value: object, asked_by: str) -> PerKey | None:
    """Return the argument; raise OptionError unless it is None or from `per_key`."""
    if value is not None and not isinstance(value, PerKey):
        raise OptionError(
            f"{asked_by}: key_watermark={value!r}: keyedwm.spark.per_key('15 minutes', behind='1 day') is expected"
        )
    return value


def window_key_watermark(value: object, window: object, store: Store | None) -> dict[str, PerKey]:
    """Return {'key_watermark': value} for the plan, {} if value is None.

    Raises OptionError for windows that keep messages.
    """
    per_key = checked_key_watermark(value, "aggregate")
    if per_key is None:
        return {}
    fits = isinstance(window, (SlidingWindow, ZonedWindow, SessionWindow))
    if store is not None or not fits:
        beside = "a store" if fits else f"a window of kind {type(window).__name__}"
        raise OptionError(
            f"aggregate: key_watermark stands beside {beside}: it is possible with tumbling, sliding and session "
            "windows, and without a store, whose messages follow one watermark: leave one of the two out"
        )
    return {"key_watermark": per_key}
