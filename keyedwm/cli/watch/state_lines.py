"""The operators of a query as a terminal shows them: a line for each."""

from __future__ import annotations

from rich.text import Text

from keyedwm.cli.query.picture import OperatorPicture, Picture
from keyedwm.cli.watch.words import ago, line, second_text, size


def state_lines(picture: Picture) -> list[Text]:
    """Say what the operators hold, if it was asked for."""
    state = picture.state
    if state is None:
        return []
    when = ago(state.taken_ms, picture.taken_ms)
    if state.trouble is not None:
        return [line(f"state ({when}): it cannot be read: {state.trouble}")]
    if not state.operators:
        return [line(f"state ({when}): no aggregate, processor or join")]
    return [line(_told(one, when)) for one in state.operators]


def _told(one: OperatorPicture, when: str) -> str:
    windows = "" if one.windows is None else f"{one.windows} windows open, "
    oldest = "" if one.oldest_ms is None else f", oldest {second_text(one.oldest_ms)}"
    largest = f"largest of {one.buckets} buckets {size(one.largest_bytes)} (number {one.largest})"
    return f"{one.kind} {one.name} ({when}): {windows}{one.rows} rows, {size(one.state_bytes)}, {largest}{oldest}"
