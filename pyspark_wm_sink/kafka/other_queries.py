"""A query's first batch to a topic that another query wrote to: are they rows of the same input?

Rule: as for tables (`tables/other_queries.py`). Other queries are known by their markers in the cluster. A marker also
says how far the query had read when it decided its newest batch. Brokers delete the marker of an unused group after
offsets.retention.minutes, and a marker of version 0.3.0 or before does not say how far: then nothing is known.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.rows import is_of_operator
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.listing import groups_ending_with
from pyspark_wm_sink.batch.advice import Published, behind_others
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.kafka.marker import SUFFIX, Decided, Marker

_log = logging.getLogger("keyedwm.sink")


def check_topic_reads_nothing_again(
    cluster: Cluster, own: Marker, report: BatchReport, topics: Collection[str]
) -> None:
    """Raise InputError if another query has written rows of the same input to one of the topics.

    topics: the topics that the batch writes to.
    """
    try:
        groups = groups_ending_with(cluster, SUFFIX)
    except (AccessError, OptionError) as error:
        _log.warning("whether another query has written the same rows cannot be known: %s", error)
        return
    again = []
    for group in groups:
        decided = None if group == own.group else _read(cluster, group)
        if decided is None or decided.published is None or not decided.topics & set(topics):
            continue
        overlap = _reads_again(decided.published, report)
        if overlap is not None:
            furthest = sum(decided.published.reads.furthest().values())
            again.append((furthest, group.removesuffix(SUFFIX), overlap, decided))
    if not again:
        return
    # If each query started where the one before it ended, only the last one says where to start.
    _, query, overlap, decided = max(again, key=lambda one: one[:2])
    raise InputError(
        f"topic {min(decided.topics & set(topics))} holds what query {query} wrote of {overlap}, so rows that both "
        f"queries write are there twice: was the checkpoint lost? Give the query its checkpoint again, or "
        f"{behind_others(decided.published)}write to another topic; if both are to write here, set sharedTopic=true"
    )


def _read(cluster: Cluster, group: str) -> Decided | None:
    try:
        return Marker(group=group, is_own=False).read(cluster, None)
    except FormatError as error:
        _log.warning("whether the query of group %s has written the same rows cannot be known: %s", group, error)
        return None


def _reads_again(published: Published, report: BatchReport) -> str | None:
    """Describe the channel of another query's input that this batch reads again; None if there is none.

    Results of operators of other names are other rows. A query that continues from a savepoint begins where the other
    ended.
    """
    own = {name.rpartition("#")[0] for name in report.delivered() if is_of_operator(name)}
    if (published.operators or own) and not published.operators & own:
        return None
    begins = report.first_offsets() or {}
    for channel, end in sorted(published.reads.furthest().items()):
        begin = begins.get(channel)
        if begin is not None and begin < end:
            return (
                f"{channel} up to offset {end}, and the first batch of the new query {report.query} has rows of "
                f"offset {begin} of it"
            )
    return None
