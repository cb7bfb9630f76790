"""The lineage of a frame, read from the text of its analysed plan.

Rule: a mark on a frame must survive unions, views, and dropped or renamed columns. So it is a node of the plan (an
alias), not a column.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.panes import RepeatedTotals
from keyedwm.spark.arguments import analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The column that `with_watermark` gives to Spark as event times: the source's watermark.
SPARK_TIMES = "_keyedwm_watermark"
_MARK, _RESULTS = "keyedwm_", "results"
_NODE = re.compile(r"^([ :]*)(?:[:+]- )?~?([A-Z]\w*.*)$")
_INDENT = 3
# In a projection: a renamed column, and a column called event_time with the end of its expression.
_RENAMED = re.compile(r"(?<=[ \[])(\w+#\d+) AS (\w+#\d+)")
_AS_EVENT_TIME = re.compile(r"(\S+) AS (event_time)#\d+")

_SPARKS_WATERMARK = re.compile(r"EventTimeWatermark [0-9a-f-]+, ([^#]+)#\d+: \w+, (.+)")


def marked(results: DataFrame, panes: RepeatedTotals | None) -> DataFrame:
    """Mark an operator's results. panes: why the results cannot be added up; None if they can for any input."""
    return results.alias(f"{_MARK}{_RESULTS if panes is None else panes.value}")


def check_lineage(df: DataFrame, caller: str, *, takes_panes: bool = False) -> RepeatedTotals | None:
    """Return why rows of a frame cannot be added up, None if they can.

    Raises OptionError if they cannot (unless takes_panes), or if the query has a watermark of Spark's own. Raises
    InputError if `with_watermark` dropped the control rows. Warns about event times that the frame computes again: the
    source's watermarks follow the old event times. takes_panes: whether the operator accepts such rows.
    """
    nodes = nodes_of(df)
    _warn_of_moved_times(nodes, caller)
    _refuse_sparks_watermark([node for _, node in nodes], caller)
    panes = _panes_of(nodes)
    if panes is not None and not takes_panes:
        raise OptionError(
            f"{caller}: the frame holds early or late panes of another operator, each with the whole total of its "
            f"window: rows in several panes would be counted several times: {panes.advice}"
        )
    return panes


def panes_of(df: DataFrame) -> RepeatedTotals | None:
    """Return why rows of a frame cannot be added up, None if they can."""
    return _panes_of(nodes_of(df))


def streams_of(df: DataFrame) -> int:
    """Return how many streams a frame reads."""
    return sum(node.startswith("StreamingRelation") for _, node in nodes_of(df))


def refuse_several_rows(df: DataFrame, caller: str) -> None:
    """Raise OptionError if the frame makes several rows of one record, where each row must be one record."""
    generator = next((node for node in _above_streams(nodes_of(df)) if node.startswith("Generate ")), None)
    if generator is not None:
        raise OptionError(
            f"{caller}: the frame has {generator.split()[1].partition('(')[0]}, which makes several rows of one "
            "record, and here a record is one message, known by its topic, partition and offset: do it after the "
            "windows, or in a window_function, or leave the store out"
        )


def _panes_of(nodes: Iterable[tuple[int, str]]) -> RepeatedTotals | None:
    """Return the mark of panes nearest to the top, unless it lies below results that can be added up."""
    by_mark = {f"SubqueryAlias {_MARK}{one.value}": one for one in RepeatedTotals}
    above = _above(nodes, f"SubqueryAlias {_MARK}{_RESULTS}")
    return next((by_mark[node] for _, node in above if node in by_mark), None)


def warn_of_moved_times(df: DataFrame, caller: str) -> None:
    """Warn if the column event_time was computed again above the source."""
    _warn_of_moved_times(nodes_of(df), caller)


def _warn_of_moved_times(nodes: Iterable[tuple[int, str]], caller: str) -> None:
    projections = [node for _, node in _above(nodes, "TransformWithState") if node.startswith("Project [")]
    renamed = {new: old for node in projections for old, new in _RENAMED.findall(node)}
    for node in projections:
        for time, column in _AS_EVENT_TIME.findall(node):
            before = time.removeprefix("[")
            while before in renamed:
                before = renamed[before]
            if not before.startswith("event_time"):
                warnings.warn(
                    f"{caller}: the column {column!r} was computed again, which moves rows and not the watermark, so "
                    "they may be late or wait: let the source read event times (its option eventTime) and make "
                    "the watermarks from them",
                    RuntimeWarning,
                    stacklevel=_caller(),
                )
                return


def _caller() -> int:
    """Return the stack level of keyedwm's caller, for a warning that the calling function raises."""
    modules = (frame.frame.f_globals.get("__name__", "") for frame in inspect.stack(0)[1:])
    return next((level for level, name in enumerate(modules, 1) if not name.startswith("keyedwm.")), 1)


def _above(nodes: Iterable[tuple[int, str]], kind: str) -> Iterator[tuple[int, str]]:
    """Yield the nodes from the top, without the nodes of a kind and all nodes below them."""
    top_depth: int | None = None
    for depth, node in nodes:
        if top_depth is None or depth <= top_depth:
            top_depth = depth if node.startswith(kind) else None
            if top_depth is None:
                yield depth, node


def _above_streams(nodes: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield the nodes that a stream's rows pass above our operators, none of a joined static frame."""
    above = list(_above(nodes, "TransformWithState"))
    for at, one in enumerate(nodes):
        if one in above and any(inner.startswith("StreamingRelation") for inner in _below(nodes, at)):
            yield one[1]


def _below(nodes: Sequence[tuple[int, str]], at: int) -> Iterator[str]:
    """Yield the nodes below the one at this place."""
    for depth, node in nodes[at + 1 :]:
        if depth <= nodes[at][0]:
            return
        yield node


def _refuse_sparks_watermark(nodes: Iterable[str], caller: str) -> None:
    watermarks = [node for node in nodes if node.startswith("EventTimeWatermark ")]
    if any(SPARK_TIMES in node for node in watermarks):
        raise InputError(
            f"{caller}: the frame went through with_watermark, which leaves control rows and watermarks out since it "
            "is for Spark's own operators: give the frame before it"
        )
    for node in watermarks:
        match = _SPARKS_WATERMARK.match(node)
        column, delay = match.groups() if match else ("a column", "so much")
        raise OptionError(
            f"{caller}: withWatermark({column!r}, {delay!r}) of Spark has no effect here, where the column watermark "
            "counts: leave it out, and say how late rows may come with the source's option watermarkLag"
        )


def follows_clock(df: DataFrame) -> bool:
    """Whether an operator of the query has timers by the clock: Spark then plans batches without end."""
    return any(node.startswith("TransformWithState") and ", ProcessingTime," in node for _, node in nodes_of(df))


def nodes_of(df: DataFrame) -> list[tuple[int, str]]:
    """Return the nodes of the analysed plan with their depth, from the top."""
    matches = [node for node in map(_NODE.match, _analysed(df).splitlines()) if node]
    return [(node.start(2) // _INDENT, node[2].rstrip()) for node in matches]


def _analysed(df: DataFrame) -> str:
    """Return the text of the analysed plan, one node a line."""
    in_jvm = getattr(df, "_jdf", None)
    if in_jvm is not None:
        return str(in_jvm.queryExecution().analyzed().toString())
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):  # Spark Connect has no other way, and this one plans the whole query
        analysed(lambda: df.explain("extended"), "the operator")
    return (
        printed.getvalue().partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized Logical Plan ==")[0]
    )
