"""The Flink files: one sequence each, for one of Flink's rule sets (`model`).

Rule: what the core answers must be what Flink answers. Where it is not, a small model of Flink's own rule
(`peers`) must give the file's answer exactly, and the difference is then put down to the rule of the design that
decides otherwise. Models of watermark alignment between sources have no counterpart in the design at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile

from conformance.aligned import AlignedBarriers
from conformance.models.alignment import Aborted, Completed
from conformance.models.peers import DriftLimit, IdleTimer, Multiplexer, PausedSplits, Sampler, Valve
from conformance.oracle_coalescing import channels
from conformance.verdict import MATCH, Verdict, compare, fail, first_difference, otherwise
from keyedwm.core.coalescer import (
    Change,
    ChannelAdded,
    ChannelFinished,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    Coalescer,
    WatermarkAdvanced,
)
from keyedwm.core.idleness import Idleness
from keyedwm.core.watermark import MAX_MS, MIN_MS, Guarantee, Watermark

NO_DRIFT_RULE = "the design has no drift limit between sources: rate limits bound a batch"


def is_flink(value: object) -> bool:
    """Whether a JSON value is a Flink file."""
    return isinstance(value, dict) and value.get("schema") == "wm-vectors/1"


def replay(vector: dict) -> Verdict:
    """Replay one file."""
    play = MODELS.get(vector["model"])
    if play is None:
        return fail(f"model {vector['model']!r} is not known; known are {', '.join(sorted(MODELS))}")
    return play(vector)


def number(value: object) -> int:
    """A time of the files."""
    return {"MIN": MIN_MS, "MAX": MAX_MS}[value] if isinstance(value, str) else value  # type: ignore[return-value]


def _checked(vector: dict, answers: list) -> tuple[list, list]:
    """Expected and given answers, None for both at a step that is not checked."""
    expected = [step.get("expect") for step in vector["steps"]]
    return expected, [None if wanted is None else answer for wanted, answer in zip(expected, answers, strict=True)]


def _decide(
    vector: dict, answers: list, peers: list[list], rule: str, convert_answer: Callable = lambda answer: answer
) -> Verdict:
    """MATCH, or decided otherwise when one of the peer's models gives the answers, or a failure."""
    expected, actual = _checked(vector, answers)
    converted = [None if answer is None else convert_answer(answer) for answer in expected]
    if first_difference(converted, actual) is None:
        return MATCH
    verdict = compare(converted, actual)
    if not any(first_difference(converted, _checked(vector, peer)[1]) is None for peer in peers):
        return verdict
    jet = vector.get("alt", {}).get("jet-coalescer")
    if jet is not None and vector["params"]["inputs"] > 1:  # with one queue Jet repeats its idle marker (rule 4)
        jet = list(takewhile(lambda answer: not any("error" in item for item in answer), jet))
        verdict = compare([convert_answer(answer) for answer in jet], actual[: len(jet)])
        if verdict is not MATCH:
            return verdict
    return otherwise(rule, first_difference(converted, actual))


def _valve(vector: dict) -> Verdict:
    count = vector["params"]["inputs"]
    names = channels(count)
    coalescer = Coalescer(guarantee=Guarantee.AT_LEAST_ONCE)
    coalescer.step([ChannelAdded(name) for name in names], 0)
    valves = [Valve(count, legacy=legacy) for legacy in (False, True)]
    own_answers: list = []
    peers: list[list] = [[], []]
    ended: set[str] = set()
    for step in vector["steps"]:
        name = names[step["input"]]
        time_ms = number(step["ts"]) if "ts" in step else None
        change: Change
        if time_ms is None:
            change = ChannelWentIdle(name) if step["op"] == "idle" else ChannelWoken(name)
        else:
            change = ChannelFinished(name) if time_ms == MAX_MS else WatermarkAdvanced(name, 0, time_ms)
        outputs = [] if name in ended else coalescer.step([change], 0)
        ended.update([name] if isinstance(change, ChannelFinished) else [])
        own_answers.append([("wm", item.time_ms) if isinstance(item, Watermark) else ("idle",) for item in outputs])
        for valve, answers in zip(valves, peers, strict=True):
            answers.append(valve.step(step["op"], step["input"], time_ms))
    rule = (
        "rules 2 to 4: any watermark wakes, a woken laggard holds the output, all idle flushes, the end is no watermark"
    )
    return _decide(vector, own_answers, peers, rule, _valve_answer)


def _valve_answer(answer: list) -> list:
    """Without `active`, which has no row of the coalesced output."""
    return [
        ("wm", number(item["wm"])) if "wm" in item else ("idle",) for item in answer if item.get("status") != "active"
    ]


def _multiplexer(vector: dict) -> Verdict:
    coalescer = Coalescer(guarantee=Guarantee.AT_LEAST_ONCE)
    peer = Multiplexer()
    pending: list[Change] = []
    answers: list = []
    peers: list = []
    idle = False
    for step in vector["steps"]:
        op = step["op"]
        if op == "wm":
            pending.append(WatermarkAdvanced(step["split"], 0, number(step["ts"])))
        elif op != "periodic":
            make: Mapping[str, Callable[[str], Change]] = {
                "register": ChannelAdded,
                "unregister": ChannelRemoved,
                "idle": ChannelWentIdle,
                "active": ChannelWoken,
            }
            pending.append(make[op](step["split"]))
        if step.get("mode") != "deferred":
            coalescer.step(pending, 0)
            pending = []
            idle = coalescer.snapshot().common.idle_spell
        answers.append({"wm": coalescer.emitted_ms(), "idle": idle})
        peers.append(peer.step(op, step))
    return _decide(
        vector, answers, [peers], "rules 2 and 5: a removal counts at once, and without channels all is idle"
    )


def _idle_timer(vector: dict) -> Verdict:
    """Ours: caught up unless paused, quiet since the last event or the start."""
    timeout_ms = vector["params"]["timeout"]
    idleness = Idleness(timeout_ms)
    peer = IdleTimer(timeout_ms)
    quiet_since_ms, pauses, before = 0, 0, False
    answers: list = []
    peers: list = []
    for step in vector["steps"]:
        op, now_ms = step["op"], step["t"]
        pauses += {"pause": 1, "resume": -1}.get(op, 0)
        if op == "event":
            quiet_since_ms, before = now_ms, False
        idle = idleness.is_idle(quiet_since_ms=quiet_since_ms, now_ms=now_ms, caught_up=not pauses)
        answers.append({"idle": idle, "mark_idle": idle and not before})
        before = idle if op == "probe" else before
        peers.append(peer.step(op, now_ms))
    return _decide(vector, answers, [peers], "rule 10: idle is exact, by log end and timeout, not by probes")


def _barriers(vector: dict) -> Verdict:
    tracker = vector["model"] == "flink-barrier-tracker"
    names = channels(vector["params"]["inputs"])
    alignment = AlignedBarriers(names, guarantee=Guarantee.AT_LEAST_ONCE if tracker else Guarantee.EXACTLY_ONCE)
    answers: list = []
    for step in vector["steps"]:
        name = names[step["input"]]
        if step["op"] == "barrier":
            changes = alignment.barrier(name, step["id"])
        elif step["op"] == "cancel":
            changes = alignment.cancel(step["id"])
        else:
            changes = alignment.done(name)
        answers.append(
            {
                "triggered": [change.snapshot_id for change in changes if isinstance(change, Completed)],
                "aborted": [change.snapshot_id for change in changes if isinstance(change, Aborted)],
                "blocked": [index for index, each in enumerate(names) if each in alignment.blocked_channels()],
            }
        )
    expected, actual = _checked(vector, answers)
    verdict = compare(expected, actual)
    if verdict is not MATCH and vector["params"].get("checkpoint_after_finish") is False:
        return otherwise("rule 12: a finished channel is not waited for", verdict.step)
    return verdict


def _drift(vector: dict) -> Verdict:
    limit = DriftLimit(vector["params"]["max_drift"])
    answers: list = []
    for step in vector["steps"]:
        if step["op"] == "report":
            limit.report(step["group"], (step["source"], step["subtask"]), number(step["wm"]))
            answers.append(None)
        else:
            answers.append({"max_allowed": limit.announce(step["group"])})
    return _peer_only(vector, answers)


def _pauses(vector: dict) -> Verdict:
    splits = PausedSplits()
    answers = [
        splits.step(step["op"], step.get("split"), number(step["wm"]) if "wm" in step else MIN_MS)
        for step in vector["steps"]
    ]
    return _peer_only(vector, answers)


def _sampler(vector: dict) -> Verdict:
    sampler = Sampler(vector["params"]["capacity"])
    answers = [
        {"used": sampler.latest(number(step["wm"])) if step["op"] == "latest" else sampler.sample()}
        for step in vector["steps"]
    ]
    return _peer_only(vector, answers)


def _peer_only(vector: dict, answers: list) -> Verdict:
    expected, actual = _checked(vector, answers)
    converted = [answer and {name: _time(value) for name, value in answer.items()} for answer in expected]
    verdict = compare(converted, actual)
    return otherwise(NO_DRIFT_RULE) if verdict is MATCH else verdict


def _time(value: object) -> object:
    return number(value) if value in ("MIN", "MAX") else value


MODELS: Mapping[str, Callable[[dict], Verdict]] = {
    "flink-valve": _valve,
    "flink-multiplexer": _multiplexer,
    "flink-idle-timer": _idle_timer,
    "flink-barrier-aligned": _barriers,
    "flink-barrier-tracker": _barriers,
    "flink-align": _drift,
    "flink-split-pause": _pauses,
    "flink-align-sampler": _sampler,
}
