"""How fast the event-time core is: `python benchmarks/core.py`. Best of a few runs, printed, never asserted.

The targets are those the core is built for: 50 M rows/s for a batch, 5 ms for a planning step over 10,000 channels,
20 ms for the encoded state of 10,000 channels.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from conformance.models.axis import Axis
from keyedwm.arrow.axis import AxisRun, late
from keyedwm.core.axis import AxisConfig, AxisState, Counts
from keyedwm.core.channel_encoding import decode_channels, encode_channels
from keyedwm.core.coalescer import ChannelAdded, Coalescer, WatermarkAdvanced
from keyedwm.core.encoding import CommittedState, decode_committed, encode_committed
from keyedwm.core.policy import FixedLag, LagAndLull, RealTimeLag
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep

ROWS = 4_000_000
CHANNELS = 10_000
RUNS = 5
START_MS = 1_731_000_000_000


def best(act: Callable[[], object], setup: Callable[[], object] | None = None) -> float:
    """Seconds of the fastest of a few runs, after one to warm up."""
    fastest = float("inf")
    for run in range(RUNS + 1):
        if setup is not None:
            setup()
        started = time.perf_counter()
        act()
        if run:
            fastest = min(fastest, time.perf_counter() - started)
    return fastest


def rows() -> None:
    """Watermarks and late status of one batch of disordered events, one per millisecond on average."""
    rng = np.random.default_rng(7)
    times = START_MS + np.arange(ROWS) + rng.integers(-5_000, 5_000, ROWS)
    every = pa.array(times)
    some = pa.array(times, mask=rng.random(ROWS) < 0.01)
    throttles: list[Throttle] = [ThrottleByBatch(), ThrottleByFrame(1000), ThrottleByStep(1000), NoThrottle()]
    print(f"{ROWS:,} rows through policy, cap, throttle and late status (target 50 M rows/s)")
    for policy in (FixedLag(5_000), LagAndLull(5_000, 1_000), RealTimeLag(5_000)):
        for throttle in throttles:
            config = AxisConfig(0, policy, throttle)
            for name, column in (("no nulls", every), ("1 % null", some)):
                sent_rows = 0

                def act(config: AxisConfig = config, column: pa.Array = column) -> None:
                    nonlocal sent_rows
                    event_ms = column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()
                    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
                    run = AxisRun(config, AxisState(), START_MS + ROWS)
                    sent_rows = len(run.rows(event_ms, valid)[0])
                    late(event_ms, valid, START_MS + ROWS // 2)

                seconds = best(act)
                case = f"{type(policy).__name__}, {type(throttle).__name__}, {name}"
                print(f"  {case:45} {ROWS / seconds / 1e6:7.0f} M rows/s  {sent_rows:9,} watermarks")
    axis = Axis(AxisConfig(0, FixedLag(5_000), ThrottleByFrame(1000)))
    few = times[:100_000].tolist()
    seconds = best(lambda: [axis.observe(time_ms, 0) for time_ms in few])
    print(f"  {'scalar reference':45} {len(few) / seconds / 1e6:7.2f} M rows/s")


def planning() -> None:
    """One planning step: every channel has advanced."""
    names = [f"flights-{number}" for number in range(CHANNELS)]
    coalescer = Coalescer()
    coalescer.step([ChannelAdded(name) for name in names], 0)
    changes: list[WatermarkAdvanced] = []
    at_ms = START_MS

    def advance() -> None:
        nonlocal changes, at_ms
        at_ms += 1000
        changes = [WatermarkAdvanced(name, 0, at_ms + number % 977) for number, name in enumerate(names)]

    print(f"coalescing {CHANNELS:,} channels, all advanced (target 5 ms)")
    print(f"  step     {best(lambda: coalescer.step(changes, 0), advance) * 1e3:6.2f} ms")
    quiet = best(lambda: coalescer.step((), 0))
    print(f"  nothing new {quiet * 1e3:.2f} ms")
    state = coalescer.snapshot()
    restore = best(lambda: Coalescer.restore(state))
    print(f"  snapshot {best(coalescer.snapshot) * 1e3:6.2f} ms, restore {restore * 1e3:.2f} ms")
    encoded = encode_channels(state)
    print(f"state of {CHANNELS:,} channels as bytes (target 20 ms)")
    print(
        f"  encode   {best(lambda: encode_channels(state)) * 1e3:6.2f} ms, decode "
        f"{best(lambda: decode_channels(encoded)) * 1e3:.2f} ms, {len(encoded):,} bytes"
    )


def committing() -> None:
    """The metadata strings that reading tasks commit and the planner reads."""
    key, place = b"0123456789abcdef" * 2, "group orders-0 1000000 0123456789abcdef"
    axes = ({0: AxisState((START_MS + number,), START_MS + number - 5000)} for number in range(CHANNELS))
    states = [CommittedState(7, Counts(), of_channel) for of_channel in axes]
    texts = [encode_committed(state, key, place) for state in states]
    encode = best(lambda: [encode_committed(state, key, place) for state in states])
    decode = best(lambda: [decode_committed(text, key, place) for text in texts])
    print(f"offset metadata of {CHANNELS:,} partitions, one string each of {len(texts[0])} characters")
    print(f"  encode   {encode * 1e3:6.2f} ms, decode {decode * 1e3:.2f} ms")


if __name__ == "__main__":
    rows()
    planning()
    committing()
