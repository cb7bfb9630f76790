"""A checkpoint whose offset log the planner itself has written, over a cluster that answers as the test says."""

from __future__ import annotations

import io
import json
from pathlib import Path

from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query import source as source_module
from keyedwm.cli.query.picture import Picture, SourcePicture
from keyedwm.cli.query.reader import QueryReader
from keyedwm.cli.query.tables import Reach
from keyedwm.cli.query.target import Target, target_of
from keyedwm.cli.watch.table import layout, page
from keyedwm.cli.watch.view import FIRST_VIEW, View
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files
from pyspark_wm_source.values.holding import Cause
from tests.source.scripted import Driver, Log, ScriptedCluster

A, B, C = (TopicPartition("t", number) for number in range(3))
T_MS = 1_700_000_000_000


class Planted:
    """A checkpoint whose offset log the planner has written, over a cluster that answers as the test says."""

    def __init__(self, monkeypatch, directory: Path, logs: dict[TopicPartition, Log], **options: str) -> None:
        self.cluster = ScriptedCluster(logs)
        self.cluster.close = lambda: None
        self.driver = Driver(monkeypatch, self.cluster, startingOffsets="earliest", **options)
        self.driver.clock = T_MS
        self.directory = directory
        self.uses: list[dict[str, object]] = [{}]  # what the offset of each use has for itself
        monkeypatch.setattr(source_module, "record_times", lambda _cluster, _offsets: {})

    def plan(self, *, committed: bool = True) -> None:
        """Plan a batch and write it down as Spark does."""
        planned = self.driver.plan()
        assert planned is not None
        for log in ("offsets", "commits"):
            (self.directory / log).mkdir(exist_ok=True)
        self.write()
        if committed:
            (self.directory / "commits" / str(planned.batch)).write_text("v1\n{}")

    @property
    def files(self) -> Files:
        return Files(str(self.directory))

    def write(self) -> None:
        """Write the newest offset down, of each use of the source."""
        lines = "".join(f"{json.dumps({**self.driver.offset, **use})}\n" for use in self.uses)
        text = f"v1\n{{}}\n{lines}"
        (self.directory / "offsets" / str(self.driver.offset["batch"])).write_text(text)

    def reader(self) -> QueryReader:
        return QueryReader(self.files, self.cluster, self.driver.options, target=self.target())

    def target(self) -> Target | None:
        return target_of(self.files, None, Reach())

    def picture(self) -> Picture:
        return self.reader().picture(self.driver.clock)

    def source(self) -> SourcePicture:
        return self.picture().sources[0]


def draw_text(
    picture: Picture,
    *,
    width: int = 80,
    height: int | None = None,
    before: Picture | None = None,
    view: View = FIRST_VIEW,
) -> str:
    out = PlainConsole(file=io.StringIO(), width=width, markup=False)
    if height is None:
        out.print(layout(picture, before, width=width, view=view))
    else:
        out.print(page(picture, before, width=width, height=height, view=view)[0])
    return out.file.getvalue()


def only_cause(source: SourcePicture) -> tuple[TopicPartition, Cause]:
    (watermark,) = source.watermarks
    (holder,) = watermark.held_by
    return holder.channel, holder.cause
