"""Times, spans and names as the views print them, each in a few characters."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from keyedwm.arrow.instants import time_text
from keyedwm.core.text import about_span, printable
from keyedwm.kafka.client.values import TopicPartition

UNKNOWN = "?"
_MOST_LINES = 5  # of one sentence
_LEAST_WIDTH = 10  # the fewest columns of a layout


def line(text: str) -> Text:
    """One line, cut with an ellipsis where the terminal ends."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def whole(text: str, width: int) -> list[Text]:
    """Return a text that must not be cut off at the terminal's end, in several lines if needed."""
    parts = wrap(
        text, max(width, _LEAST_WIDTH), subsequent_indent="    ", break_on_hyphens=False,
        max_lines=_MOST_LINES, placeholder="…",
    )  # fmt: skip
    return [line(part) for part in parts]


def name_of(channel: TopicPartition, width: int) -> str:
    """Return the end of a long name, which has the number of the partition."""
    name = printable(str(channel))
    return name if len(name) <= width else f"…{name[1 - width :]}"


def second_text(time_ms: int | None) -> str:
    """Show a time to the second, in 19 characters; outside of the calendar as milliseconds."""
    text = time_text(time_ms)
    return text[:19].replace("T", " ") if text.endswith("Z") else text


def ago(time_ms: int | None, now_ms: int) -> str:
    """Show how long ago a time was."""
    return "time not known" if time_ms is None else f"{span(max(now_ms - time_ms, 0))} ago"


def against_clock(time_ms: int | None, now_ms: int) -> str:
    """Show how far an event time is from the clock, after a comma; nothing for none."""
    if time_ms is None:
        return ""
    side = "behind" if time_ms <= now_ms else "ahead of"
    return f", {span(abs(now_ms - time_ms))} {side} the clock"


def span(span_ms: int | None, none: str = UNKNOWN) -> str:
    """Show a span in the largest unit of which it has at least two."""
    return none if span_ms is None else about_span(span_ms)


def size(size_bytes: int) -> str:
    """Show a number of bytes in the largest unit of which it has at least two."""
    for exponent, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 2 << exponent:
            return f"{size_bytes >> exponent} {name}"
    return f"{size_bytes} bytes"


def or_unknown(number: int | None) -> str:
    """Show a number that may not be known."""
    return UNKNOWN if number is None else str(number)
