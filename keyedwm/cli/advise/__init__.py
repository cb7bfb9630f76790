"""`keyedwm advise`: what each watermarkLag would have cost the newest records of a topic, and the options to set.

Rule: it only reads the topic, and joins no group. Tables and options go to stdout, a progress bar to a terminal's
stderr. Figures describe the past: if a topic changes, run the command again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keyedwm.config.places import field_of
from keyedwm.config.secrets import pairs_of
from keyedwm.config.validation import duration_ms, whole, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import KEY
from keyedwm.core.text import short_repr
from keyedwm.kafka.client.values import check_topics

if TYPE_CHECKING:
    from keyedwm.cli.advise.read import OnProgress

HELP = "show the late records of each watermarkLag, and recommend options"
EXAMPLE = (
    "keyedwm advise --bootstrap localhost:9092 --topic departures --event-time 'json:$.planned' --key 'json:$.carrier'"
)
PAGE = "docs/how-to/choose-lag.md"
_RECORDS, _LOSS, _WINDOW = "1000000", "0.1", "1 hour"
# The prefixes of options that say how to reach the cluster, and how keys and values are read.
_PREFIXES = ("kafka.", "key.", "value.", "schemaregistry.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--bootstrap, --topic, --records, --event-time, --unit, --key, --loss, --window, --option and --json."""
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka that the query reads")
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic to read")
    parser.add_argument(
        "--records", default=_RECORDS, metavar="N", help=f"newest records to read (default: {_RECORDS})"
    )
    parser.add_argument("--event-time", metavar="PLACE", help="as the source's option eventTime (default: timestamp)")
    parser.add_argument("--unit", help="as the source's option eventTimeUnit (default: ms)")
    parser.add_argument("--key", metavar="FIELD", help="the data key: key, key:$.a, json:$.a, avro:$.a or proto:$.a")
    parser.add_argument(
        "--loss", default=_LOSS, metavar="PERCENT", help=f"percentage of records that may be late (default: {_LOSS})"
    )
    parser.add_argument(
        "--window", default=_WINDOW, metavar="SPAN",
        help=f"tumbling window that drops late records (default: {_WINDOW})",
    )  # fmt: skip
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="an option of the source, for a login or for values with a schema (value.format, schemaRegistry.url); a "
        "secret as NAME=env:VARIABLE or NAME=file:PATH",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Print the advice; raises OptionError, InputError or an error of the client with one sentence."""
    if not args.bootstrap.strip():
        raise OptionError("--bootstrap is empty: host:port of a broker is expected")
    check_topics("--topic", [args.topic])
    records, percent = whole("--records", args.records), _percent(args.loss)
    window_ms = duration_ms("--window", args.window)
    if not window_ms:
        raise wrong("--window", args.window, "a duration above 0 is expected")
    key = None if args.key is None else field_of("--key", args.key, (KEY,))
    event_time = {
        name: value for name, value in (("eventTime", args.event_time), ("eventTimeUnit", args.unit))
        if value is not None
    }  # fmt: skip
    login = pairs_of("--option", args.option, "kafka.security.protocol=SASL_SSL")
    other = next((name for name in login if not name.lower().startswith(_PREFIXES)), None)
    if other is not None:
        raise OptionError(
            f"--option: {short_repr(other)} says nothing about the cluster or the values: kafka.NAME=VALUE, "
            "value.format=FORMAT or schemaRegistry.NAME=VALUE is expected"
        )

    from keyedwm.cli.advise import report
    from keyedwm.cli.advise.advice import advice_of
    from keyedwm.cli.advise.read import read_sample
    from keyedwm.cli.printable import PlainConsole
    from pyspark_wm_source.options.source_options import SourceOptions

    options = SourceOptions.parse({
        **login, **event_time, "kafka.bootstrap.servers": args.bootstrap, "subscribe": args.topic,
        "maxEventTimeAhead": report.AHEAD, "failOnDataLoss": "false",  # skips records that retention deletes meanwhile
    })  # fmt: skip
    with _progress() as report_progress:
        sample = read_sample(options, records, key, report_progress)
    advice = advice_of(sample, args.topic, percent / 100, window_ms)
    request = report.AdviceRequest(
        topic=args.topic, window_ms=window_ms, share=percent, options=options_to_set(event_time, args.option)
    )
    if args.json:
        print(report.as_json(advice, request))
    else:
        report.show(PlainConsole.open(), advice, request)
    return 0


def options_to_set(event_time: Mapping[str, str], arguments: Sequence[str]) -> dict[str, str]:
    """Return the source's options for values, keys and event times, as the user wrote them.

    event_time: the options of the event time. arguments: NAME=VALUE of `--option`; secrets stay references.
    """
    pairs = {name: value for name, _, value in (text.partition("=") for text in arguments)}
    return {name: value for name, value in pairs.items() if not name.lower().startswith("kafka.")} | dict(event_time)


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not 0 <= percent < 100:
        raise wrong("--loss", text, "a percentage from 0 to below 100 is expected, such as 0.1")
    return percent


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Yield a function that shows the progress of the reading, as a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("records"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("")

        def report_progress(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        yield report_progress
