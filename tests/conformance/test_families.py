"""The table of docs/reference/conformance.md: each function exists, and a verdict changes when it answers wrongly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.families import FAMILIES, Family
from conformance.reading import SUFFIXES, Vector, read_all
from conformance.verdict import Outcome
from keyedwm.operators.results import Output

VECTORS = Path(__file__).parents[1] / "vectors"
MOST_FILES = 16


def planned_otherwise(offset: Any) -> Any:
    return replace(offset, coalesced=replace(offset.coalesced, idle_spell=not offset.coalesced.idle_spell))


def one_row_less(table: pa.Table) -> pa.Table:
    return table.slice(1)


def one_output_less(outputs: Iterator[Output]) -> Iterator[Output]:
    return islice(outputs, 1, None)


def without_end(operator: Any) -> Any:
    operator.on_watermark = operator.on_end = lambda *_: iter(())
    return operator


def nothing_written(changes: Any) -> Any:
    return replace(changes, written={})


def one_more(watermark_ms: int | None) -> int | None:
    return None if watermark_ms is None else watermark_ms + 1


# What each function of the table answers when it is broken.
WRONG: dict[str, Callable[[Any], Any]] = {
    "keyedwm.core.coalescer:Coalescer.step": lambda output: output[1:],
    "keyedwm.core.barriers:align": lambda found: (found[0], frozenset()),
    "keyedwm.core.barriers:collect_cuts": lambda cuts: cuts[1:],
    "keyedwm.core.idleness:Idleness.is_idle": lambda idle: not idle,
    "keyedwm.core.watermark:History.known_at": one_more,
    "keyedwm.core.throttle:floor_frame": lambda time_ms: time_ms - 1,
    "keyedwm.arrow.axis:AxisRun.rows": lambda found: (found[0], found[1] + 1),
    "keyedwm.arrow.axis:AxisRun.end": one_more,
    "keyedwm.arrow.axis:late": lambda flags: ~flags,
    "pyspark_wm_source.driver.plan:plan": planned_otherwise,
    "keyedwm.operators.frames.partials:combine_rows": one_row_less,
    "keyedwm.operators.frames.sliding:SlidingOperator.on_rows": one_output_less,
    "keyedwm.operators.frames.sliding:SlidingOperator.on_watermark": one_output_less,
    "keyedwm.operators.frames.sliding:SlidingOperator.on_end": one_output_less,
    "keyedwm.operators.keyed.key_watermarks:KeyWatermarks.advance": lambda before: before + 1,
    "keyedwm.operators.frames.sessions:SessionOperator.on_rows": one_output_less,
    "keyedwm.operators.frames.sessions:SessionOperator.on_watermark": one_output_less,
    "keyedwm.operators.frames.session_parts:joined_runs": lambda found: (found[0], found[1], found[2] + 1),
    "keyedwm.operators.protocol:operator_of": without_end,
    "keyedwm.operators.messages.driver:MessageOperator.on_rows": one_output_less,
    "keyedwm.operators.messages.messages:MessageStore.read": one_row_less,
    "keyedwm.operators.messages.join.window_join:WindowJoin.flush": one_row_less,
    "keyedwm.operators.messages.driver:MessageOperator.on_end": one_output_less,
    "keyedwm.operators.join.operator:JoinOperator.on_rows": one_output_less,
    "keyedwm.operators.join.operator:JoinOperator.on_watermark": one_output_less,
    "keyedwm.operators.join.side_buffer:SideBuffer.drain": nothing_written,
    "keyedwm.core.in_flight:InFlight.control": lambda left: left[1:],
    "keyedwm.core.in_flight:InFlight.finish": lambda left: left[1:],
}
CASES = [(family, place) for family in FAMILIES for place in family.drives if family.is_product]


def files(family: Family) -> list[Path]:
    """Small files first: one verdict that changes is enough."""
    found = [
        path for path in VECTORS.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file() and family.holds(path)
    ]
    return sorted(found, key=lambda path: path.stat().st_size)[:MOST_FILES]


def found_at(place: str) -> tuple[Any, str, Any]:
    module, _, names = place.partition(":")
    owner: Any = importlib.import_module(module)
    *holders, name = names.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    return owner, name, getattr(owner, name)


class Breakable:
    """A function that answers wrongly while it is broken, wherever it was imported to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: str, wrong: Callable[[Any], Any]) -> None:
        owner, name, function = found_at(place)
        self.broken, self.wrong_answers = False, 0

        def either(*args: Any, **named: Any) -> Any:
            answer = function(*args, **named)
            if not self.broken:
                return answer
            self.wrong_answers += 1
            return wrong(answer)

        holders = [owner]
        if not isinstance(owner, type):
            holders = [module for module in list(sys.modules.values()) if getattr(module, name, None) is function]
        for holder in holders:
            monkeypatch.setattr(holder, name, either)


def verdict_of(vector: Vector) -> tuple[Outcome, int | None]:
    verdict = vector.replay().verdict
    return verdict.outcome, verdict.step


# Functions share vectors, and a verdict while nothing is broken stays the same.
WHOLE: dict[tuple[Path, str], tuple[Outcome, int | None]] = {}


def verdict_when_whole(vector: Vector) -> tuple[Outcome, int | None]:
    place = vector.path, vector.case
    if place not in WHOLE:
        WHOLE[place] = verdict_of(vector)
    return WHOLE[place]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_functions_of_a_family_exist(family: Family) -> None:
    for place in family.drives:
        assert callable(found_at(place)[2]), place


@pytest.mark.parametrize(("family", "place"), CASES, ids=lambda part: getattr(part, "name", part))
def test_a_verdict_of_the_family_changes_when_the_function_answers_wrongly(
    family: Family, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = Breakable(monkeypatch, place, WRONG[place])
    for vector in read_all(files(family)):  # up to the first that notices
        function.broken = False
        before = verdict_when_whole(vector)
        function.broken = True
        if verdict_of(vector) != before:
            break
    else:
        pytest.fail("no verdict has changed")
    assert function.wrong_answers


def test_a_family_whose_vectors_have_no_product_names_what_answers_instead() -> None:
    assert {family.name for family in FAMILIES if not family.is_product} == {
        "Nexmark's events, and its queries of single rows",
        "time bounds out of a condition",
        "drift between sources",
    }
