"""Window vectors of which a rule of the design decides otherwise: why, and our answers at the steps that differ."""

from __future__ import annotations

from collections.abc import Mapping

_AT_ONCE = "rule 11: a late pane comes at once"
_NO_CLOSING = "a window whose allowed lateness is over says nothing more"
_BEFORE_ZERO = "rule 8: there are windows before time 0 as well"
ROW_TIME = "a result's event time is its window's end"
DIVIDES = "a slide must divide the size"
_LATE, _LAST_LATE = {"start": 0, "end": 10, "timing": "LATE"}, {"start": 2500, "end": 2510, "value": 1}
_REPEATS = "an early trigger repeats: it comes again after as many rows more, or the time more"
ALWAYS = "the pane on time always comes, also if nothing is new since the last early one"
_BY_MESSAGE = "a full window speaks with the first message past its end, and late ones wait from the first of them"
_SAMZA = {"start": 0, "end": 1_000, "key": 1}
# vector -> why, and our answers at the steps that differ
DECIDED: Mapping[str, tuple[str, Mapping[int, list[dict]]]] = {
    "session-lateness-inside": (_AT_ONCE, {3: [_LAST_LATE], 4: [{"start": 3700, "end": 3710, "value": 1}]}),
    "beam-closing-fire-always": (_NO_CLOSING, {3: []}),
    "beam-late-hold-until-expiry": (_AT_ONCE, {2: [{**_LATE, "value": [2]}], 3: []}),
    "beam-session-early-late": (
        _AT_ONCE,
        {5: [{"start": 1, "end": 16, "timing": "LATE", "values": [1, 1, 2, 3, 4, 5, 6]}]},
    ),
    "beam-pane-early-ontime-late-final": (
        _AT_ONCE,
        {
            **{
                at: [{**_LATE, "value": value}] for at, value in ((8, 7), (9, 8), (10, 9), (12, 10), (14, 11), (16, 12))
            },
            15: [],
            17: [],
        },
    ),
    "beam-hold-ignores-late-elements": (ROW_TIME, {}),
    "beam-output-time-earliest": (ROW_TIME, {}),
    "stream-hopping-10-5-out-of-order": (
        _BEFORE_ZERO,
        {6: [{"start": -5, "end": 5, "value": 1}, {"start": 0, "end": 10, "value": 1}]},
    ),
    "stream-two-windows-share-slices": (
        _BEFORE_ZERO,
        {
            5: [
                {"start": -5, "end": 5, "value": 1, "name": "h"},
                {"start": 0, "end": 10, "value": 1, "name": "h"},
                {"start": 10, "end": 20, "value": 2, "name": "h"},
                {"start": 0, "end": 20, "value": 3, "name": "t"},
            ]
        },
    ),
    "samza-any-trigger": (
        _REPEATS,
        {
            4: [{**_SAMZA, "value": 4, "timing": "EARLY"}],
            7: [{**_SAMZA, "value": 5, "timing": timing} for timing in ("EARLY", "ON_TIME")],
        },
    ),
    "samza-once-trigger": (_REPEATS, {3: [{**_SAMZA, "value": 4, "timing": "EARLY"}]}),
    "samza-tumbling-keyed-discarding": (
        ALWAYS,
        {10: [{**_SAMZA, "key": key, "value": value, "timing": "ON_TIME"} for key, value in ((1, 0), (2, 0), (3, 1))]},
    ),
    "seed-aggregate-time-max": (
        _BY_MESSAGE,
        {
            1: [{"window": [32_340_000, 32_400_000], "result": 0, "timing": "on_time"}],
            2: [{"window": [32_400_000, 32_460_000], "result": 5, "timing": "early"}],
            5: [],
        },
    ),
}

# family -> what the product has instead
NO_COUNTERPART: Mapping[str, str] = {
    "samza.join": "a join is bounded by event times, not by how long ago a message came",
}
