"""The laws of a watermark policy, for tests of a policy of your own (`watermarkPolicy=module:factory`).

Rule: all randomness comes from the seed, which a failure names.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.encoding import KEY_BYTES, METADATA_BYTES, CommittedState, encode_committed
from keyedwm.core.policy import Policy, PolicyRun
from keyedwm.core.watermark import MAX_MS, MIN_MS

_LONG_AGO_MS = 0
_START_MS = 1_700_000_000_000
_EVENTS = 40
_LONG = 5_000
_SPREAD_MS = 90_000  # how far events are out of order, and how far the clock advances between batches

# The events of one batch in ms, and the clock reading in ms at which it was planned.
_Batch = tuple[Sequence[int], int]


def check_policy(policy: Policy, *, seeds: int = 100, first_seed: int = 0) -> None:
    """Check the laws of `keyedwm.core.policy.Policy` by random runs; raises AssertionError, which names law and seed.

    - monotone: while the clock does not go back, the watermark does not go back;
    - cut-independent: the highest event of a batch has the effect of all of its events. A run restored from a snapshot
      has the watermarks of the run itself. Snapshots of two ranges concatenate to the snapshot of the whole range;
    - `event_lag_ms`: right after an event the watermark is the one before, or the event less the lag if that is higher;
    - small: a snapshot is a tuple of whole numbers of 64 bits, and fits into a broker's 4,096 bytes after 5,000
      batches.
    """
    for seed in range(first_seed, first_seed + seeds):
        batches = _batches(seed)
        _check_monotone(policy, batches, seed)
        _check_top(policy, batches, seed)
        _check_snapshots(policy, batches, seed)
        _check_concatenation(policy, batches, seed)
        _check_lag(policy, batches, seed)
    _check_size(policy, first_seed)


def _batches(seed: int, count: int = 6) -> list[_Batch]:
    chance = random.Random(seed)  # noqa: S311  a seed, not a secret
    now_ms, top_ms = _START_MS, _START_MS + chance.randrange(-_SPREAD_MS, _SPREAD_MS)
    batches: list[_Batch] = []
    for _ in range(count):
        now_ms += chance.choice((0, 1, 1_000, chance.randrange(_SPREAD_MS)))
        top_ms += chance.randrange(_SPREAD_MS)
        events = [top_ms - chance.randrange(_SPREAD_MS) for _ in range(chance.randrange(1, _EVENTS))]
        batches.append((events, now_ms))
    return batches


def _check_monotone(policy: Policy, batches: Sequence[_Batch], seed: int) -> None:
    run, last = policy.build(), None
    for events, now_ms in batches:
        for event_ms in events:
            run.observe(event_ms, now_ms)
            watermark_ms = run.current(now_ms)
            _require(
                watermark_ms is None or (type(watermark_ms) is int and MIN_MS <= watermark_ms <= MAX_MS),
                "whole", seed, f"current({now_ms}) gave {watermark_ms!r}",
            )  # fmt: skip
            _require(
                last is None or (watermark_ms is not None and watermark_ms >= last), "monotone", seed,
                f"the watermark went from {last} to {watermark_ms} with observe({event_ms}, {now_ms})",
            )  # fmt: skip
            last = watermark_ms


def _check_top(policy: Policy, batches: Sequence[_Batch], seed: int) -> None:
    one, all_ = policy.build(), policy.build()
    for events, now_ms in batches:
        one.observe(max(events), now_ms)
        for event_ms in events:
            all_.observe(event_ms, now_ms)
        _require_same(policy, (one, all_), now_ms, seed, "the highest event of a batch, and all of its events")


def _check_snapshots(policy: Policy, batches: Sequence[_Batch], seed: int) -> None:
    going_on, restored = policy.build(), policy.build()
    for events, now_ms in batches:
        for run in (going_on, restored):
            run.observe(max(events), now_ms)
        answers = [going_on.current(now_ms), restored.current(now_ms)]
        _require(
            answers[0] == answers[1], "cut-independent", seed,
            f"a run, and one restored from its snapshots, differ at {now_ms}: {answers}",
        )  # fmt: skip
        restored = policy.build(restored.snapshot())


def _check_concatenation(policy: Policy, batches: Sequence[_Batch], seed: int) -> None:
    before = policy.build()
    for number, (events, now_ms) in enumerate(batches):
        state, half = before.snapshot(), number % len(events)
        parts: list[tuple[int, ...]] = []
        for part in (events[:half], events[half:]):
            run = policy.build(state if not parts else None)
            if part:
                run.observe(max(part), now_ms)
            parts.append(run.snapshot())
        joined = policy.build(policy.concatenate(*parts))
        before.observe(max(events), now_ms)
        _require_same(policy, (before, joined), now_ms, seed, "a range, and its parts concatenated")


def _check_lag(policy: Policy, batches: Sequence[_Batch], seed: int) -> None:
    run, lag_ms = policy.build(), policy.event_lag_ms
    for events, now_ms in batches:
        for event_ms in events:
            still = policy.build(run.snapshot())
            still.observe(_LONG_AGO_MS, now_ms)
            base_ms = still.current(now_ms)
            run.observe(event_ms, now_ms)
            after_ms = run.current(now_ms)
            if lag_ms is None:
                continue  # then events move the watermark only at the end of their batch
            said_ms = event_ms - lag_ms
            right_ms = said_ms if base_ms is None else max(base_ms, said_ms)
            _require(
                after_ms == right_ms, "event_lag_ms", seed,
                f"with a lag of {lag_ms} observe({event_ms}, {now_ms}) gave {after_ms} after {base_ms}; {right_ms} is "
                f"right",
            )  # fmt: skip


def _check_size(policy: Policy, seed: int) -> None:
    run = policy.build()
    for events, now_ms in _batches(seed, _LONG):
        run.observe(max(events), now_ms)
        run.current(now_ms)
        state = run.snapshot()
        _require(
            isinstance(state, tuple) and all(type(n) is int and MIN_MS <= n <= MAX_MS for n in state), "small", seed,
            f"the snapshot is {state!r}",
        )  # fmt: skip
    committed = CommittedState(_LONG, Counts(_LONG, _LONG, _LONG), {0: AxisState(state, _START_MS)})
    size = len(encode_committed(committed, bytes(KEY_BYTES), "check"))
    _require(size <= METADATA_BYTES, "small", seed, f"after {_LONG} batches the state takes {size} bytes")


def _require_same(policy: Policy, runs: tuple[PolicyRun, PolicyRun], now_ms: int, seed: int, subject: str) -> None:
    """Require equal watermarks of two runs, now and at later clock readings; only copies of the runs are read."""
    copies = [policy.build(run.snapshot()) for run in runs]
    for later_ms in (0, 1, 1_000, _SPREAD_MS):
        one, other = (copy.current(now_ms + later_ms) for copy in copies)
        _require(one == other, "cut-independent", seed, f"{subject}, differ at {now_ms + later_ms}: {one}, {other}")


def _require(holds: bool, law: str, seed: int, difference: str) -> None:
    if not holds:
        raise AssertionError(f"the policy is not {law} (seed {seed}): {difference}")
