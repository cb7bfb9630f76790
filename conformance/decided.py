"""What the design decides otherwise than the window vectors: the reasons, which `pane_rules.py` holds against a run."""

from __future__ import annotations

from collections.abc import Mapping

AT_ONCE = "rule 11: a late pane comes at once"
NO_CLOSING = "a window whose allowed lateness is over says nothing more"
NOT_EMPTY = "a window without rows says nothing"
BEFORE_ZERO = "rule 8: there are windows before time 0 as well"
ROW_TIME = "a result's event time is its window's end"
REPEATS = "an early trigger repeats: it comes again after as many rows more, or the time more"
ALWAYS = "the pane on time always comes, also if nothing is new since the last early one"
AT_END = "the pane on time always comes, whatever brought the early ones"
GOES_ON = "rows speak as long as their window takes them, and open a session that is gone anew"
NEAREST = "no setting for this trigger: panes come with each row, and when the window is over"
LAST = "no pane is the last one while rows are allowed late, and without lateness the pane on time is"
MIN_RETENTION = "a store keeps a window at least as long as the window is"
SPLIT = "a session ends when its gap is over, whenever timers run"
CLOCK_DUE = "what is due by the clock comes when its time is reached, not a millisecond later"
CLOCK_FIRST = "an early pane that the clock brings comes before the pane on time"
EVERY_ROW = "a join meets every row of a key within its time, not the newest alone"
BY_WINDOW = "a row is late when no window takes it any more"
NO_GLOBAL = "no window over everything: one that is long enough takes its place"
CLOSES = "rule 11: sessions that touch merge and close above their end, or neither"
_BY_MESSAGE = "a full window speaks with the first message past its end, and late ones wait from the first of them"
# vector -> why, and our answers at the steps that differ: of the operators that keep messages
DECIDED: Mapping[str, tuple[str, Mapping[int, list[dict]]]] = {
    "seed-aggregate-time-max": (
        _BY_MESSAGE,
        {
            1: [{"window": [32_340_000, 32_400_000], "result": 0, "timing": "on_time"}],
            2: [{"window": [32_400_000, 32_460_000], "result": 5, "timing": "early"}],
            5: [],
        },
    ),
}
