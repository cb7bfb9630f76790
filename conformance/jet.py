"""The Jet files: one JSON object per component, with vectors of steps and what each step gives.

Rule: a vector marked `normative: false` records an accident of the original; where the core answers differently, a rule
of the design decides otherwise, and that is said. Any other vector must be kept, but for the differences that
`DECIDED` names: there the answer must be exactly what the rule makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.jet_coalescing import COALESCING
from conformance.jet_joins import JOINS
from conformance.jet_sources import SOURCES
from conformance.jet_windows import WINDOWS
from conformance.verdict import Outcome, Verdict, fail, otherwise

COMPONENTS: Mapping[str, Callable[[dict], Verdict]] = {**COALESCING, **SOURCES, **WINDOWS, **JOINS}


def is_jet(value: object) -> bool:
    """Whether a JSON value is a Jet file."""
    return isinstance(value, dict) and {"component", "vectors"} <= value.keys()


def replay(component: str, vector: dict) -> Verdict:
    """Replay one vector of a component."""
    name = component.split(" (", maxsplit=1)[0]
    play = COMPONENTS.get(name)
    if play is None:
        return fail(f"component {component!r} is not known; known are {', '.join(sorted(COMPONENTS))}")
    verdict = play(vector)
    if verdict.outcome is Outcome.FAIL and vector.get("normative") is False:
        return otherwise(_why(component, vector), verdict.step)
    return verdict


def _why(component: str, vector: dict) -> str:
    """The rule that decides otherwise."""
    why = vector.get("why")
    if why:
        return why
    rules = {
        "keyed coalescer": "rules 3 and 4: a watermark wakes for every key, one marker per idle spell",
        "barrier alignment on one input edge": "rule 3: an idle marker behind an event comes after it",
        "sliding / tumbling window aggregation by frames": "rule 11: a key whose total is 0 is still in the window",
        "stream-to-stream join": "rule 13: what was emitted is part of the state",
    }
    return rules.get(component, "an accident of the original, not a rule")
