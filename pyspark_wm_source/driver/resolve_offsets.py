"""The first offsets of channels (and the ends of a batch read): by the broker's answers, or at a stopped query's end.

Rule: nothing is guessed. A start that names other partitions than the topic has, or a timestamp without a record, is an
error. A source that continues from a savepoint plans its first batch as the stopped query would have planned its next
one: from the same offset, with the states that its tasks left. Only the consumer group is new, so that several queries
can continue from the savepoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.core.text import nearest
from keyedwm.kafka.client.errors import UnknownTopicError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.versions import Use
from keyedwm.savepoint_files import read_savepoint
from pyspark_wm_source.options.start_offsets import EARLIEST, INTERNAL_TOPICS, LATEST, NoMatch, OffsetBound, Topics
from pyspark_wm_source.values.offsets import QueryOffset


def assigned(cluster: Cluster, topics: Topics, *, running: bool) -> tuple[TopicPartition, ...]:
    """Return the channels to read, in order; before the query runs, a topic that does not exist is an error."""
    cluster.warn_of_losses(Use.SOURCE)
    names = topics.select(cluster.topics() if topics.pattern is not None else ())
    try:
        by_topic = cluster.partitions(names, missing_ok=running or topics.pattern is not None)
    except UnknownTopicError as error:
        raise with_nearest(cluster, names) or error from error
    if topics.assigned is not None and not running:
        for topic, partitions in topics.assigned.items():
            if missing := sorted(set(partitions) - set(by_topic[topic])):
                raise OptionError(
                    f"option assign: topic {topic} has no partition {missing[0]}; it has {by_topic[topic]}"
                )
    selection = topics.assigned
    return tuple(
        TopicPartition(topic, partition)
        for topic in sorted(by_topic)
        for partition in by_topic[topic]
        if selection is None or partition in selection[topic]
    )


def with_nearest(cluster: Cluster, names: Sequence[str]) -> UnknownTopicError | None:
    """Name the topic that was likely meant, of those that this client may see; None if no name is close."""
    try:
        known = cluster.topics()
    except KeyedwmError:
        return None  # the list is a courtesy: the error is then that the topic does not exist
    missing = [name for name in names if name not in known]
    neighbour = nearest(missing[0], set(known) - INTERNAL_TOPICS) if missing else None
    return None if neighbour is None else UnknownTopicError.of(missing[0], neighbour)


def resolve(
    cluster: Cluster, bound: OffsetBound, channels: Sequence[TopicPartition], default: int
) -> dict[TopicPartition, int]:
    """Return each channel's offset at a bound; `default`: EARLIEST or LATEST, if the user set no offset."""
    if bound.timestamp_ms is not None:
        return _by_timestamp(cluster, bound, dict.fromkeys(channels, bound.timestamp_ms))
    if bound.timestamps_ms is not None:
        listed = _listed(f"{bound.side}OffsetsByTimestamp", bound.timestamps_ms, channels)
        return _by_timestamp(cluster, bound, listed)
    if bound.offsets is None:
        bounds = dict.fromkeys(channels, default if bound.word is None else bound.word)
    else:
        bounds = _listed(f"{bound.side}Offsets", bound.offsets, channels)
    earliest = [tp for tp in channels if bounds[tp] == EARLIEST]
    latest = [tp for tp in channels if bounds[tp] == LATEST]
    resolved = {**cluster.earliest(earliest), **cluster.latest(latest)} if earliest or latest else {}
    return {tp: resolved.get(tp, bounds[tp]) for tp in channels}


def _by_timestamp(
    cluster: Cluster, bound: OffsetBound, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    # The ends come first: a record that is appended between the two questions lies behind them, or is a match.
    ends = cluster.latest(timestamps_ms) if bound.no_match is NoMatch.LATEST else {}
    offsets = cluster.by_timestamp({(tp.topic, tp.partition): ms for tp, ms in timestamps_ms.items()})
    lacking = sorted(tp for tp, offset in offsets.items() if offset is None)
    if lacking and bound.no_match is NoMatch.ERROR:
        raise OptionError(
            f"{lacking[0]} has no record at or after the starting timestamp {timestamps_ms[lacking[0]]} ms; "
            "choose an earlier one, or startingOffsetsByTimestampStrategy=latest"
        )
    return {tp: ends[tp] if offset is None else offset for tp, offset in offsets.items()}


def _listed(
    name: str, offsets: Mapping[str, Mapping[int, int]], channels: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    listed = {TopicPartition(t, p): value for t, partitions in offsets.items() for p, value in partitions.items()}
    if set(listed) != set(channels):
        missing, extra = sorted(set(channels) - set(listed)), sorted(set(listed) - set(channels))
        problems = [*(f"{tp} is missing" for tp in missing[:3]), *(f"{tp} is not read" for tp in extra[:3])]
        raise OptionError(f"option {name}: it must name exactly the partitions that are read; {', '.join(problems)}")
    return listed


def continued(place: str, topics: Topics) -> QueryOffset:
    """Return the offset of the savepoint's source that reads these topics. Raises OptionError if there is not one."""
    savepoint = read_savepoint("option continueFrom", place)
    sources = [QueryOffset.from_json(source) for source in savepoint.sources]
    own = [offset for offset in sources if all(topics.selects(tp) for tp in offset.channels)]
    if len(own) == 1:
        return own[0]
    topics_of_sources = "; ".join(", ".join(sorted({tp.topic for tp in offset.channels})) for offset in sources)
    count_text = "no source" if not own else f"{len(own)} sources"
    is_shared = len(own) > len({frozenset(tp.topic for tp in offset.channels) for offset in own})
    reason = "; a savepoint cannot continue two sources of the same topics" if is_shared else ""
    raise OptionError(
        f"option continueFrom: {count_text} of the savepoint {place} read the topics that {topics.option} selects "
        f"here; its sources read: {topics_of_sources or 'nothing'}{reason}"
    )
