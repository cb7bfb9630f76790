"""A query's first batch in a table that holds rows of another query: are they rows of the same input?

Rule: where the records prove that this query reads again what another has published here, as after a checkpoint was
lost, its first batch is refused under exactly-once, unless `sharedTable` says that both write here. Where nothing can
be proven a warning names the other query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from deltalake import DeltaTable

from keyedwm.core.errors import InputError
from keyedwm.core.rows import is_of_operator
from pyspark_wm_sink.delta.table import is_restored_behind, newest_of_each_query
from pyspark_wm_sink.reports import BatchReport

_log = logging.getLogger("keyedwm.sink")


def check_reads_nothing_again(
    table: DeltaTable, where: str, report: BatchReport, begins: Mapping[str, int], *, may_refuse: bool
) -> None:
    """Raise InputError where this first batch begins before the end of what another query has published.

    begins: the lowest offset of each channel's rows. may_refuse: else a warning is all. Operators count their own
    barriers, from the start in each query, so that nothing is proven by those.
    """
    others = {name: record for name, record in newest_of_each_query(table).items() if name != report.query}
    ends = {channel: offset for channel, (_, offset) in report.delivered().items() if offset is not None}
    for name, record in others.items():
        for channel, known in sorted(record.channels.items()):
            # A barrier says where this batch ends in its channel: before the other's end, it was read there already.
            here = begins.get(channel, ends.get(channel))
            if known.offset is None or here is None or here >= known.offset or is_of_operator(channel):
                continue
            said = (
                f"{where} holds what query {name} wrote of {channel} up to offset {known.offset}, and the first batch "
                f"of the new query {report.query} has rows of offset {here} of it, which are there twice if that query "
                f"wrote them"
            )
            if is_restored_behind(table, name):
                break  # those rows were taken out again
            if may_refuse:
                raise InputError(
                    f"{said}: was the checkpoint lost? Give the query its checkpoint again, or begin behind those rows "
                    f"(startingOffsets), or in another table; if both are to write here, set sharedTable=true"
                )
            _log.warning("%s", said)
            return
    if others:
        _log.warning(
            "%s holds rows of other queries, %s is one, and query %s is new there: if its checkpoint was lost, rows "
            "are written again, so stop it and give it the checkpoint again, or another table; if both are to write "
            "here, set sharedTable=true", where, next(iter(others)), report.query,
        )  # fmt: skip
