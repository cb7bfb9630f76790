"""A query's first batch in a table that holds rows of another query: are they rows of the same input?

Rule: where the records say that this query reads again the input of rows that another has published here, as after a
checkpoint was lost, its first batch is refused under exactly-once, unless `sharedTable` says that both write here: it
begins before the end of a partition there, or its results come from an operator of the same name. Where the records
say nothing a warning names the other query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from keyedwm.core.errors import InputError
from keyedwm.core.rows import is_of_operator
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport

_log = logging.getLogger("keyedwm.sink")


def check_reads_nothing_again(
    others: Mapping[str, Record],
    is_restored_behind: Callable[[str], bool],
    where: str,
    report: BatchReport,
    begins: Mapping[str, int],
    *,
    may_refuse: bool,
) -> None:
    """Raise InputError where this first batch begins before the end of what another query has published.

    others: the newest record of each other query. begins: the lowest offset of each channel's rows. may_refuse: else a
    warning is all. Operators count their own barriers, from the start in each query, so their names alone are compared.
    """
    for name, record in others.items():
        said = _reads_again(record, report, begins)
        if said is None or is_restored_behind(name):  # those rows were taken out again
            continue
        sentence = f"{where} holds what query {name} wrote of {said}, which are there twice if that query wrote them"
        if may_refuse:
            raise InputError(
                f"{sentence}: was the checkpoint lost? Give the query its checkpoint again, or begin behind those rows "
                f"(startingOffsets), or in another table; if both are to write here, set sharedTable=true"
            )
        _log.warning("%s", sentence)
        return
    if others:
        _log.warning(
            "%s holds rows of other queries, %s is one, and query %s is new there: if its checkpoint was lost, rows "
            "are written again, so stop it and give it the checkpoint again, or another table; if both are to write "
            "here, set sharedTable=true", where, next(iter(others)), report.query,
        )  # fmt: skip


def _reads_again(record: Record, report: BatchReport, begins: Mapping[str, int]) -> str | None:
    """Return the channel of another query's record that this first batch reads from before its end, in words."""
    delivered = report.delivered()
    for channel, known in sorted(record.channels.items()):
        if is_of_operator(channel):
            if channel in delivered:
                operator = channel.rpartition("#")[0]
                return (
                    f"the operator {operator}, and the new query {report.query} begins with results of an operator of "
                    f"that name"
                )
            continue
        # A barrier says where this batch ends in its channel: before the other's end, it was read there already.
        here = begins.get(channel, delivered.get(channel, (None, None))[1])
        if known.offset is not None and here is not None and here < known.offset:
            return (
                f"{channel} up to offset {known.offset}, and the first batch of the new query {report.query} has rows "
                f"of offset {here} of it"
            )
    return None
