"""The options `subscribe` and its like, `starting*` and `ending*`: topics, and first and last offsets of a read.

Rule (Spark's): a stream reads its start options only for a new checkpoint; later the offset log has the offsets. A
batch read resolves both ends when it is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.parsing import parse_json
from keyedwm.kafka.client.values import TopicPartition, check_topics

EARLIEST, LATEST = -2, -1
# Kafka's own: a pattern never matches them, as with `exclude.internal.topics` of the Java consumer.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
STARTING, ENDING = "starting", "ending"


class NoMatch(Enum):
    """The action for a partition without a record at or after the starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Topics:
    """The topics (and partitions) to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def select(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the topics to read, in name order. known: the cluster's topics, which a pattern is matched against."""
        if self.pattern is not None:
            return tuple(t for t in sorted(known) if t not in INTERNAL_TOPICS and re.fullmatch(self.pattern, t))
        return tuple(sorted(self.names or self.assigned or ()))

    def selects(self, channel: TopicPartition) -> bool:
        """Whether this channel is to be read, if the cluster has it."""
        if self.assigned is not None:
            return channel.partition in self.assigned.get(channel.topic, ())
        return bool(self.select([channel.topic])) if self.pattern is not None else channel.topic in self.names

    @property
    def option(self) -> str:
        """The name of the user's option."""
        if self.pattern is not None:
            return "subscribePattern"
        return "subscribe" if self.assigned is None else "assign"


@dataclass(frozen=True, kw_only=True, slots=True)
class OffsetBound:
    """The first or the end offset of each partition: by timestamp if set, else by offset, else by `word`.

    side: `starting` or `ending`, the beginning of the option's name. word: EARLIEST, LATEST, or None without an option.
    """

    side: str
    word: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[str, Mapping[int, int]] | None = None
    no_match: NoMatch = NoMatch.ERROR

    def word_of(self, place: tuple[str, int], default: int) -> int | None:
        """Return EARLIEST or LATEST if that is the bound of a (topic, partition), else None."""
        if self.timestamp_ms is not None or self.timestamps_ms is not None:
            return None
        if self.offsets is None:
            return default if self.word is None else self.word
        offset = self.offsets[place[0]][place[1]]
        return offset if offset in {EARLIEST, LATEST} else None

    @property
    def option_name(self) -> str | None:
        """The user's option, None without one."""
        if self.timestamp_ms is not None:
            return f"{self.side}Timestamp"
        if self.timestamps_ms is not None:
            return f"{self.side}OffsetsByTimestamp"
        return None if self.word is None and self.offsets is None else f"{self.side}Offsets"


def topics_of(options: Mapping[str, str]) -> Topics:
    """Parse `subscribe`, `subscribePattern` or `assign`. Raises OptionError unless exactly one is set."""
    selections = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in options]
    if len(selections) != 1:
        problem = "none of them is given" if not selections else f"{' and '.join(selections)} are given"
        raise OptionError(f"exactly one of the options subscribe, subscribePattern and assign is expected; {problem}")
    value = options[selections[0].lower()]
    if selections[0] == "subscribe":
        names = tuple(sorted({t.strip() for t in value.split(",")} - {""}))
        if not names:
            raise wrong("subscribe", value, "a comma list of topics is expected")
        check_topics("subscribe", names)
        return Topics(names=names)
    if selections[0] == "subscribePattern":
        if not value.strip():
            raise wrong("subscribePattern", value, "a regular expression is expected")
        try:
            re.compile(value)
        except re.error as e:
            raise wrong("subscribePattern", value, f"it is no regular expression: {e}") from None
        return Topics(pattern=value)
    hint = 'JSON such as {"topic": [0, 1]} is expected'
    parsed = _json("assign", value, hint)
    if not parsed or not all(isinstance(ps, list) and ps and all(map(_is_whole, ps)) for ps in parsed.values()):
        raise wrong("assign", value, hint)
    check_topics("assign", parsed)
    return Topics(assigned={t: tuple(sorted(set(ps))) for t, ps in sorted(parsed.items())})


def bound_of(options: Mapping[str, str], side: str) -> OffsetBound:
    """Parse one side's options. ...Timestamp overrides ...OffsetsByTimestamp, which overrides ...Offsets.

    side: `starting` or `ending`. An ending timestamp without a record after it means the end of the log, without error.
    """
    no_match = NoMatch.LATEST
    if side == STARTING:
        strategy = options.get("startingoffsetsbytimestampstrategy", "error")
        no_match = choice("startingOffsetsByTimestampStrategy", strategy, NoMatch)
    if (stamp := options.get(f"{side}timestamp")) is not None:
        if not re.fullmatch(r"\s*[0-9]{1,18}\s*", stamp):
            raise wrong(f"{side}Timestamp", stamp, "whole milliseconds since 1970, such as 1767225600000, are expected")
        return OffsetBound(side=side, timestamp_ms=int(stamp), no_match=no_match)
    if (stamps := options.get(f"{side}offsetsbytimestamp")) is not None:
        listed = _partition_map(f"{side}OffsetsByTimestamp", stamps, least=0)
        return OffsetBound(side=side, timestamps_ms=listed, no_match=no_match)
    value = options.get(f"{side}offsets")
    if value is None:
        return OffsetBound(side=side)
    if value.strip().lower() in {"earliest", "latest"}:
        return OffsetBound(side=side, word=EARLIEST if value.strip().lower() == "earliest" else LATEST)
    return OffsetBound(side=side, offsets=_partition_map(f"{side}Offsets", value, least=EARLIEST))


def refuse_word(bound: OffsetBound, refused: int) -> None:
    """Raise OptionError for `latest` (-1) as the start of a batch read, or `earliest` (-2) as its end."""
    name = f"{bound.side}Offsets"
    word = "latest" if refused == LATEST else "earliest"
    if bound.word == refused:
        raise wrong(name, word, f"a batch read cannot have it as its {bound.side} offset")
    for topic, partitions in (bound.offsets or {}).items():
        for partition, offset in partitions.items():
            if offset == refused:
                raise OptionError(
                    f"option {name}: {topic}-{partition} has {refused} ({word}), which a batch read cannot have as its "
                    f"{bound.side} offset"
                )


def _partition_map(name: str, value: str, *, least: int) -> dict[str, dict[int, int]]:
    hint = f'JSON such as {{"topic": {{"0": 23, "1": {least}}}}} is expected, no number below {least}'
    parsed = _json(name, value, f"earliest, latest or {hint}" if least == EARLIEST else hint)
    out: dict[str, dict[int, int]] = {}
    for topic, per_partition in sorted(parsed.items()):
        if not isinstance(per_partition, dict):
            raise wrong(name, value, hint)
        if not all(re.fullmatch(r"\d+", p) and _is_whole(o) and o >= least for p, o in per_partition.items()):
            raise wrong(name, value, hint)
        out[topic] = {int(p): o for p, o in sorted(per_partition.items(), key=lambda item: int(item[0]))}
    return out


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number. A bool, for Python an int too, is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _json(name: str, value: str, hint: str) -> dict[str, Any]:
    try:
        parsed = parse_json(value)
    except ValueError:
        raise wrong(name, value, hint) from None
    if not isinstance(parsed, dict):
        raise wrong(name, value, "a JSON object keyed by topic is expected")
    return parsed
