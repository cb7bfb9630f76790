"""Jet's stream-to-stream join, the bounds in its condition, and watermarks around asynchronous calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from conformance.jet_coalescing import flat, guarantee_of
from conformance.jet_join_operator import through_operator
from conformance.models.join import Join, JoinConfig, Row, Side
from conformance.models.time_bounds import bounds_of, tightest
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.core.in_flight import Call, ControlEntry, InFlight
from keyedwm.core.watermark import Guarantee, Watermark

SIDES = {"l": Side.LEFT, "r": Side.RIGHT}
OUTER = {"inner": None, "left": Side.LEFT, "right": Side.RIGHT}


def _keyed(mapping: Mapping) -> dict:
    return {int(key): value for key, value in mapping.items()}


def _condition(clauses: list[dict]) -> Callable[[Row, Row], bool]:
    def holds(left: Row, right: Row) -> bool:
        row = {"l": left, "r": right}
        return all(_clause(clause, row) for clause in clauses)

    return holds


def _clause(clause: dict, row: Mapping[str, Row]) -> bool:
    if "ge" in clause:
        (side, column), (other, other_column), constant = clause["ge"]
        return row[side][column] >= row[other][other_column] - constant
    if "eq" in clause:
        (side, column), (other, other_column) = clause["eq"]
        return row[side][column] == row[other][other_column]
    (side, column), value = clause["gt_const"]
    return row[side][column] > value


def _config(config: Mapping) -> JoinConfig:
    if config["type"] not in OUTER:
        raise OptionError(f"a join of type {config['type']!r} is not known, it must be inner, left or right")
    return JoinConfig(
        left_keys=_keyed(config["left_keys"]),
        right_keys=_keyed(config["right_keys"]),
        left_columns=config["left_cols"],
        right_columns=config["right_cols"],
        postpone={key: _keyed(of_key) for key, of_key in _keyed(config["postpone"]).items()},
        condition=_condition(config["condition"]),
        outer=OUTER[config["type"]],
        guarantee=guarantee_of(config["guarantee"]) if "guarantee" in config else Guarantee.AT_LEAST_ONCE,
    )


def _join(vector: dict) -> Verdict:
    """The product answers; the model, which tests compare it with, must answer the same."""
    verdict = _join_model(vector)
    if verdict is not MATCH:
        return verdict
    return through_operator(vector, _condition(vector["config"]["condition"]))


def _join_model(vector: dict) -> Verdict:
    try:
        config = _config(vector["config"])
    except OptionError as error:
        return MATCH if "error" in vector else fail(str(error))
    if "error" in vector:
        return fail("nothing was refused", None, vector["error"])
    verdict = _join_steps(vector, config, back=False)
    if verdict is MATCH or config.guarantee is Guarantee.EXACTLY_ONCE:
        return verdict
    if _join_steps(vector, config, back=True) is MATCH:
        return otherwise("rule 1: at-least-once swallows a watermark that does not increase", verdict.step)
    return verdict


def _join_steps(vector: dict, config: JoinConfig, *, back: bool) -> Verdict:
    """`back`: as Jet, a lower watermark is taken and the last received one goes back."""
    join = Join(config)
    for index, step in enumerate(vector["steps"]):
        outputs: list = []
        if back and step["op"] == "wm":
            join = _without_received(config, join, step["key"])
        try:
            if step["op"] == "row":
                outputs = list(join.row(SIDES[step["side"]], tuple(step["row"])))
            elif step["op"] == "wm":
                outputs = join.watermark(step["key"], step["value"])
            else:
                join = Join(config, join.snapshot())
        except KeyedwmError as error:
            return MATCH if "error" in step else fail(str(error), index, step.get("emit"))
        if "error" in step:
            return fail("nothing was refused", index, step["error"], outputs)
        rows = [item for item in outputs if not isinstance(item, Watermark)]
        expected = [_answer(item) for item in step.get("emit", [])]
        actual = [_answer(item) for item in [*rows, *(item for item in outputs if isinstance(item, Watermark))]]
        if sorted(map(repr, expected)) != sorted(map(repr, actual)):
            return fail("the answers differ", index, expected, actual)
        verdict = _join_state(join, step, index)
        if verdict is not MATCH:
            return verdict
    return MATCH


def _without_received(config: JoinConfig, join: Join, key: int) -> Join:
    state = join.snapshot()
    received = {other: time_ms for other, time_ms in state.limits.received.items() if other != key}
    return Join(config, replace(state, limits=replace(state.limits, received=received)))


def _answer(item: object) -> tuple:
    if isinstance(item, Watermark):
        return ("wm", item.key, item.time_ms)
    return flat(item) if isinstance(item, dict) else ("row", list(item))  # type: ignore[call-overload]


def _join_state(join: Join, step: dict, index: int) -> Verdict:
    state = join.snapshot()
    for name, buffer in (("left", state.left), ("right", state.right)):
        rows = sorted(list(row) for row, _ in buffer)
        if name in step and sorted(step[name]) != rows:
            return fail(f"the rows held {name} differ", index, step[name], rows)
    limits = {key: join.limit_ms(int(key)) for key in step.get("limit", {})}
    return MATCH if limits == step.get("limit", {}) else fail("the limits differ", index, step["limit"], limits)


def _bounds(vector: dict) -> Verdict:
    watermarked = vector["config"]["watermarked"]
    together = []
    for index, step in enumerate(vector["steps"]):
        coefficients, constant = _linear(step["condition"])
        bounds = bounds_of(step["condition"]["op"], coefficients, constant, watermarked)
        together.append(bounds)
        expected = {key: _keyed(of_key) for key, of_key in _keyed(step["expect"]).items()}
        if bounds != expected:
            return fail("the bounds differ", index, expected, bounds)
    if "expect_all_together" in vector:
        expected = {key: _keyed(of_key) for key, of_key in _keyed(vector["expect_all_together"]).items()}
        if tightest(together) != expected:
            return fail("the bounds together differ", None, expected, tightest(together))
    return MATCH


def _linear(condition: dict) -> tuple[dict[int, int], int]:
    """The condition as `coefficients and constant OPERATOR 0`."""
    coefficients: dict[int, int] = {}
    constant = 0
    for sign, terms in ((1, condition["left"]), (-1, condition["right"])):
        for term in terms:
            if isinstance(term, int):
                constant += sign * term
                continue
            factor = -sign if term.startswith("-") else sign
            column = int(term.lstrip("-c"))
            coefficients[column] = coefficients.get(column, 0) + factor
    return coefficients, constant


def _async(vector: dict) -> Verdict:
    """An item is a call, and calls finish when the vector says so."""
    config = vector["config"]
    flight: InFlight[Watermark] = InFlight(ordered=config["ordered"], capacity=config["max_calls"])
    for index, step in enumerate(vector["steps"]):
        outputs: list = []
        refused = step["op"] == "item" and flight.is_full
        if step["op"] == "item" and not refused:
            flight.start(Call(step["id"]))
        elif step["op"] == "wm":
            watermark = Watermark(key=step.get("key", 0), time_ms=step["value"])
            outputs = flight.control(ControlEntry(watermark, watermark.key))
        elif step["op"] == "finish":
            outputs = [one for name in step["ids"] for one in flight.finish(Call(name))]
        answers = [("result", one.number) if isinstance(one, Call) else _answer(one.row) for one in outputs]
        expected = [("result", item["result"]) if "result" in item else flat(item) for item in step.get("emit", [])]
        if answers != expected or refused != step.get("refused", False):
            return fail("the answers differ", index, step.get("emit", step.get("refused")), answers or refused)
    return MATCH


JOINS: Mapping[str, Callable[[dict], Verdict]] = {
    "stream-to-stream join": _join,
    "extraction of time bounds from a join condition": _bounds,
    "watermarks across an asynchronous map": _async,
}
