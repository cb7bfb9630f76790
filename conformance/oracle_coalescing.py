"""Players for the oracles of coalescing, edges and interval merging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from conformance.aligned import AlignedBarriers
from conformance.models.inbound import Barrier, End, Event, Inbound, Item, Terminal
from conformance.models.single_steps import SingleSteps
from conformance.players import Maker, Player
from conformance.session_runs import merged
from keyedwm.core.coalescer import (
    Change,
    ChannelAdded,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    Output,
    WatermarkAdvanced,
)
from keyedwm.core.watermark import Guarantee, IdleMarker, Watermark
from keyedwm.core.window_rules import Touching


def channels(count: int) -> list[str]:
    """The names of numbered queues, inputs or partitions, in an order that sorting keeps."""
    return [f"c-{number:04d}" for number in range(count)]


def as_lists(output: Iterable[Output], *, keyed: bool) -> list[list]:
    """Output items as the oracle files write them."""
    items: list[list] = []
    for item in output:
        if isinstance(item, IdleMarker):
            items.append(["idle"])
        else:
            items.append(["wm", item.key, item.time_ms] if keyed else ["wm", item.time_ms])
    return items


def _all_active(names: list[str], **options: object) -> SingleSteps:
    coalescer = SingleSteps(**options)  # type: ignore[arg-type]
    coalescer.step([ChannelAdded(name) for name in names], 0)
    return coalescer


def _queues(config: Mapping) -> Player:
    return _coalescer_player(_all_active(channels(config["queues"])), keyed=False)


def _keyed_queues(config: Mapping) -> Player:
    return _coalescer_player(_all_active(channels(config["queues"])), keyed=True)


def _coalescer_player(coalescer: SingleSteps, *, keyed: bool) -> Player:
    def play(op: str, arguments: list) -> list:
        channel = channels(arguments[0] + 1)[-1]
        if op == "wm":
            key, time_ms = (arguments[1], arguments[2]) if keyed else (0, arguments[1])
            return as_lists(coalescer.watermark(channel, key, time_ms), keyed=keyed)
        step = {"idle": coalescer.idle, "event": coalescer.event, "active": coalescer.event, "done": coalescer.done}
        return as_lists(step[op](channel), keyed=keyed)

    return play


def _valve(config: Mapping) -> Player:
    return _coalescer_player(_all_active(channels(config["inputs"]), guarantee=Guarantee.AT_LEAST_ONCE), keyed=False)


def _retention(config: Mapping) -> Player:
    retention_ms = None if config["retain"] < 0 else config["retain"]
    coalescer = _all_active(channels(config["queues"]), retention_ms=retention_ms)

    def play(op: str, arguments: list) -> list:
        now_ms, *rest = arguments
        if op == "check":
            return as_lists(coalescer.check(now_ms), keyed=False)
        channel = channels(rest[0] + 1)[-1]
        if op == "wm":
            return as_lists(coalescer.watermark(channel, 0, rest[1], now_ms), keyed=False)
        step = {"idle": coalescer.idle, "event": coalescer.event, "done": coalescer.done}
        return as_lists(step[op](channel, now_ms), keyed=False)

    return play


def _mux(_config: Mapping) -> Player:
    coalescer = SingleSteps(guarantee=Guarantee.AT_LEAST_ONCE)
    pending: list[Change] = []

    def play(op: str, arguments: list) -> list:
        change, deferred = mux_change(op, arguments)
        if change is not None:
            pending.append(change)
        if deferred:
            return []
        changes = [*pending]
        pending.clear()
        return as_lists(coalescer.step(changes, 0), keyed=False)

    return play


def mux_change(op: str, arguments: list) -> tuple[Change | None, bool]:
    """A multiplexer's operation as a change, and whether it waits for the next periodic or immediate one."""
    if op == "periodic":
        return None, False
    split = arguments[0]
    if op == "register":
        return ChannelAdded(split), True
    if op == "unregister":
        return ChannelRemoved(split), False
    deferred = arguments[-1] == "d"
    if op == "wm":
        return WatermarkAdvanced(split, 0, arguments[2] if arguments[1] in ("i", "d") else arguments[1]), arguments[
            1
        ] == "d"
    return (ChannelWentIdle(split) if op == "idle" else ChannelWoken(split)), deferred


def _edge(config: Mapping) -> Player:
    names = channels(config["queues"])
    guarantee = Guarantee(config["guarantee"].replace("_", "-"))
    inbound = Inbound(names, guarantee=guarantee, alignment=AlignedBarriers)

    def play(op: str, arguments: list) -> list:
        if op == "drain":
            return [_shown_item(item) for item in inbound.drain()]
        queue, kind, *rest = arguments
        make: Mapping[str, Callable[..., Item]] = {
            "event": Event,
            "wm": Watermark,
            "barrier": Barrier,
            "idle": IdleMarker,
            "done": lambda: End.END,
        }
        inbound.append_item(names[queue], make[kind](*rest))
        return []

    return play


def _shown_item(item: Item | Terminal) -> list:
    if isinstance(item, Event):
        return ["event", item.payload]
    if isinstance(item, Barrier):
        return ["barrier", item.snapshot_id]
    if isinstance(item, Terminal):
        return ["barrier", item.barrier.snapshot_id]
    if isinstance(item, End):
        return ["done"]
    return as_lists([item], keyed=True)[0]


def _merge_windows(_config: Mapping) -> Player:
    def play(_op: str, arguments: list) -> list:
        intervals = list(zip(arguments[::2], arguments[1::2], strict=True))
        return [
            ["merged", *span, [list(member) for member in members]]
            for span, members in merged(intervals, Touching.MERGE)
            if len(members) > 1
        ]

    return play


def _merging_set(_config: Mapping) -> Player:
    spans: list[tuple[int, int]] = []

    def play(op: str, arguments: list) -> list:
        interval = (arguments[0], arguments[1])
        answer: list[list] = []
        if op == "add":
            spans[:] = [span for span, _ in merged([*spans, interval], Touching.MERGE)]
            (inside,) = (span for span in spans if span[0] <= interval[0] and interval[1] <= span[1])
            answer.append(["in", *inside])
        else:
            spans.remove(interval)
        return [*answer, ["open", [list(span) for span in spans]]]

    return play


COALESCING: Mapping[str, Maker] = {
    "jet-coalescer": _queues,
    "jet-keyed-coalescer": _keyed_queues,
    "jet-legacy-retention": _retention,
    "jet-edge-stream": _edge,
    "flink-valve": _valve,
    "flink-mux": _mux,
    "flink-merge-windows": _merge_windows,
    "flink-merging-window-set": _merging_set,
}
