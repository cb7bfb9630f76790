"""A topic that a query reads, without Kafka: numbers by partition and offset, and the plan of each batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.batch_plan import BatchPlan, SourceRange
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publication import Publication
from pyspark_wm_sink.tables.publish import publish
from tests.sink.table_sink import stage_rows

FIRST_OF = {"t-0": 0, "t-1": 1_000, "u-0": 2_000}  # the number at offset 0 of each partition
_STARTING = re.compile(r"startingOffsets=(\{.*?\}\})")


def plan(*sources: Mapping[str, tuple[int, int]] | None, is_stateful: bool = False) -> BatchPlan:
    """The plan of a batch: of each source channel → (begin, end), None for one that is not keyedwm's."""
    ranges = [
        None
        if of is None
        else SourceRange(begins={c: at[0] for c, at in of.items()}, ends={c: at[1] for c, at in of.items()})
        for of in sources
    ]
    return BatchPlan(sources=tuple(ranges), is_stateful=is_stateful)


def offered_offsets(error: Exception) -> dict[str, int]:
    """The offsets that a sentence offers for pasting, by channel."""
    texts = _STARTING.findall(str(error))
    return {
        f"{topic}-{partition}": offset
        for text in texts
        for topic, of_topic in json.loads(text).items()
        for partition, offset in of_topic.items()
    }


@dataclass
class Reader:
    """A query over the topic; at: where its next batch begins. Copies of it are copies of its checkpoint."""

    tables: ModuleType
    place: Path
    to: Publication
    query: str = "q"
    at: Mapping[str, int] = field(default_factory=lambda: {"t-0": 0, "t-1": 0})
    batch: int = 0
    is_stateful: bool = False
    is_planned: bool = True
    one_source: bool = True

    def copy(self, **changes) -> Reader:
        return replace(self, **changes)

    def run(self, **ends: int) -> None:
        """Publish the next batch, up to these offsets (t0=5 for t-0)."""
        up_to = {**self.at, **{f"{name[0]}-{name[1:]}": end for name, end in ends.items()}}
        numbers = [FIRST_OF[name] + at for name, end in up_to.items() for at in range(self.at[name], end)]
        control = ()
        if self.to.mode is SnapshotMode.BARRIER:  # of a frame without the column offset
            control = tuple(
                ControlRow(kind=ControlKind.BARRIER, channel=name, snapshot=self.batch, channels=len(up_to))
                for name in up_to
            )
        ranges = {name: (self.at[name], end) for name, end in up_to.items()}
        sources = [ranges] if self.one_source else [{name: range_} for name, range_ in ranges.items()]
        known = plan(*sources, is_stateful=self.is_stateful) if self.is_planned else None
        publish(self.to, [stage_rows(self.to, numbers, self.batch, self.query, control)], batch=self.batch, plan=known)
        self.at, self.batch = up_to, self.batch + 1

    def numbers(self) -> list[int]:
        return self.tables.numbers(self.place)

    def once(self, **ends: int) -> list[int]:
        """Every number up to these offsets, once."""
        return sorted(
            FIRST_OF[name] + at
            for name, end in ((f"{n[0]}-{n[1:]}", end) for n, end in ends.items())
            for at in range(end)
        )


def delta_reader(place: Path) -> Reader:
    """A query that writes to a Delta table."""
    from tests.sink import delta_sink

    return Reader(delta_sink, place, delta_sink.how(place))


def iceberg_reader(place: Path, **options: str) -> Reader:
    """A query that writes to an Iceberg table."""
    from tests.sink import iceberg_sink

    return Reader(iceberg_sink, place, iceberg_sink.how(place, **options))


def follows(error: Exception, reader: Reader, **ends: int) -> None:
    """Start a query with a new checkpoint at the offsets that the sentence offers: each number comes once."""
    assert "new checkpoint" in str(error), "the refused run's own keeps the offsets that it began with"
    begin = offered_offsets(error)
    assert begin.keys() == reader.at.keys()
    reader.copy(query="follower", at=begin, batch=0).run(**ends)
    assert reader.numbers() == reader.once(**ends)
