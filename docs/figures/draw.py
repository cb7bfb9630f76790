# ruff: noqa: INP001  a script beside the pictures it draws
"""Draws the pictures of docs/design/rules.md: `python docs/figures/draw.py`.

Rule: what a picture shows was answered by the core while it was drawn, so a picture cannot say what the code does not
do. A test draws them again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from conformance.models.axis import Axis
from conformance.models.inbound import Barrier, Event, Inbound
from conformance.models.mapper import Mapper, MapperConfig
from conformance.models.sessions import closes, merge
from conformance.models.single_steps import SingleSteps
from keyedwm.core.axis import AxisConfig
from keyedwm.core.coalescer import ChannelAdded, Output
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import FixedLag, Policy, RealTimeLag
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep
from keyedwm.core.watermark import Guarantee, IdleMarker, Watermark
from keyedwm.core.window_rules import Touching

HERE = Path(__file__).parent
STEP, LANE, LEFT, TOP = 74, 40, 150, 44
COLOURS = {
    "wm": "#cfe3ff",
    "event": "#e9e9e9",
    "idle": "#fff0c2",
    "out": "#c9efd0",
    "bad": "#ffd0cc",
    "barrier": "#e4d3f7",
}
Cell = tuple[str, str]


class Drawing:
    """An SVG that grows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            '<g font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]
        self.text(12, 22, title, weight="bold")

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> None:
        """One line of text."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" fill="#222">{escape(text)}</text>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, *, colour: str = "#999999", width: float = 1) -> None:
        """A straight line."""
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A box in the colour of its kind."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{COLOURS[kind]}" '
            f'stroke="#888888"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A box without a border."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """A dot."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{colour}"/>')

    def svg(self) -> str:
        """The document."""
        return "\n".join([*self._parts, "</g>", "</svg>", ""])


def lanes(title: str, rows: Sequence[tuple[str, Sequence[Cell | None]]]) -> str:
    """One lane a row, one column a step; a cell is (kind, text)."""
    columns = max(len(cells) for _, cells in rows)
    drawing = Drawing(LEFT + columns * STEP + 16, TOP + len(rows) * LANE + 12, title)
    for index, (name, cells) in enumerate(rows):
        middle = TOP + index * LANE + LANE / 2
        drawing.text(12, middle + 4, name)
        drawing.line(LEFT - 8, middle, LEFT + columns * STEP, middle)
        for column, cell in enumerate(cells):
            if cell is not None:
                kind, text = cell
                drawing.box(LEFT + column * STEP + 3, middle - 13, STEP - 6, 26, kind)
                drawing.text(LEFT + column * STEP + STEP / 2, middle + 4, text, anchor="middle")
    return drawing.svg()


def told(output: Sequence[Output]) -> Cell | None:
    """An answer as a cell."""
    if not output:
        return None
    words = ["idle" if isinstance(one, IdleMarker) else f"{one.time_ms}" for one in output]
    return ("out", ", ".join(words))


def coalesced(title: str, channels: str, steps: Sequence[tuple], **options: object) -> str:
    """Steps (channel, what, argument ...) through a coalescer, one a column; the last lane is the output."""
    coalescer = SingleSteps(**options)  # type: ignore[arg-type]
    coalescer.step([ChannelAdded(channel) for channel in channels], 0)
    rows: dict[str, list[Cell | None]] = {channel: [] for channel in [*channels, *"cd"]}
    out: list[Cell | None] = []
    clock: list[Cell | None] = []
    for channel, what, *arguments in steps:
        for cells in rows.values():
            cells.append(None)
        now_ms = arguments[-1] if options.get("retention_ms") else 0
        act: dict[str, Callable[[], list[Output]]] = {
            "wm": lambda c=channel, a=arguments, n=now_ms: coalescer.watermark(c, 0, a[0], n),  # type: ignore[misc]
            "key": lambda c=channel, a=arguments: coalescer.watermark(c, a[0], a[1]),  # type: ignore[misc]
            "event": lambda c=channel: coalescer.event(c),  # type: ignore[misc]
            "idle": lambda c=channel: coalescer.idle(c),  # type: ignore[misc]
            "done": lambda c=channel: coalescer.done(c),  # type: ignore[misc]
            "added": lambda c=channel: coalescer.add(c),  # type: ignore[misc]
            "removed": lambda c=channel: coalescer.remove(c),  # type: ignore[misc]
            "clock": lambda n=now_ms: coalescer.check(n),  # type: ignore[misc]
        }
        kind = {"wm": "wm", "key": "wm", "event": "event"}.get(what, "idle")
        label = {
            "wm": f"W {arguments[0]}" if arguments else "",
            "key": "k{} W {}".format(*arguments[:2]) if what == "key" else "",
        }
        try:
            answer = act[what]()
            keyed = [f"k{one.key}: {one.time_ms}" for one in answer if isinstance(one, Watermark)]
            out.append(("out", " ".join(keyed)) if what == "key" and keyed else told(answer))
        except KeyedwmError:
            kind = "bad"
            out.append(("bad", "refused"))
        if channel:
            rows[channel][-1] = (kind, label.get(what, what))
        clock.append(("event", f"{now_ms}"))
    shown = [(f"channel {channel}", cells) for channel, cells in rows.items() if any(cells) or channel in channels]
    extra = [("clock", clock)] if options.get("retention_ms") else []
    return lanes(title, [*extra, *shown, ("coalesced", out)])


def policy_plot(title: str, runs: Sequence[tuple[str, Policy, int]]) -> str:
    """Event times in order of arrival, and the watermark that each policy puts before them."""
    arrivals = [(0, 12), (2, 15), (4, 9), (6, 22), (8, 18), (10, 30), (12, 27), (14, 36)]
    colours = ("#1f77b4", "#d62728")
    scale, height = 5, 240
    drawing = Drawing(LEFT + len(arrivals) * STEP + 150, height + TOP + 20, title)

    def y(time_ms: float) -> float:
        return TOP + height - 20 - time_ms * scale

    for index, (_, event_ms) in enumerate(arrivals):
        x = LEFT + index * STEP
        drawing.dot(x, y(event_ms), "#444444")
        drawing.text(x + 6, y(event_ms) - 6, f"event {event_ms}")
    for colour, (name, policy, clock_ahead_ms) in zip(colours, runs, strict=True):
        axis = Axis(AxisConfig(0, policy, NoThrottle()))
        before: float | None = None
        for index, (pause_ms, event_ms) in enumerate(arrivals):
            x = LEFT + index * STEP
            sent = axis.observe(event_ms, pause_ms * 2 + clock_ahead_ms)
            now = before if sent is None else float(sent)
            if now is not None:
                drawing.line(x, y(now), x + STEP, y(now), colour=colour, width=2)
                if before is not None and now != before:
                    drawing.line(x, y(before), x, y(now), colour=colour, width=2)
            before = now
        if before is not None:
            drawing.text(LEFT + len(arrivals) * STEP + 6, y(before) + 4, name)
    return drawing.svg()


def throttles() -> str:
    """The same watermarks through every throttle."""
    ideal = [2, 3, 7, 11, 12, 18, 21]
    rows: list[tuple[str, list[Cell | None]]] = [("true watermark", [("wm", f"W {one}") for one in ideal])]
    named: list[tuple[str, Throttle]] = [
        ("none", NoThrottle()),
        ("step 5", ThrottleByStep(5)),
        ("frame 10", ThrottleByFrame(10)),
        ("batch (ends here)", ThrottleByBatch()),
    ]
    for name, throttle in named:
        run = throttle.build()
        sent = [run.admit(one) for one in ideal]
        sent[-1] = run.end_of_batch(ideal[-1]) if sent[-1] is None else sent[-1]
        rows.append((name, [None if one is None else ("out", f"{one}") for one in sent]))
    return lanes("8. Throttling: what is worth sending", rows)


def replayed() -> str:
    """The same events and clock readings twice: the answers cannot differ."""
    inputs = [(10, 100), (14, 103), (None, 110), (20, 111)]
    rows: list[tuple[str, list[Cell | None]]] = [
        ("clock given", [("event", f"{now_ms}") for _, now_ms in inputs]),
        ("event", [None if event_ms is None else ("wm", f"{event_ms}") for event_ms, _ in inputs]),
    ]
    for name in ("on Monday", "replay on Friday"):
        mapper = Mapper(MapperConfig(FixedLag(2), NoThrottle(), Idleness(7)))
        mapper.add(["a"], 100)
        cells = [
            told(mapper.tick(now_ms) if event_ms is None else mapper.event("a", event_ms, now_ms))
            for event_ms, now_ms in inputs
        ]
        rows.append((name, cells))
    return lanes("9. Time is an argument: a replay answers the same", rows)


def exact_idleness() -> str:
    """The same silence, with and without a backlog."""
    idleness = Idleness(60)
    clocks = [0, 30, 60, 90]
    rows: list[tuple[str, list[Cell | None]]] = [("seconds since record", [("event", f"{now}") for now in clocks])]
    for name, caught_up in (("at the log end", True), ("with a backlog", False)):
        cells = [
            ("idle", "idle")
            if idleness.is_idle(quiet_since_ms=0, now_ms=now, caught_up=caught_up)
            else ("wm", "active")
            for now in clocks
        ]
        rows.append((name, list(cells)))
    return lanes("10. Idle is exact: a backlog is never idleness (timeout 60)", rows)


def windows() -> str:
    """Intervals of windows and sessions on the axis of event time."""
    scale, top = 16, TOP + 16
    drawing = Drawing(
        LEFT + 34 * scale, 300, "11. Windows close at W >= end; touching sessions merge and close above their end"
    )

    def bar(row: int, start: int, end: int, text: str, kind: str = "wm") -> None:
        drawing.box(LEFT + start * scale, top + row * 28, (end - start) * scale, 22, kind)
        drawing.text(LEFT + (start + end) * scale / 2, top + row * 28 + 15, text, anchor="middle")

    events = [3, 8, 14, 24]
    drawing.text(12, top + 15, "events, gap 6")
    for event in events:
        drawing.dot(LEFT + event * scale, top + 11, "#444444")
        drawing.text(LEFT + event * scale + 6, top + 15, f"{event}")
    drawing.text(12, top + 28 + 15, "window 20 by 10")
    for row, (start, end) in enumerate(((0, 20), (10, 30))):
        bar(1 + row, start, end, f"[{start}, {end}) closes at W >= {end}")
    for row, touching in enumerate(Touching):
        drawing.text(12, top + (4 + row) * 28 + 15, f"sessions, {touching.value}")
        for (start, end), _ in merge([(event, event + 6) for event in events], touching):
            closing = end if closes(end, end, touching) else end + 1
            bar(4 + row, start, end, f"W >= {closing}", "out")
    axis = top + 7 * 28
    drawing.line(LEFT, axis, LEFT + 32 * scale, axis)
    for at in range(0, 31, 10):
        drawing.line(LEFT + at * scale, axis, LEFT + at * scale, axis + 5)
        drawing.text(LEFT + at * scale, axis + 20, f"{at}", anchor="middle")
    return drawing.svg()


def barriers() -> str:
    """The same input under both guarantees."""
    steps = [("a", Event("a1")), ("a", Barrier(0)), ("a", Event("a2")), ("b", Event("b1")), ("b", Barrier(0))]
    rows: list[tuple[str, list[Cell | None]]] = []
    for channel in "ab":
        cells = [_item(item) if name == channel else None for name, item in steps]
        rows.append((f"channel {channel}", cells))
    for guarantee in Guarantee:
        inbound = Inbound("ab", guarantee=guarantee)
        out: list[Cell | None] = []
        for channel, item in steps:
            inbound.append_item(channel, item)
            out += [_item(one) for one in inbound.drain()]  # type: ignore[arg-type]
        rows.append((guarantee.value, out))
    return lanes("12. Barriers: exactly-once holds what stands behind one", rows)


def _item(item: Event | Barrier) -> Cell:
    return ("event", str(item.payload)) if isinstance(item, Event) else ("barrier", f"barrier {item.snapshot_id}")


def restarts() -> str:
    """One run, the same with a restore after every step, the same cut into two."""
    events = [10, 13, 12, 19, 25]
    config = AxisConfig(0, FixedLag(3), ThrottleByFrame(5))
    rows: list[tuple[str, list[Cell | None]]] = [("event", [("wm", f"{event}") for event in events])]
    for name, restored in (("in one piece", ()), ("restored each time", (0, 1, 2, 3, 4)), ("cut in two", (2,))):
        axis = Axis(config)
        cells: list[Cell | None] = []
        for index, event in enumerate(events):
            axis = Axis(config, axis.state()) if index in restored else axis
            sent = axis.observe(event, 0)
            cells.append(None if sent is None else ("out", f"{sent}"))
        rows.append((name, cells))
    return lanes("13. Restarts and cuts are invisible", rows)


def pictures() -> dict[str, str]:
    """Every picture by file name."""
    return {
        **coalescings(),
        "rule07.svg": policy_plot(
            "7. Policies; a wall clock never makes the observed event late",
            [("fixed lag 5", FixedLag(5), 0), ("real-time lag 0, capped", RealTimeLag(0), 16)],
        ),
        "rule08.svg": throttles(),
        "rule09.svg": replayed(),
        "rule10.svg": exact_idleness(),
        "rule11.svg": windows(),
        "rule12.svg": barriers(),
        "rule13.svg": restarts(),
    }


def coalescings() -> dict[str, str]:
    """The pictures of what a coalescer answers."""
    return {
        "rule01.svg": coalesced(
            "1. A watermark strictly increases, or is refused",
            "a",
            [("a", "wm", 10), ("a", "wm", 12), ("a", "wm", 12), ("a", "wm", 11), ("a", "wm", 13)],
        ),
        "rule02.svg": coalesced(
            "2. The minimum over channels that are not idle; a woken laggard holds",
            "ab",
            [
                ("a", "wm", 10),
                ("b", "wm", 7),
                ("b", "idle"),
                ("b", "event"),
                ("a", "wm", 20),
                ("b", "wm", 15),
                ("b", "done"),
            ],
        ),
        "rule03.svg": coalesced(
            "3. Keys are independent; idle counts for all of them",
            "ab",
            [
                ("a", "key", 1, 10),
                ("a", "key", 2, 90),
                ("b", "key", 2, 80),
                ("b", "idle"),
                ("b", "key", 1, 15),
                ("a", "key", 2, 99),
            ],
        ),
        "rule04.svg": coalesced(
            "4. All idle: flush the highest, once, then one marker",
            "ab",
            [
                ("a", "wm", 10),
                ("b", "wm", 20),
                ("b", "idle"),
                ("a", "idle"),
                ("a", "idle"),
                ("b", "event"),
                ("b", "idle"),
            ],
        ),
        "rule05.svg": coalesced(
            "5. Channels come and go",
            "a",
            [("a", "wm", 10), ("c", "added"), ("a", "wm", 20), ("c", "wm", 5), ("c", "removed"), ("a", "removed")],
        ),
        "rule06.svg": coalesced(
            "6. Maximum retention of 100: the top of 100 ago, although b has not reached it",
            "ab",
            [("a", "wm", 10, 0), ("a", "wm", 20, 50), ("", "clock", 99), ("", "clock", 100), ("", "clock", 150)],
            retention_ms=100,
        ),
    }


if __name__ == "__main__":
    for file_name, svg in pictures().items():
        (HERE / file_name).write_text(svg, encoding="utf-8")
        print(f"wrote {file_name}")
