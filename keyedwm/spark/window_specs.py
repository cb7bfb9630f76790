"""Windows and early panes as a user writes them: durations are Spark interval strings."""

from __future__ import annotations

from keyedwm.core.options import choice, duration_ms, whole
from keyedwm.core.touching import Touching
from keyedwm.windows.plan import Early, EveryBy, SessionWindow, SlidingWindow
from keyedwm.windows.store import plan
from keyedwm.windows.store.on_demand import OnDemandWindow
from keyedwm.windows.store.plan import HoppingWindow, KeyRowWindow, RowWindow, SessionRowWindow


def tumbling(size: str, offset: str = "0 seconds") -> SlidingWindow:
    """Windows `[start, start + size)` that meet end to end; `offset` moves them from the epoch.

    Raises OptionError unless 0 <= offset < size.
    """
    return sliding(size, size, offset)


def sliding(size: str, slide: str, offset: str = "0 seconds") -> SlidingWindow:
    """Windows of `size`, one every `slide` (hopping windows).

    Raises OptionError unless the slide divides the size and 0 <= offset < slide.
    """
    return SlidingWindow(duration_ms("size", size), duration_ms("slide", slide), duration_ms("offset", offset))


def hopping(size: str, step: str, offset: str = "0 seconds") -> HoppingWindow:
    """Windows of `size`, one every `step` of any ratio, also one larger than the size; they need a store.

    Raises OptionError unless size and step are above 0 and 0 <= offset < step.
    """
    return HoppingWindow(duration_ms("size", size), duration_ms("step", step), duration_ms("offset", offset))


def on_demand(size: str, opens: str) -> OnDemandWindow:
    """Windows of `size` of a key, one from each row on for which the condition `opens` is true; they need a store.

    opens: a comparison of the row's columns as SQL writes it, `kind = 'alarm'`. Raises OptionError unless the size is
    above 0.
    """
    return OnDemandWindow(duration_ms("size", size), opens)


def tumbling_rows(rows: int) -> RowWindow:
    """Windows of so many offsets of a topic and partition, end to end from its first message on; they need a store.

    Raises OptionError unless the number is above 0.
    """
    return plan.tumbling_rows(whole("rows", str(rows)))


def hopping_rows(size: int, step: int) -> RowWindow:
    """Windows of `size` offsets of a topic and partition, one every `step` offsets; they need a store.

    Raises OptionError unless both are above 0.
    """
    return RowWindow(whole("size", str(size)), whole("step", str(step)))


def tumbling_key_rows(rows: int) -> KeyRowWindow:
    """Windows of so many messages of a key in a topic and partition, end to end; they need a store.

    Raises OptionError unless the number is above 0.
    """
    return plan.tumbling_key_rows(whole("rows", str(rows)))


def hopping_key_rows(size: int, step: int) -> KeyRowWindow:
    """Windows of `size` messages of a key in a topic and partition, one every `step` of its messages.

    They need a store. Raises OptionError unless both are above 0.
    """
    return KeyRowWindow(whole("size", str(size)), whole("step", str(step)))


def session_rows(between: int) -> SessionRowWindow:
    """Messages of a key in a topic and partition with at most `between` offsets from one to the next; needs a store.

    Raises OptionError unless the number is 0 or more.
    """
    return plan.session_rows(whole("between", str(between), at_least=0))


def session(gap: str, touching: str = "merge") -> SessionWindow:
    """Rows of a key less than `gap` apart; exactly `gap` apart they merge, or stay `separate` (rule 11).

    Raises OptionError unless the gap is above 0 and `touching` is merge or separate.
    """
    return SessionWindow(duration_ms("gap", gap), choice("touching", touching, Touching))


def early(rows: int | None = None, every: str | None = None, by: str = EveryBy.CLOCK.value) -> Early:
    """Panes before the watermark: after `rows` new rows of a window, every so often if there is news, or both.

    by: whether `every` is wall-clock time (`clock`) or `event` time, that is how far the watermark moves between panes.
    Raises OptionError without either, and unless both are above 0.
    """
    return Early(
        rows=None if rows is None else whole("rows", str(rows)),
        every_ms=None if every is None else duration_ms("every", every),
        by=choice("by", by, EveryBy),
    )
