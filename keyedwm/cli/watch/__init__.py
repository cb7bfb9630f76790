"""`keyedwm watch CHECKPOINT`: the positions of a query, and what blocks its watermark and why, once or repeatedly.

Rule: it reads the query's checkpoint, its consumer group and its topics, never the query; nothing is committed. A place
that cannot be read at the start is one sentence and exit code 2; the view shows if the broker is lost later.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace

from rich.console import Group, RenderableType

from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.held_state import Newest, state_reader
from keyedwm.cli.query.log import newest_planned
from keyedwm.cli.query.picture import Picture, as_json
from keyedwm.cli.query.reader import QueryReader, no_batch_reason, planned_of
from keyedwm.cli.query.target import target_of
from keyedwm.cli.query.topic import TopicPicture, topic_picture
from keyedwm.cli.watch.arguments import WatchArguments, add_arguments, given_of
from keyedwm.cli.watch.live import show_live
from keyedwm.cli.watch.table import layout, page
from keyedwm.cli.watch.texts import line, whole
from keyedwm.cli.watch.topic_table import topic_layout, topic_page
from keyedwm.cli.watch.view import WAITING_FOOT, View
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.savepoint_files import Files
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import IdleTimeout

__all__ = ["EXAMPLE", "HELP", "PAGE", "add_arguments", "run"]

HELP = "show a query's partitions, its watermark and what blocks it; or a topic"
EXAMPLE = "keyedwm watch /data/visits.checkpoint --bootstrap localhost:9092"
PAGE = "docs/how-to/watch.md"
_LIMIT_MS = 5_000
_FETCH_BYTES = 64 << 10  # a picture reads single records only, for their times


def run(args: argparse.Namespace) -> int:
    """Print a picture, or show them until `q`; raises InputError, OptionError or UnavailableError with one sentence."""
    arguments = given_of(args)
    out = PlainConsole.open()
    if not arguments.once and not out.is_terminal:
        raise OptionError("the output is no terminal: give --once to print one picture, or --once --json")
    if not arguments.once and out.is_dumb_terminal:  # the view would stay empty
        raise OptionError("this terminal cannot be drawn on (TERM=dumb): give --once to print one picture")
    if arguments.topic is not None:
        _watch_topic(out, arguments, arguments.topic)
    else:
        _watch_query(out, arguments, Files(arguments.checkpoint))
    return 0


def _watch_topic(out: PlainConsole, arguments: WatchArguments, topic: str) -> None:
    with _connected(arguments, [topic]) as (cluster, options):

        def look() -> TopicPicture:
            return topic_picture(cluster, options, topic, _now_ms())

        def lay(picture: TopicPicture, before: TopicPicture | None, view: View) -> tuple[RenderableType, int]:
            return topic_page(picture, before, width=out.width, height=out.height, view=view)

        first = look()
        if arguments.once:
            _print(out, arguments, first, topic_layout(first, width=out.width))
            return
        last = [first]

        def look_again() -> TopicPicture:
            try:
                last[0] = look()
            except UnavailableError as error:
                last[0] = replace(last[0], trouble=error.message)
            return last[0]

        show_live(out, first, look_again, arguments.every_s, lay)


def _watch_query(out: PlainConsole, arguments: WatchArguments, files: Files) -> None:
    if not arguments.once and not _await_batch(out, arguments, files):
        return
    with _reader(files, arguments) as reader, _state(files, arguments) as state:

        def lay(picture: Picture, before: Picture | None, view: View) -> tuple[RenderableType, int]:
            return page(picture, before, width=out.width, height=out.height, view=view)

        first = replace(reader.picture(_now_ms()), state=state())
        if arguments.once:
            _print(out, arguments, first, layout(first, width=out.width))
        else:
            show_live(out, first, lambda: replace(_look(reader), state=state()), arguments.every_s, lay)


def _await_batch(out: PlainConsole, arguments: WatchArguments, files: Files) -> bool:
    """Show what the view waits for until the query has planned a batch; False if the user quits before."""

    def look() -> str:
        return no_batch_reason(files) or ""

    def lay(why: str, _before: str | None, _view: View) -> tuple[RenderableType, int]:
        waits = f"{why}; waiting for the first batch of its query, a look every {arguments.every_s:g} s"
        return Group(*whole(waits, out.width), line(WAITING_FOOT)), 0

    first = look()
    return not first or show_live(out, first, look, arguments.every_s, lay, is_over=lambda why: not why)


def _print(
    out: PlainConsole, arguments: WatchArguments, picture: Picture | TopicPicture, layout_text: RenderableType
) -> None:
    if arguments.json:
        print(json.dumps(as_json(picture)))
    else:
        out.print(layout_text)


def _state(files: Files, arguments: WatchArguments) -> AbstractContextManager[Newest]:
    if not arguments.state:
        return nullcontext(lambda: None)
    planned_of(files)  # what the checkpoint lacks is said before Spark starts
    return state_reader(files, _now_ms, live=not arguments.once)


@contextmanager
def _reader(files: Files, arguments: WatchArguments) -> Iterator[QueryReader]:
    """Connect, if there is a broker; the topics are those of the checkpoint."""
    newest = newest_planned(files) if arguments.options else None
    topics = sorted({tp.topic for one in newest.sources.values() for tp in one.channels}) if newest else []
    target = target_of(files, arguments.target, arguments.reach)
    if not topics:
        yield QueryReader(files, target=target)  # it says what the checkpoint lacks
        return
    with _connected(arguments, topics) as (cluster, options):
        timeout = IdleTimeout(options.idle_timeout_ms) if arguments.has_idle_timeout else None
        yield QueryReader(files, cluster, options, timeout, target)


@contextmanager
def _connected(arguments: WatchArguments, topics: list[str]) -> Iterator[tuple[Cluster, SourceOptions]]:
    parsed = SourceOptions.parse({"subscribe": ",".join(topics), **arguments.options})
    config = replace(
        parsed.client, api_timeout_ms=min(_LIMIT_MS, parsed.client.api_timeout_ms),
        request_timeout_ms=min(_LIMIT_MS, parsed.client.request_timeout_ms), fetch_bytes=_FETCH_BYTES,
        partition_fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    with closing(Cluster.connect(config, _LIMIT_MS)) as cluster:
        yield cluster, parsed


def _look(reader: QueryReader) -> Picture:
    """Take a picture; without log ends while the broker is away."""
    try:
        return reader.picture(_now_ms())
    except UnavailableError as error:
        return reader.picture_without_broker(_now_ms(), error.message)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
