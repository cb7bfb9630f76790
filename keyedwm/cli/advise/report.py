"""The advice as text for people and as JSON for scripts; both end with options to copy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from rich import box
from rich.table import Table

from keyedwm.arrow.instants import iso_text
from keyedwm.cli.advise.advice import ONE, PER_KEY, PER_PARTITION, Advice
from keyedwm.cli.advise.losses import DAY_MS, HOUR_MS, LAGS_MS, MINUTE_MS, SECOND_MS, zone_sentences
from keyedwm.cli.advise.read import TimeFate
from keyedwm.cli.printable import PlainConsole
from keyedwm.core.text import about_span, span_text

AHEAD = "1 hour"
_RULE_OF_THREE = 3
_MOST_PARTITIONS = 20
_HIGHEST = "highest event time"
_HEADS = {ONE: "one watermark", PER_PARTITION: "one per partition", PER_KEY: "one per key"}
_WRONG = {
    TimeFate.UNREADABLE: "missing or unreadable",
    TimeFate.FUTURE: f"more than {AHEAD} in the future",
    TimeFate.LONG_AGO: "of 1970, though the record is not (seconds taken for milliseconds, or a zero)",
    TimeFate.TOMBSTONE: "tombstones, which have none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """Topic and thresholds of the figures. options: the source's options that the arguments set."""

    topic: str
    window_ms: int
    share: float
    options: Mapping[str, str]


def options_of(advice: Advice, request: AdviceRequest) -> dict[str, str]:
    """Return the options of the source to set."""
    timeout = advice.idle.timeout_ms
    options = {
        **request.options,
        "watermarkLag": _span(advice.lag_ms),
        "idleTimeout": "none" if timeout is None else span_text(timeout),
    }
    return options | ({"maxEventTimeAhead": AHEAD} if advice.fates[TimeFate.FUTURE] else {})


def as_json(advice: Advice, request: AdviceRequest) -> str:
    """Return everything, spans and instants in ms."""
    return json.dumps({
        "topic": request.topic,
        "records": advice.records,
        "counted": advice.record_count,
        "begin_ms": advice.begin_ms,
        "end_ms": advice.end_ms,
        "arrival": "LogAppendTime" if advice.appended else "CreateTime",
        "stamped_by_event_time": advice.stamped_by_event,
        "window_ms": request.window_ms,
        "event_times": {fate.name.lower(): count for fate, count in advice.fates.items()},
        "hints": list(advice.hints),
        "zones": [{"partition": number, "ahead_ms": ahead_ms} for number, ahead_ms in advice.zones],
        "lags": [
            {"lag_ms": lag} | {
                _name(way): {"late": losses.late(lag), "dropped": losses.dropped_count(lag)}
                for way, losses in advice.ways.items()
            }
            for lag in LAGS_MS
        ],
        "least_lag_ms": {_name(way): losses.least_lag_ms(advice.most_late) for way, losses in advice.ways.items()},
        "partitions": [asdict(one) for one in advice.partitions],
        "watermark_lag": {"lag_ms": advice.lag_ms, "late": advice.late, "share": advice.share(advice.late)},
        "idle_timeout": asdict(advice.idle),
        "warnings": list(warnings_of(advice, request)),
        "options": options_of(advice, request),
    }, indent=2)  # fmt: skip


def _name(way: str) -> str:
    return way.replace(" ", "_")


def show(out: PlainConsole, advice: Advice, request: AdviceRequest) -> None:
    """Print the figures, the conclusions, and the options to copy."""
    for line in _about(advice, request):
        out.print(line, soft_wrap=True)
    out.print(_losses(advice, request))
    out.print(_partitions(advice))
    for line in _conclusions(advice, request):
        out.print(line, soft_wrap=True)
    for name, value in options_of(advice, request).items():
        out.print(f"    .option({json.dumps(name)}, {json.dumps(value, ensure_ascii=False)})", soft_wrap=True)


def warnings_of(advice: Advice, request: AdviceRequest) -> Iterator[str]:
    """Yield why the sample may be too small: it cannot contain delays longer than its own time span."""
    span_ms = advice.end_ms - advice.begin_ms
    if span_ms < request.window_ms:
        yield (
            f"warning: the records arrived within {about_span(span_ms)}, so no record of them can show a longer delay: "
            f"read more records (--records), or advise again when the topic holds {span_text(request.window_ms)} of "
            f"them; until then set a watermarkLag by what you know of the producers"
        )
    # None of n records late: the true share is below 3/n in 95 of 100 cases (the rule of three).
    least = math.ceil(_RULE_OF_THREE / (request.share / 100)) if request.share else 0
    if advice.record_count < least:
        yield (
            f"warning: {advice.record_count:,} records are too few to decide a share of {request.share:.3g} %: at "
            f"least {least:,} are needed"
        )


def _about(advice: Advice, request: AdviceRequest) -> Iterator[str]:
    yield (
        f"topic {request.topic}: the newest {advice.records:,} records of {len(advice.partitions)} partitions, arrived "
        f"from {iso_text(advice.begin_ms)} to {iso_text(advice.end_ms)}; {advice.record_count:,} of them are counted "
        "below"
    )
    stamped = "brokers stamped them (LogAppendTime)" if advice.appended else "producers stamped them (CreateTime)"
    yield f"order of arrival: by offset within a partition, by record timestamp across partitions; {stamped}"
    yield "watermarks follow every record here; those of a query follow every batch, so it loses no more than this"
    if advice.stamped_by_event:
        yield (
            "the timestamps are the event times, so the arrival across partitions is not known: one watermark and an "
            "idle partition may cost more than is said here"
        )
    for fate, sentence in _WRONG.items():
        if advice.fates[fate]:
            yield f"event times {sentence}: {advice.fates[fate]:,}; the figures ignore them"
    yield from advice.hints[:1]
    yield from zone_sentences(dict(advice.zones))


def _losses(advice: Advice, request: AdviceRequest) -> Table:
    title = f"Records late, and dropped as their window of {span_text(request.window_ms)} had ended, by lag"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("watermarkLag", justify="right")
    for way in advice.ways:
        table.add_column(f"{_HEADS[way]}: late", justify="right")
        table.add_column("dropped", justify="right")
    for lag_ms in LAGS_MS:
        counts = ((losses.late(lag_ms), losses.dropped_count(lag_ms)) for losses in advice.ways.values())
        cells = (f"{count:,} {100 * advice.share(count):.3g}%" for pair in counts for count in pair)
        table.add_row(_span(lag_ms), *cells)
    return table


def _partitions(advice: Advice) -> Table:
    ranked = sorted(
        advice.partitions,
        key=lambda one: (one.records > 0, -(one.median_behind_ms or 0), -(one.behind_ms or 0), one.partition),
    )
    more = len(ranked) - _MOST_PARTITIONS
    title = "Partitions, those furthest behind first" + (f" ({more} more)" if more > 0 else "")
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    for head in ("partition", "records", _HIGHEST, "behind at the end", "behind, median",
                 "longest silence", "silent at the end"):  # fmt: skip
        table.add_column(head, justify="right", no_wrap=head == _HIGHEST)
    for one in ranked[:_MOST_PARTITIONS]:
        top = None if one.highest_event_ms is None else iso_text(one.highest_event_ms // SECOND_MS * SECOND_MS)
        spans = (one.behind_ms, one.median_behind_ms, one.longest_silence_ms, one.silent_at_end_ms)
        table.add_row(
            str(one.partition),
            f"{one.records:,}",
            "none" if top is None else top.replace(".000", ""),
            *map(_clock, spans),
        )
    return table


def _conclusions(advice: Advice, request: AdviceRequest) -> Iterator[str]:
    yield f"smallest lag that leaves at most {request.share:.3g} % late: " + ", ".join(
        f"{_span(losses.least_lag_ms(advice.most_late))} with {_HEADS[way]}" for way, losses in advice.ways.items()
    )
    yield (
        f"watermarkLag {_span(advice.lag_ms)} leaves {_count_text(advice, advice.late)} of the records late behind "
        "their own partition's watermark; the query's watermark is the lowest of these, so no more are late"
    )
    idle = advice.idle
    if idle.timeout_ms is None:
        yield (
            "idleTimeout none: after silences even of a day, partitions came back with records that would be late: a "
            "partition that falls silent for good then blocks the others until it has a record"
        )
    else:
        yield (
            f"idleTimeout {span_text(idle.timeout_ms)}: {idle.silences:,} silences of a partition were longer, after "
            f"which at most {_count_text(advice, idle.late)} of the records come late; a partition that falls silent "
            "for good blocks the others for that long"
        )
    yield from warnings_of(advice, request)
    yield "options of the source:"


def _count_text(advice: Advice, count: int) -> str:
    return f"{count:,} ({100 * advice.share(count):.3g} %)"


def _span(ms: int) -> str:
    """Return a span in the form of an option: 17,100,000 ms are `4 hours 45 minutes`."""
    parts = []
    for unit_ms in (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS):
        whole_ms = ms // unit_ms * unit_ms
        ms -= whole_ms
        parts += [span_text(whole_ms)] if whole_ms else []
    return " ".join(parts) or "0 seconds"


def _clock(ms: int | None) -> str:
    """Return a measured span as days and a clock: 93,784,005 ms are `1d 02:03:04`."""
    if ms is None:
        return "none"
    if ms < SECOND_MS:
        return f"{ms} ms"
    days, rest_ms = divmod(ms, DAY_MS)
    seconds = rest_ms // SECOND_MS
    text = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{days}d {text}" if days else text
