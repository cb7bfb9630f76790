"""Jet's coalescers, edges and operator inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from conformance.aligned import AlignedBarriers
from conformance.axis_runs import is_late
from conformance.models.inbound import Barrier, End, Event, Inbound, Item, Terminal
from conformance.models.single_steps import SingleSteps
from conformance.models.snapshots import SnapshotLedger
from conformance.oracle_coalescing import channels
from conformance.verdict import MATCH, Verdict, compare, fail, otherwise
from keyedwm.core.coalescer import ChannelAdded
from keyedwm.core.errors import KeyedwmError, OutOfTurnError, RegressionError
from keyedwm.core.watermark import Guarantee, IdleMarker, Watermark

ERROR = ("error",)


def flat(item: object) -> tuple:
    """An item of a vector as a plain tuple; an absent key is 0."""
    if not isinstance(item, dict):
        return ("event", item)
    if "wm" in item:
        return ("wm", item.get("key", 0), item["wm"])
    return ("idle",) if "idle" in item else ("barrier", item["barrier"])


def as_tuple(item: Item | Terminal) -> tuple:
    """One of our items as such a tuple."""
    if isinstance(item, Watermark):
        return ("wm", item.key, item.time_ms)
    if isinstance(item, Event):
        return ("event", item.payload)
    if isinstance(item, Terminal):
        return as_tuple(item.barrier)
    return ("barrier", item.snapshot_id) if isinstance(item, Barrier) else ("idle",)


def guarantee_of(word: str) -> Guarantee:
    """exactly_once or at_least_once."""
    return Guarantee(word.replace("_", "-"))


def _coalescer(vector: dict) -> Verdict:
    config = vector["config"]
    retain_ms = config.get("max_retain_ms", -1)
    coalescer = SingleSteps(retention_ms=None if retain_ms < 0 else retain_ms)
    count = config["queues"]
    coalescer.step([ChannelAdded(name) for name in channels(count)], 0)
    clock_ms = 0
    seen_keys: set[int] = set()
    for index, step in enumerate(vector["steps"]):
        clock_ms = step.get("now", clock_ms)
        try:
            actual = [as_tuple(item) for item in _coalescer_step(coalescer, step, clock_ms)]
        except (RegressionError, OutOfTurnError):
            actual = [ERROR]
        seen_keys.update({step.get("key", 0)} if step["op"] == "wm" else ())
        expected = [ERROR] if "error" in step else [flat(item) for item in step["emit"]]
        if actual != expected and sorted(actual) != sorted(expected):
            rule = _rule_for(count, step, expected, actual)
            return otherwise(rule, index) if rule else fail("the answers differ", index, expected, actual)
        verdict = _coalescer_state(coalescer, step, seen_keys)
        if verdict is not MATCH:
            return fail(verdict.reason, index, verdict.expected, verdict.actual)
        if actual == [ERROR]:
            break
    return MATCH


def _coalescer_step(coalescer: SingleSteps, step: dict, clock_ms: int) -> list:
    if step["op"] in ("poll", "check"):
        return coalescer.check(clock_ms)
    channel = channels(step["queue"] + 1)[-1]
    if step["op"] == "wm":
        return coalescer.watermark(channel, step.get("key", 0), step["value"], clock_ms)
    act = {"idle": coalescer.idle, "event": coalescer.event, "done": coalescer.done}
    return act[step["op"]](channel, clock_ms)


def _coalescer_state(coalescer: SingleSteps, step: dict, seen_keys: set[int]) -> Verdict:
    common = coalescer.snapshot().common
    if "top" in step and common.top.get(0) != step["top"]:
        return fail("the highest watermark differs", expected=step["top"], actual=common.top.get(0))
    if "coalesced" in step and coalescer.emitted_ms() != step["coalesced"]:
        return fail("the coalesced watermark differs", expected=step["coalesced"], actual=coalescer.emitted_ms())
    if "keys" in step and sorted(step["keys"]) != sorted(seen_keys):
        return fail("the known keys differ", expected=step["keys"], actual=sorted(seen_keys))
    return MATCH


def _rule_for(count: int, step: dict, expected: list, actual: list) -> str:
    """The rule that decides otherwise, empty if none does."""
    if count == 0 and actual == [("idle",)] and not expected:
        return "rule 5: without channels the output is idle at once"
    if count == 1 and step["op"] == "idle" and expected == [("idle",)] and not actual:
        return "rule 4: one idle marker per idle spell"
    return ""


def _barriers(vector: dict) -> Verdict:
    """The split into passes is Jet's own: what counts is everything that came out, in order."""
    config = vector["config"]
    names = channels(config["queues"])
    inbound = Inbound(names, guarantee=guarantee_of(config["mode"]), alignment=AlignedBarriers)
    expected: list[tuple] = []
    actual: list[tuple] = []
    last: list[tuple] = []
    for index, step in enumerate(vector["steps"]):
        if step["op"] == "add":
            for item in step["items"]:
                inbound.append_item(names[step["queue"]], _item(item))
            continue
        try:
            last = [as_tuple(item) for item in inbound.read_once()[1] if item is not End.END]
        except OutOfTurnError as error:
            return MATCH if "error" in step else fail(str(error), index, step.get("emit"))
        if "error" in step:
            return fail("nothing was refused", index, step["error"])
        actual += last
        expected += [flat(item) for item in step["emit"]]
    # Jet keeps control items back while a pass gives data, so the last pass may still owe some of ours.
    owed = actual[len(expected) :]
    if actual[: len(expected)] == expected and all(item in last and item[0] != "event" for item in owed):
        return MATCH
    return compare(expected, actual)


def _item(item: object) -> Item | Terminal:
    if not isinstance(item, dict):
        return Event(item)
    if "wm" in item:
        return Watermark(item.get("key", 0), item["wm"])
    if "barrier" in item:
        barrier = Barrier(item["barrier"])
        return Terminal(barrier) if item.get("terminal") else barrier
    return IdleMarker() if "idle" in item else {"done": End.END}[next(iter(item))]


class Operator:
    """Several inputs, one queue each: their watermarks on their own and coalesced, their barriers aligned."""

    def __init__(self, edges: int, guarantee: Guarantee) -> None:
        self._names = channels(edges)
        self._waiting: dict[str, deque] = {name: deque() for name in self._names}
        self._coalescer = SingleSteps()
        self._coalescer.step([ChannelAdded(name) for name in self._names], 0)
        self._alignment = AlignedBarriers(self._names, guarantee=guarantee, subsume=False)
        self._ledger = SnapshotLedger()
        self._processed: list = []
        self.saved: list[list] = []

    def push(self, edge: int, items: list) -> None:
        """Append to an edge."""
        self._waiting[self._names[edge]] += [_item(item) for item in items]

    def run(self) -> list[tuple]:
        """Everything that the operator and its output see until nothing moves."""
        calls: list[tuple] = []
        is_moving = True
        while is_moving:
            is_moving = False
            for edge, name in enumerate(self._names):
                while self._waiting[name] and name not in self._alignment.blocked_channels():
                    is_moving = True
                    item = self._waiting[name].popleft()
                    calls += self._process_item(edge, name, item)
                    if not isinstance(item, Event):
                        break
        return calls

    def _process_item(self, edge: int, name: str, item: Item | Terminal) -> list[tuple]:
        if isinstance(item, Event):
            self._coalescer.event(name)
            self._processed.append(item.payload)
            return [as_tuple(item)]
        if isinstance(item, Watermark):
            first = ("edge_wm", item.time_ms, edge, item.key)
            return [first, *self._global(self._coalescer.watermark(name, item.key, item.time_ms))]
        if isinstance(item, IdleMarker):
            return self._global(self._coalescer.idle(name))
        if isinstance(item, End):
            return self._global(self._coalescer.done(name)) + self._save(self._alignment.done(name))
        barrier = item.barrier if isinstance(item, Terminal) else item
        if barrier.snapshot_id != self._ledger.next_id:
            raise OutOfTurnError(f"barrier {barrier.snapshot_id} came, the next snapshot is {self._ledger.next_id}")
        terminal = isinstance(item, Terminal)
        return self._save(self._alignment.barrier(name, barrier.snapshot_id, terminal=terminal))

    def _global(self, output: list) -> list[tuple]:
        return [("global_wm", item.time_ms, item.key) if isinstance(item, Watermark) else ("idle",) for item in output]

    def _save(self, changes: list) -> list[tuple]:
        for change in changes:
            self._ledger = self._ledger.begin(change.snapshot_id).seal(change.snapshot_id)
            self.saved.append(list(self._processed))
        return [("barrier", change.snapshot_id) for change in changes]


def _operator(vector: dict) -> Verdict:
    operator = Operator(vector["config"]["edges"], guarantee_of(vector["config"]["mode"]))
    for index, step in enumerate(vector["steps"]):
        if step["op"] == "push":
            operator.push(step["edge"], step["items"])
            continue
        try:
            actual = operator.run()
        except KeyedwmError as error:
            return MATCH if "error" in step else fail(str(error), index, step.get("calls"))
        expected = [_call(item) for item in step.get("calls", [])]
        if "error" in step or actual != expected:
            return fail("the calls differ", index, step.get("error", expected), actual)
        if "saved" in step and operator.saved != step["saved"]:
            return fail("what was saved differs", index, step["saved"], operator.saved)
        operator.saved.clear()
    return MATCH


def _call(item: object) -> tuple:
    if isinstance(item, dict) and "edge_wm" in item:
        return ("edge_wm", item["edge_wm"], item["edge"], item["key"])
    if isinstance(item, dict) and "global_wm" in item:
        return ("global_wm", item["global_wm"], item["key"])
    return flat(item)


def _late_drop(vector: dict) -> Verdict:
    watermark_ms = None
    expected, actual = [], []
    for step in vector["steps"]:
        expected.append(step["emit"])
        if step["op"] == "row":
            actual.append([] if is_late(step["ts"], watermark_ms) else [{"row": step["ts"]}])
            continue
        key = {"key": step["key"]} if "key" in step else {}
        if step.get("key", 0) == vector["config"]["wm_key"]:
            watermark_ms = step["value"]
        actual.append([{"wm": step["value"], **key}])
    return compare(expected, actual)


COALESCING: Mapping[str, Callable[[dict], Verdict]] = {
    "coalescer": _coalescer,
    "coalescer with max watermark retention": _coalescer,
    "keyed coalescer": _coalescer,
    "barrier alignment on one input edge": _barriers,
    "an operator with several input edges": _operator,
    "dropping late rows by watermark": _late_drop,
}
