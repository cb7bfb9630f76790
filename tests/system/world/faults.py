"""What goes wrong, by weights from the seed; every fault that strikes is a line of the trace.

Rule: each fault draws from a stream of its own, once at every opportunity. So the third lost answer of a seed is named
by (fault, opportunity), and taking a strike out changes no other fault's draws: a list of strikes can be shrunk.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from keyedwm.kafka.client.connection import TransientError
from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.coordinators import NODES
from keyedwm.testing.simulated_kafka.log import START_MS

# The highest rate of each fault, per opportunity; a seed takes a part of the faults at a part of the rates.
HIGHEST = {
    # on the way to a broker
    "lost request": 0.04,
    "lost answer": 0.04,
    "throttled": 0.08,
    "silent broker": 0.01,
    "empty fetch": 0.25,
    "stale metadata": 0.15,
    "coordinator moves": 0.1,
    "leader moves": 0.1,
    "lost state": 0.2,
    # between two steps
    "kill driver": 0.012,
    "kill in commit": 0.06,
    "kill task": 0.03,
    "pause": 0.05,
    "expiry": 0.02,
    # of a batch or a turn
    "twin": 0.3,
    "retention": 0.3,
    "zombie": 0.2,
    "second driver": 0.06,
    "copied checkpoint": 0.15,
    "recreated topic": 0.05,
    # of a target's disk
    "ledger lost": 0.1,
    "ledger older": 0.1,
    "torn file": 0.1,
    "lost append": 0.1,
    "append in doubt": 0.15,
    "append doubled": 0.15,
    "append late": 0.1,
    "foreign commit": 0.2,
    "store away": 0.05,
    "table lost": 0.05,
    "table older": 0.05,
}
# Those that were added later draw their rates apart, so that a seed keeps the faults that it had.
LATER = {"copy in between": 0.5}
# Those of brokers that answer late, out of order or with less than they have, which every second seed has.
OTHER_ANSWERS = {
    "fetch of nothing": 0.4,
    "partitions left out": 0.2,
    "late answer": 0.03,
    "late request": 0.02,
    "out of order": 0.3,
}
# After these most queries have to stop, so only some seeds have them: (faults, share of the seeds).
_RARE = (
    (("ledger lost", "ledger older"), 0.2),
    (("table lost", "table older"), 0.2),
    (("recreated topic",), 0.15),
    (("copied checkpoint",), 0.3),
)
_T = TypeVar("_T")
_ENDLESS_MS = 24 * 3_600_000
_SILENCES_MS = (3_000, 40_000, 200_000)
_PAUSES_MS = (1_000, 20_000, 70_000)
_AWAY_MS = (1_000, 30_000, 90_000)
_THROTTLES_MS = (100, 5_000, 30_000)
_LATE_MS = (50, 3_000, 25_000, 90_000)


class Strike(NamedTuple):
    """One strike of a seed: the fault, and which of its opportunities it was."""

    fault: str
    opportunity: int

    def __str__(self) -> str:
        return f"{self.fault}:{self.opportunity}"

    @staticmethod
    def parse(text: str) -> Strike:
        fault, _, opportunity = text.rpartition(":")
        return Strike(fault, int(opportunity))


class KilledError(BaseException):
    """The process ends here; a BaseException, so that no handler of the product stops it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class EndlessError(BaseException):
    """The product has waited for a day of virtual time."""


class Faults:
    """Strikes by chance; `active` False: the world is calm. only: nothing but these strikes."""

    def __init__(
        self, seed: int, brokers: Brokers, *, only: frozenset[Strike] | None = None, part: float = 1.0,
        more: Mapping[str, float] | None = None, lines: int = 60,
    ) -> None:  # fmt: skip
        """part: the share of the rates that stays. more: highest rates of further faults. lines: kept of the trace."""
        chance = random.Random(f"{seed} rates")
        wanted = {name for name in HIGHEST if chance.random() < 0.6}
        self.rates = {name: HIGHEST[name] * chance.random() if name in wanted else 0.0 for name in HIGHEST}
        for names, share in _RARE:
            if chance.random() >= share:
                self.rates |= dict.fromkeys(names, 0.0)
        later = LATER | (OTHER_ANSWERS if seed % 2 == 0 else {})
        self.rates |= {name: rate * random.Random(f"{seed} rate of {name}").random() for name, rate in later.items()}
        self.rates = {name: part * rate for name, rate in self.rates.items()}
        self.rates |= {
            name: rate * random.Random(f"{seed} rate of {name}").random() for name, rate in (more or {}).items()
        }
        self.active = True
        self.since_ms: float = START_MS  # from when on a wait of a day is endless
        self.inside: str | None = None  # "task" or "commit"
        self.strikes_so_far: list[Strike] = []
        self.struck: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=lines)
        self._brokers, self._only = brokers, only
        self._draws = {name: random.Random(f"{seed} {name}") for name, rate in self.rates.items() if rate}
        self._opportunities: Counter[str] = Counter()
        self._no_states_until_ms = 0.0
        self._under_way: list[tuple[float, str, Callable[[], Any]]] = []  # requests that nobody waits for any more
        self.overtaken: set[str] = set()  # those of them that have reached their brokers
        self._ways = random.Random(f"{seed} ways")
        brokers.empty_fetch = lambda: self.strikes("empty fetch")
        brokers.stale = lambda: self.strikes("stale metadata")
        brokers.coordinator_moves = lambda: self.strikes("coordinator moves")

    def note(self, what: str) -> None:
        self.trace.append(f"{(self._brokers.clock.now_ms - START_MS) / 1_000:9.3f} s  {what}")

    def strikes(self, name: str, where: str = "") -> bool:
        draws = self._draws.get(name)
        if draws is None:
            return False
        self._opportunities[name] += 1
        if draws.random() >= self.rates[name] or not self.active:
            return False
        strike = Strike(name, self._opportunities[name])
        if self._only is not None and strike not in self._only:
            return False
        self.strikes_so_far.append(strike)
        self.struck[name] += 1
        self.note(f"{name} {where}".rstrip())
        return True

    def of(self, name: str, choices: Sequence[_T]) -> _T:
        """How a strike turns out, by the stream of its fault."""
        return self._draws[name].choice(choices)

    def travel(self, node: int, request: Any, answer: Callable[[], Any], limit_ms: int) -> Any:
        """A request's way to a broker and back; `limit_ms`: how long the client waits for the answer."""
        name = type(request).__name__.removesuffix("Request")
        clock, brokers = self._brokers.clock, self._brokers
        clock.pass_ms(self._ways.choice((0.5, 1, 2, 5)))
        clock.pass_ms(max(brokers.muted_until_ms.get(node, 0) - clock.now_ms, 0))
        if clock.now_ms - self.since_ms > _ENDLESS_MS:
            raise EndlessError(f"{name} is asked for ever")
        self._arrive()
        self.step(f"before {name}")
        if self.strikes("silent broker", f"{node} at {name}"):
            self._silence(node)
            if self.of("silent broker", (0, 1)):
                answer()  # it is done, and nobody hears of it
        if brokers.is_silent(node):
            clock.pass_ms(limit_ms)
            raise TransientError(f"no answer came within {limit_ms} ms")
        if self.strikes("lost request", name):
            clock.pass_ms(100)
            raise TransientError("the request was lost")
        if self._no_states(name, request):
            clock.pass_ms(1_000)
            raise TransientError("the group's coordinator is away")
        if self.strikes("leader moves"):
            where = self._draws["leader moves"].choice(sorted(brokers.logs))
            brokers.move_leader(where, self.of("leader moves", NODES))
        if self.strikes("late request", name):
            self._under_way.append((self.now_ms + self.of("late request", _LATE_MS), name, answer))
            clock.pass_ms(limit_ms)
            raise TransientError(f"no answer came within {limit_ms} ms")
        response = answer()
        if hasattr(response, "session_id"):
            self._hold_back(response)
        if self.strikes("throttled", name):
            self._throttle(node, response)
        if self.strikes("late answer", name):
            self._delay(limit_ms)
        self.step(f"after {name}")
        if self.strikes("lost answer", name):
            clock.pass_ms(100)
            raise TransientError("the answer was lost")
        return response

    def holds(self, request: Any) -> bool:
        """Whether a request's answer comes after those of requests to other brokers that are sent later."""
        return self.strikes("out of order", type(request).__name__.removesuffix("Request"))

    def _arrive(self) -> None:
        """Requests of connections that the client has given up reach their brokers."""
        due = [one for one in self._under_way if one[0] <= self.now_ms]
        self._under_way = [one for one in self._under_way if one not in due]
        for _, name, answer in due:
            self.overtaken.add(name)
            answer()

    def _delay(self, limit_ms: int) -> None:
        late_ms = self.of("late answer", _LATE_MS)
        self._brokers.clock.pass_ms(min(late_ms, limit_ms))
        if late_ms > limit_ms:
            raise TransientError(f"no answer came within {limit_ms} ms")

    def _hold_back(self, response: Any) -> None:
        """A fetch brings nothing although there are records, or leaves partitions out."""
        if self.strikes("fetch of nothing"):
            for topic in response.responses:
                for part in topic.partitions:
                    part.records = b""
        if self.strikes("partitions left out"):
            for topic in response.responses:
                topic.partitions = [part for part in topic.partitions if self.of("partitions left out", (0, 1))]

    def _no_states(self, name: str, request: Any) -> bool:
        """The coordinator of the source's groups is away: states cannot be committed, nor asked for.

        The ledger's marker is spared: without it a lost ledger is not noticed, as the product warns.
        """
        if name not in {"OffsetCommit", "OffsetFetch"} or str(getattr(request, "group_id", "")).endswith("-ledger"):
            return False
        if name == "OffsetCommit" and self.strikes("lost state"):
            self._no_states_until_ms = self.now_ms + self.of("lost state", _AWAY_MS)
        return self.now_ms < self._no_states_until_ms

    def _silence(self, node: int) -> None:
        """A broker answers nothing for a while; sometimes the others take its place."""
        self._brokers.silent_until_ms[node] = self._brokers.clock.now_ms + self.of("silent broker", _SILENCES_MS)
        if self.of("silent broker", (0, 1)):
            self._brokers.replace(node)

    def _throttle(self, node: int, response: Any) -> None:
        """A quota is exceeded: the answer says so, a fetch's has no partition, and the broker hears nothing more."""
        response.throttle_time_ms = self.of("throttled", _THROTTLES_MS)
        if hasattr(response, "session_id"):
            response.responses = []
        self._brokers.muted_until_ms[node] = self._brokers.clock.now_ms + response.throttle_time_ms

    @property
    def now_ms(self) -> float:
        return self._brokers.clock.now_ms

    def kill(self) -> None:
        raise KilledError("driver")

    def step(self, where: str) -> None:
        """A step between two effects: the process may die here, and time may pass."""
        if self.inside == "task" and self.strikes("kill task", where):
            raise KilledError("task")
        if self.strikes("kill driver", where):
            raise KilledError("driver")
        if self.inside == "commit" and self.strikes("kill in commit", where):
            raise KilledError("driver")
        if self.strikes("pause", where):
            self._brokers.clock.pass_ms(self.of("pause", _PAUSES_MS))
        if self._brokers.has_open and self.strikes("expiry", where):
            self._brokers.expire_oldest()
