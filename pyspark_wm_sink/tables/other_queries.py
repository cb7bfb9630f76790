"""A query's first batch in a table that holds rows of another query: are they rows of the same input?

Rule: under exactly-once the sink rejects a query that reads rows again which another query has published here, as after
a lost checkpoint. Such a query starts before the offset up to which the other query has written a partition. Or it has
results of an operator of the same name. If this cannot be known, the sink rejects the query, too. `sharedTable` allows
both queries to write here. Records of version 0.3.0 and before may not contain how far the query read. Then a warning
names the other query instead; likewise if a source is not keyedwm's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from keyedwm.core.errors import InputError
from keyedwm.core.rows import is_of_operator
from pyspark_wm_sink.batch.advice import Published, behind_others
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport

_log = logging.getLogger("keyedwm.sink")


def check_reads_nothing_again(
    others: Mapping[str, Record],
    where: str,
    report: BatchReport,
    *,
    may_refuse: bool,
) -> None:
    """Raise InputError where this first batch begins before the end of what another query has published.

    others: the newest record of each other query whose rows are in the table. may_refuse: else a warning is all.
    Operators count their own barriers, from the start in each query, so their names alone are compared.
    """
    unknown = []
    # If each query started where the one before it ended, only the last one says where to start: check it first.
    for name, record in sorted(others.items(), key=lambda item: -sum((item[1].ends() or {}).values())):
        overlap = _reads_again(record, report)
        if overlap is not None:
            _refuse(f"{where} holds what query {name} wrote of {overlap}, so rows that both queries write are in the "
                    "table twice", record, may_refuse=may_refuse)  # fmt: skip
            return
        if not _is_known(record, report):
            unknown.append(name)
    for name in unknown:
        if _may_be_refused(others[name], report):
            _refuse(
                f"{where} holds rows of query {name}, and whether the new query {report.query} reads them again cannot "
                f"be known: make checkpointLocation an option of the write, at a place that the driver can read",
                others[name], may_refuse=may_refuse,
            )  # fmt: skip
            return
    if unknown:
        _log.warning(
            "%s holds rows of other queries, %s is one, and query %s is new there: if its checkpoint was lost, rows "
            "are written again, so stop it and give it the checkpoint again, or another table; if both are to write "
            "here, set sharedTable=true", where, unknown[0], report.query,
        )  # fmt: skip


def _refuse(sentence: str, record: Record, *, may_refuse: bool) -> None:
    if may_refuse:
        raise InputError(
            f"{sentence}: was the checkpoint lost? Give the query its checkpoint again, or "
            f"{behind_others(Published.of(record))}write to another table; if both are to write here, "
            f"set sharedTable=true"
        )
    _log.warning("%s", sentence)


def _reads_again(record: Record, report: BatchReport) -> str | None:
    """Describe the channel or operator that this batch repeats from another query; None if there is none."""
    delivered = report.delivered()
    for channel in sorted(filter(is_of_operator, record.channels)):
        if channel in delivered:
            operator = channel.rpartition("#")[0]
            return (
                f"the operator {operator}, and the new query {report.query} begins with results of an operator of "
                f"that name"
            )
    begins = report.first_offsets() or {}
    has_results = _has_results(record, report)
    for channel, end in sorted((record.ends() or {}).items()):
        begin = begins.get(channel)
        # Rows of an operator are not rows of its input. If either query has such rows, compare only channels that the
        # other query wrote directly.
        if begin is not None and begin < end and (not has_results or channel in record.channels):
            return (
                f"{channel} up to offset {end}, and the first batch of the new query {report.query} has rows "
                f"of offset {begin} of it"
            )
    return None


def _has_results(record: Record, report: BatchReport) -> bool:
    return any(map(is_of_operator, (*record.channels, *report.delivered())))


def _is_known(record: Record, report: BatchReport) -> bool:
    """Whether it is known of every source how far the other query has read, and where this one begins."""
    is_whole = None not in ((record.reads and record.reads.sources) or ()) and (
        report.plan is None or report.plan.is_all_keyedwm
    )
    return is_whole and record.ends() is not None and report.first_offsets() is not None


def _may_be_refused(record: Record, report: BatchReport) -> bool:
    """Whether what is unknown could have been known: earlier versions and third-party sources do not record it."""
    if record.reads is None or _has_results(record, report):
        return False
    return record.ends() is None or report.first_offsets() is None
