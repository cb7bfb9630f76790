"""The oracle files: answers of the peers' own classes to random operation sequences, one JSON object per line.

Rule: a normative line must be answered alike. For any other line the line itself says what the design answers
(`design`) and where the peer leaves it (`differs_at`); the answer must be the design's, and differ exactly from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.oracle_coalescing import COALESCING
from conformance.oracle_sources import SOURCES
from conformance.oracle_windows import WINDOWS
from conformance.players import Maker, Player
from conformance.verdict import MATCH, Verdict, compare, fail, first_difference, otherwise
from keyedwm.core.errors import KeyedwmError

PLAYERS: Mapping[str, Maker] = {**COALESCING, **SOURCES, **WINDOWS}
UNCOMPARED = ("active", "removed")
LATE_RULES = {"ts": "event", "frame": "frame", "window": "window"}


def is_oracle(value: object) -> bool:
    """Whether a JSON value is an oracle line."""
    return isinstance(value, dict) and {"oracle", "config", "ops", "out"} <= value.keys()


def replay(line: dict) -> Verdict:
    """Replay one line."""
    make = PLAYERS.get(line["oracle"])
    if make is None:
        return fail(f"oracle {line['oracle']!r} is not known; known are {', '.join(sorted(PLAYERS))}")
    peer = [_compared(items) for items in line["out"]]
    normative = line.get("normative", True)
    for settings in _settings(line):
        config = {**line["config"], **settings}
        actual = [_compared(items) for items in play(make(config), line["ops"])]
        expected = peer if normative else [_compared(items) for items in _design(line, settings)]
        verdict = compare(expected, actual)
        if verdict is not MATCH:
            return verdict
        if not normative and first_difference(peer, actual) is None:
            return fail("the design decides otherwise, but the peer's answer came out", line.get("differs_at"))
    if normative:
        return MATCH
    return otherwise(", ".join(line["why"]), line.get("differs_at"))


def play(player: Player, ops: list) -> list[list]:
    """The answers to operations, up to and including the first refusal."""
    answers: list[list] = []
    for name, *arguments in ops:
        answers.append(_answer(player, name, arguments))
        if answers[-1][:1] == [["error"]]:
            break
    return answers


def _answer(player: Player, name: str, arguments: list) -> list:
    try:
        return player(name, arguments)
    except KeyedwmError:
        return [["error"]]


def _compared(items: list) -> list:
    """What is judged: no `active`, an error whatever its words, keys that come together in any order."""
    answers: list[list] = []
    for item in items:
        if item[0] in UNCOMPARED:
            continue
        answers.append(item[:1] if item[0] == "error" else item)
        if _is_keyed(answers[-1]):
            start = len(answers) - 1
            while start and _is_keyed(answers[start - 1]):
                start -= 1
            answers[start:] = sorted(answers[start:], key=lambda each: each[1])
    return answers


def _is_keyed(item: list) -> bool:
    return item[0] == "wm" and len(item) == 3


def _settings(line: dict) -> list[dict]:
    """The readings of the design under which a line is to be replayed."""
    if "touching" in line:
        return [{"touching": mode} for mode in (line["touching"] or ("merge", "separate"))]
    if "late_policies" in line and line.get("normative", True):
        return [{"late_rule": LATE_RULES[policy]} for policy in line["late_policies"]]
    return [{}]


def _design(line: dict, settings: dict) -> list:
    design = line["design"]
    return design[settings["touching"]] if isinstance(design, dict) else design
