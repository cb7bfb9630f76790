"""Random sequences through Hazelcast's own classes and through the core: the answers are the same.

The sequences keep to what the design and Jet agree on; `tests/vectors/oracle` has the rest. `KEYEDWM_SEEDS=N` runs N
times as many sequences of each kind; a failure names its seed.
"""

from __future__ import annotations

import random

import pytest

from conformance.models.frames import higher_frame
from conformance.models.mapper import Mapper, MapperConfig
from conformance.models.single_steps import SingleSteps
from keyedwm.core.coalescer import ChannelAdded
from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import FixedLag
from keyedwm.core.throttle import ThrottleByFrame, floor_frame
from keyedwm.core.watermark import IdleMarker, Status
from tests.core.hazelcast import IDLE, NONE, Hazelcast, hazelcast, hazelcast_jar
from tests.seeds import times

COALESCED, KEYED, MAPPED, FRAMED = 200, 200, 60, 60
AGREED_ERROR = [("error",)]


@pytest.fixture(scope="module")
def jet():
    try:
        hazelcast_jar()
    except (UnavailableError, KeyedwmError) as error:
        pytest.skip(f"Hazelcast cannot be fetched here: {error}")
    with hazelcast() as running:
        yield running


def as_tuples(output) -> list[tuple]:
    return [("idle",) if isinstance(item, IdleMarker) else ("wm", item.key, item.time_ms) for item in output]


def guarded(act) -> list[tuple]:
    try:
        return act()
    except KeyedwmError:
        return AGREED_ERROR


def jet_guarded(act) -> list[tuple]:
    from py4j.protocol import Py4JJavaError

    try:
        return act()
    except Py4JJavaError:
        return AGREED_ERROR


class Channels:
    """Chance for a sequence over a few channels, each mostly rising, now and then wrong."""

    def __init__(self, rng: random.Random, fewest: int) -> None:
        self.rng = rng
        self.count = rng.randint(fewest, 4)
        self.names = [f"c-{number}" for number in range(self.count)]
        self.at = [rng.randint(-9, 9) for _ in self.names]

    def next_ms(self, number: int) -> int:
        self.at[number] += self.rng.choice([0, 1, 1, 2, 3, 5, 8] if self.rng.random() < 0.04 else [1, 1, 2, 3, 5, 8])
        return self.at[number]


def plain_answers(jet: Hazelcast, seed: int) -> tuple[list, list]:
    rng = random.Random(seed)
    channels = Channels(rng, fewest=2)
    coalescer, peer = SingleSteps(), jet.coalescer(channels.count)
    coalescer.step([ChannelAdded(name) for name in channels.names], 0)
    answers, expected = [], []
    done = set()
    for _ in range(rng.randint(4, 18)):
        number = rng.randrange(channels.count)
        name, op = channels.names[number], rng.choices(["wm", "idle", "event", "done"], [10, 6, 4, 1])[0]
        if number in done and op in ("event", "done"):
            continue  # on a finished queue: an event is a known accident, a second end only an assertion
        if op == "wm":
            time_ms = channels.next_ms(number)
            answers.append(guarded(lambda: as_tuples(coalescer.watermark(name, 0, time_ms))))  # noqa: B023
            peer_answers = jet_guarded(lambda: [peer.observeWm(number, time_ms)])  # noqa: B023
        elif op == "event":
            answers.append(as_tuples(coalescer.event(name)))
            peer.observeEvent(number)
            peer_answers = []
        else:
            answers.append(guarded(lambda: as_tuples(coalescer.idle(name) if op == "idle" else coalescer.done(name))))  # noqa: B023
            peer_answers = jet_guarded(
                lambda: [peer.observeWm(number, IDLE) if op == "idle" else peer.queueDone(number)]  # noqa: B023
            )
            done.update([number] if op == "done" else [])
        expected.append(peer_answers if peer_answers == AGREED_ERROR else plain(peer, peer_answers))
        if AGREED_ERROR in (answers[-1], expected[-1]):
            break
    return expected, answers


def plain(peer: object, times_ms: list[int]) -> list[tuple]:
    items = [("idle",) if time_ms == IDLE else ("wm", 0, time_ms) for time_ms in times_ms if time_ms != NONE]
    return [*items, *([("idle",)] if peer.idleMessagePending() else [])]


def keyed_answers(jet: Hazelcast, seed: int) -> tuple[list, list]:
    rng = random.Random(seed)
    channels = Channels(rng, fewest=2)
    coalescer, peer = SingleSteps(), jet.keyed_coalescer(channels.count)
    coalescer.step([ChannelAdded(name) for name in channels.names], 0)
    answers, expected = [], []

    def live(status):
        return [n for n, name in enumerate(channels.names) if coalescer.status(name) is status]

    def event(number):
        peer.observeEvent(number)
        answers.append(as_tuples(coalescer.event(channels.names[number])))
        expected.append([])

    for _ in range(rng.randint(4, 16)):
        active, idle = live(Status.ACTIVE), live(Status.IDLE)
        op = rng.choices(["wm", "idle", "event", "done"], [12, 6, 3, 1])[0]
        if not active + idle:
            break
        number = rng.choice(active if op in ("idle", "done") and active else active + idle)
        name = channels.names[number]
        if number in idle:
            event(number)  # Jet wakes a queue for one key only when a watermark does it
        if op == "wm":
            key, time_ms = rng.choice([0, 0, 1, -3]), channels.next_ms(number)
            answers.append(guarded(lambda: as_tuples(coalescer.watermark(name, key, time_ms))))  # noqa: B023
            peer_answers = jet_guarded(lambda: keyed(peer.observeWm(number, jet.watermark(time_ms, key))))  # noqa: B023
        elif op == "idle":
            answers.append(as_tuples(coalescer.idle(name)))
            peer_answers = keyed(peer.observeWm(number, jet.watermark(IDLE)))
        elif op == "done" and (len(active) > 1 or not idle):
            answers.append(as_tuples(coalescer.done(name)))
            peer_answers = keyed(peer.queueDone(number))
        else:
            continue
        expected.append(peer_answers)
        if AGREED_ERROR in (answers[-1], peer_answers):
            break
    return expected, answers


def keyed(watermarks: object) -> list[tuple]:
    items = [(one.timestamp(), one.key()) for one in watermarks]
    marks = sorted(("wm", key, time_ms) for time_ms, key in items if time_ms != IDLE)
    return [*marks, *(("idle",) for time_ms, _ in items if time_ms == IDLE)]


def mapper_answers(jet: Hazelcast, seed: int) -> tuple[list, list]:
    rng = random.Random(seed)
    count_ = rng.randint(1, 3)
    lag_ms, frame_ms, timeout_ms = rng.randint(0, 4), rng.choice([0, 1, 1, 2, 5, 10]), rng.choice([0, 3, 5, 10])
    offset_ms = rng.randrange(max(frame_ms, 1))
    peer = jet.mapper(lag_ms, frame_ms, offset_ms, timeout_ms, count_)
    mapper = Mapper(MapperConfig(FixedLag(lag_ms), ThrottleByFrame(frame_ms, offset_ms), Idleness(timeout_ms or None)))
    names = [f"c-{number}" for number in range(count_)]
    mapper.add(names, 0)
    answers, expected, now_ms, at_ms = [], [], 0, rng.randint(-9, 9)
    for _ in range(rng.randint(4, 14)):
        now_ms += rng.choice([0, 1, 1, 3, 5])
        if rng.random() < 0.3:
            answers.append(as_tuples(mapper.tick(now_ms)))
            output = peer.flatMapEvent(jet.long(now_ms * 1_000_000), None, 0, jet.long(NONE))
        else:
            number, at_ms = rng.randrange(count_), at_ms + rng.choice([-3, 0, 1, 2, 5])
            answers.append([*as_tuples(mapper.event(names[number], at_ms, now_ms)), ("event",)])
            output = peer.flatMapEvent(jet.long(now_ms * 1_000_000), "event", number, jet.long(at_ms))
        expected.append(mapped(output))
    return expected, answers


def mapped(output: object) -> list[tuple]:
    items = []
    while (item := output.next()) is not None:
        if item == "event":
            items.append(("event",))
        else:
            time_ms = item.timestamp()
            items.append(("idle",) if time_ms == IDLE else ("wm", item.key(), time_ms))
    return items


def frame_answers(jet: Hazelcast, seed: int) -> tuple[list, list]:
    rng = random.Random(seed)
    size_ms = rng.choice([1, 2, 3, 7, 1000])
    offset_ms = rng.randrange(size_ms)
    policy = jet.jvm.com.hazelcast.jet.core.SlidingWindowPolicy.slidingWinPolicy(size_ms * 2, size_ms)
    policy = policy.withOffset(offset_ms)
    times = [rng.choice([rng.randint(-50, 50), rng.randint(NONE, IDLE), NONE, IDLE]) for _ in range(5)]
    expected = [(policy.floorFrameTs(jet.long(one)), policy.higherFrameTs(jet.long(one))) for one in times]
    return expected, [(floor_frame(one, size_ms, offset_ms), higher_frame(one, size_ms, offset_ms)) for one in times]


@pytest.mark.parametrize(
    ("answers", "sequences"),
    [(plain_answers, COALESCED), (keyed_answers, KEYED), (mapper_answers, MAPPED), (frame_answers, FRAMED)],
    ids=["coalescer", "keyed-coalescer", "mapper", "frames"],
)
def test_random_sequences_are_answered_as_by_hazelcast(jet, seed, answers, sequences):
    answered_count = 0
    for number in range(times(sequences)):
        expected, actual = answers(jet, seed * 1_000_003 + number)
        assert actual == expected, f"{answers.__name__}, KEYEDWM_SEED={seed}, sequence {number}"
        answered_count += any(expected)
    assert answered_count > times(sequences) // 3, "the sequences say too little"
