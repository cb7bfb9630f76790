"""The window files: one JSON object each, by `family`. The families that the pure algebra alone decides.

Rule: with `compare.partial` only fields that the expected output lists are compared, with order `any` a step's outputs
are a multiset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from keyedwm.cli.conformance.verdict import Verdict, compare, fail
from keyedwm.core.frames import floor_frame

SCHEMA = "keyedwm.windows.vector/1"


def is_windows(value: object) -> bool:
    """Whether a JSON value is a window file."""
    return isinstance(value, dict) and value.get("schema") == SCHEMA


def replay(vector: dict) -> Verdict:
    """Replay one file."""
    play = FAMILIES.get(vector["family"])
    if play is None:
        return fail(f"window family {vector['family']!r} is not known; known are {', '.join(sorted(FAMILIES))}")
    return play(vector)


def _assign(vector: dict) -> Verdict:
    config = vector["config"]
    size_ms, slide_ms = config["size"], config.get("slide", config["size"])
    expected, made = [], []
    for case in vector["cases"]:
        last_ms = floor_frame(case["ts"], slide_ms, config.get("offset", 0) % slide_ms)
        starts = range(last_ms, case["ts"] - size_ms, -slide_ms)
        made.append(sorted([start_ms, start_ms + size_ms] for start_ms in starts))
        expected.append(sorted(case["windows"]))
    return compare(expected, made)


FAMILIES: Mapping[str, Callable[[dict], Verdict]] = {"assign": _assign}
