"""The topics whose unreadable records a frame hands on in its column `rejected`, read from its analysed plan.

Rule: a source with onBadEventTime=reject or onBadValue=reject emits each such record once. So two inputs of an operator
must not hand on the records of one topic. A frame hands them on if no projection drops the column and no filter drops
the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.spark.hosting.lineage import nodes_of
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.staged_rows import rejected_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

F = TypeVar("F", bound="DataFrame | Source")

# Options of a source as a plan shows them: [name=value, name=value]; a value may contain commas.
_OPTION = re.compile(r"[\[ ]"
                     r"(onBad(?:EventTime|Value)|kafka\.bootstrap\.servers|subscribe|assign|subscribePattern)=(.*?)"
                     r"(?=, [\w.]+=|\](?:,|$))", re.IGNORECASE)  # fmt: skip
_COLUMN = "rejected#"
_LEFT_OUT = re.compile(r"^Filter .*isnull\(rejected#")
_CHOOSING = ("Project ", "Aggregate ", "MapInArrow ", "MapInPandas ", "TransformWithState")
_SHORTENED = "more fields"  # Spark shortens long lists of columns: a list with this text may have the column


def once_each(frames: Sequence[F]) -> list[F]:
    """Return the inputs of an operator; a frame that is given twice hands on its unreadable records once."""
    return [_without_records(frame) if _is_again(frames, at) else frame for at, frame in enumerate(frames)]


def _is_again(frames: Sequence[DataFrame | Source], at: int) -> bool:
    """Whether an input is a frame that is an earlier input, too. A source that is not loaded is read for each input."""
    return not isinstance(frames[at], Source) and any(frames[at] is before for before in frames[:at])


def _without_records(frame: Any) -> Any:
    return frame.where(frame[REJECTED].isNull()).drop(REJECTED) if rejected_type(frame) else frame


def refuse_records_twice(frames: Sequence[DataFrame | Source], caller: str) -> None:
    """Raise OptionError if two frames hand on the unreadable records of one topic: each record would come twice."""
    topics: set[tuple[str, str]] = set()
    for at, frame in enumerate(frames):
        if _is_again(frames, at):
            continue  # `once_each` removes its records
        own = set(handed_on(frame))
        twice = next(iter(sorted(own & topics)), None)
        if twice is not None:
            raise OptionError(
                f"{caller}: two frames hand on the unreadable records of topic {twice[1]} (column rejected), so each "
                "would come twice: operators hand them on by themselves, so remove rejected(...) of the same rows; or "
                "let one of two sources only reject (onBadEventTime, onBadValue); or drop the records from one frame, "
                'with .where("rejected IS NULL").drop("rejected"), before its operator'
            )
        topics |= own


def handed_on(df: DataFrame | Source) -> Iterator[tuple[str, str]]:
    """Yield the (bootstrap servers, topic) of each source whose unreadable records are in the rows."""
    if isinstance(df, Source):
        if rejected_type(df):
            yield from _topics({name.lower(): value for name, value in df.set_options.items()})
        return
    above: list[tuple[int, str]] = []
    for depth, node in nodes_of(df):
        while above and above[-1][0] >= depth:
            above.pop()
        if node.startswith("StreamingRelation"):
            options = {name.lower(): value for name, value in _OPTION.findall(node)}
            if _has_rejected_column(options) and all(_passes(one) for _, one in above):
                yield from _topics(options)
        above.append((depth, node))


def _has_rejected_column(options: Mapping[str, str]) -> bool:
    """Whether a source with these options has unreadable records in its column `rejected`."""
    return any(options.get(name, "").strip().lower() == "reject" for name in ("onbadeventtime", "onbadvalue"))


def _passes(node: str) -> bool:
    """Whether a node of a plan keeps the column `rejected` and the rows that have a value there."""
    if _LEFT_OUT.match(node):
        return False
    return not node.startswith(_CHOOSING) or _COLUMN in node or _SHORTENED in node


def _topics(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    servers = options.get("kafka.bootstrap.servers", "")
    for topic in options.get("subscribe", "").split(","):
        if topic.strip():
            yield servers, topic.strip()
    for name in ("assign", "subscribepattern"):
        if name in options:
            yield servers, options[name]
