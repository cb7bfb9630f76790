"""The words in which a vector tells its trigger, read into a tree.

Rule: `NAME`, `NAME(part, ...)`, `NAME(early=..., late=...)`, `N ms after first element of pane`, `A or-finally B`. A
word that is not known is a trigger of that name; text that is none of this is one trigger called by the whole text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SINCE_FIRST, OR_FINALLY, NUMBER = "since_first", "or-finally", "number"
_AFTER_FIRST = re.compile(r"(\d+) ms after first element of pane")
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_-]*|\d+|[(),=])")


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger. number: of rows, or ms. parts: the triggers it is made of. named_parts: triggers with a name."""

    name: str
    number: int = 0
    parts: tuple[Trigger, ...] = ()
    named_parts: tuple[tuple[str, Trigger], ...] = field(default=())

    def part(self, name: str) -> Trigger | None:
        """The part that was given by this name."""
        return dict(self.named_parts).get(name)


def read_trigger(trigger_text: str) -> Trigger:
    """Read a trigger."""
    text = _AFTER_FIRST.sub(rf"{SINCE_FIRST}(\1)", trigger_text)
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            return Trigger(trigger_text)
        tokens.append(match[1])
        at = match.end()
    try:
        read = _Reader(tokens)
        trigger = read.whole()
    except (IndexError, ValueError):
        return Trigger(trigger_text)
    return trigger if read.at == len(tokens) else Trigger(trigger_text)


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self.at = 0

    def whole(self) -> Trigger:
        trigger = self._one()
        while self._next() == OR_FINALLY:
            self.at += 1
            trigger = Trigger(OR_FINALLY, parts=(trigger, self._one()))
        return trigger

    def _next(self) -> str:
        return self._tokens[self.at] if self.at < len(self._tokens) else ""

    def _next_token(self) -> str:
        self.at += 1
        return self._tokens[self.at - 1]

    def _one(self) -> Trigger:
        word = self._next_token()
        if word.isdigit():
            return Trigger(NUMBER, int(word))
        if word in {"(", ")", ",", "="}:
            raise ValueError(f"a trigger is expected, {word!r} is none")
        if self._next() != "(":
            return Trigger(word)
        parts: list[Trigger] = []
        named_triggers: list[tuple[str, Trigger]] = []
        while self._next_token() != ")":
            if self._next() == ")":
                continue
            if self._tokens[self.at + 1] == "=":
                name = self._next_token()
                self.at += 1
                named_triggers.append((name, self.whole()))
            else:
                parts.append(self.whole())
            if self._next() not in {",", ")"}:
                raise ValueError("a comma or the end of the parts is expected")
        number = next((one.number for one in parts if one.name == NUMBER), 0)
        return Trigger(word, number, tuple(one for one in parts if one.name != NUMBER), tuple(named_triggers))
