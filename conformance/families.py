"""Which function of the product each family of vectors drives.

The table of docs/reference/conformance.md is made of it.

Rule: every vector belongs to one family. A family drives functions of the product (`keyedwm`, `pyspark_wm_source`,
`pyspark_wm_sink`), or it has no counterpart there: then a model of `conformance/models` is played, or the benchmark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from conformance.verdict import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Vectors of one rule. files: patterns of FOLDER/FILE. drives: MODULE:NAME of the functions that answer them."""

    name: str
    files: tuple[str, ...]
    drives: tuple[str, ...]

    @property
    def is_product(self) -> bool:
        """Whether the product answers, not a model alone, nor the benchmark's generator."""
        return bool(self.drives) and not any(place.startswith(("conformance.", "benchmarks.")) for place in self.drives)

    @property
    def driven(self) -> str:
        """What drives it, for the table."""
        names = ", ".join(f"`{place.replace(':', '.')}`" for place in self.drives)
        if self.is_product or not names:
            return names or "nothing yet"
        is_model = self.drives[0].startswith("conformance.")
        return f"no product yet, the model {names}" if is_model else f"the generator of the benchmark, {names}"

    def holds(self, path: Path) -> bool:
        """Whether a file's vectors belong to the family."""
        name = f"{path.parent.name}/{path.name.removesuffix('.gz').split('.')[0]}"
        return any(fnmatch(name, pattern) for pattern in self.files)


_AXIS = "keyedwm.arrow.axis:AxisRun"
_SLIDING = "keyedwm.operators.frames.sliding:SlidingOperator"
_SESSION = "keyedwm.operators.frames.sessions:SessionOperator"
_JOIN = "keyedwm.operators.join.operator:JoinOperator"
_IN_FLIGHT = "keyedwm.core.in_flight:InFlight"
_STORE = "keyedwm.operators.messages.driver:MessageOperator"
_COMBINE = "keyedwm.operators.frames.partials:combine_rows"
FAMILIES = (
    Family(
        name="coalescing, valves, multiplexers, retention",
        files=(
            "jet/coalescer*", "jet/keyed_coalescer", "flink/flink-valve-*", "flink/flink-mux-*", "oracle/jet-coalescer",
            "oracle/jet-keyed-coalescer", "oracle/jet-legacy-retention", "oracle/flink-valve", "oracle/flink-mux",
        ),
        drives=("keyedwm.core.coalescer:Coalescer.step",),
    ),
    Family(
        name="idleness",
        files=("flink/flink-idle-timer-*",),
        drives=("keyedwm.core.idleness:Idleness.is_idle",),
    ),
    Family(
        name="watermark policies",
        files=("jet/watermark_policy", "oracle/jet-lag-policy", "oracle/jet-legacy-policy"),
        drives=(f"{_AXIS}.rows", f"{_AXIS}.end"),
    ),
    Family(
        name="history of timestamps",
        files=("jet/timestamp_history_legacy",),
        drives=("keyedwm.core.watermark:History.known_at",),
    ),
    Family(
        name="throttling and frames",
        files=("jet/frames_and_throttling", "oracle/jet-frames", "oracle/jet-legacy-throttle"),
        drives=(f"{_AXIS}.rows", "keyedwm.core.throttle:floor_frame"),
    ),
    Family(
        name="source of several partitions",
        files=("jet/event_time_mapper", "oracle/jet-mapper", "oracle/jet-legacy-mapper"),
        drives=("pyspark_wm_source.driver.plan:plan", f"{_AXIS}.rows", f"{_AXIS}.end"),
    ),
    Family(
        name="barrier alignment",
        files=("jet/barrier_alignment", "jet/operator_inputs", "flink/flink-barrier-*", "oracle/jet-edge-stream"),
        drives=("keyedwm.core.barriers:align", "keyedwm.core.barriers:collect_cuts"),
    ),
    Family(
        name="late rows",
        files=("jet/late_drop", "windows/keyed-watermark-*"),
        drives=("keyedwm.operators.keyed.key_watermarks:KeyWatermarks.advance", "keyedwm.arrow.axis:late",),
    ),
    Family(
        name="sliding windows",
        files=(
            "jet/sliding_window", "oracle/jet-sliding", "oracle/flink-windows", "windows/assign-*",
            "windows/jet-sliding-*",
        ),
        drives=(f"{_SLIDING}.on_rows", f"{_SLIDING}.on_watermark"),
    ),
    Family(
        name="two stages",
        files=("jet/two_stage_window", "windows/jet-stage*", "windows/jet-frame*"),
        drives=(_COMBINE, f"{_SLIDING}.on_watermark"),
    ),
    Family(
        name="session windows",
        files=(
            "jet/session_window", "oracle/jet-session", "oracle/flink-sessions", "windows/jet-session-*",
            "windows/arroyo-session-*", "windows/session-[!m]*",
        ),
        drives=(f"{_SESSION}.on_rows", f"{_SESSION}.on_watermark"),
    ),
    Family(
        name="merging of sessions",
        files=("oracle/flink-merge-windows", "oracle/flink-merging-window-set", "windows/session-m*"),
        drives=("keyedwm.operators.frames.session_parts:joined_runs",),
    ),
    Family(
        name="panes, several windows and inputs, counts",
        files=(
            "windows/beam-*", "windows/stream-*", "windows/sliding-*", "windows/multi-*", "windows/count-*",
            "windows/jet-co*", "windows/arroyo-[!s]*", "windows/samza-[!j]*",
        ),
        drives=("keyedwm.operators.protocol:operator_of", _COMBINE, f"{_STORE}.on_rows"),
    ),
    Family(
        name="whole data sets",
        files=("windows/flights-*", "windows/nexmark-golden-*"),
        drives=(_COMBINE, f"{_SLIDING}.on_end"),
    ),
    Family(
        name="messages that are kept",
        files=("windows/seed-[!j]*",),
        drives=(f"{_STORE}.on_rows", "keyedwm.operators.messages.messages:MessageStore.read"),
    ),
    Family(
        name="joins of windows",
        files=("windows/seed-join-*", "windows/join-*"),
        drives=(
            "keyedwm.operators.messages.join.window_join:WindowJoin.flush",
            "keyedwm.operators.messages.driver:MessageOperator.on_end",
        ),
    ),
    Family(
        name="joins by the time of arrival",
        files=("windows/samza-j*",),
        drives=(f"{_JOIN}.on_rows",),
    ),
    Family(
        name="Nexmark's events, and its queries of single rows",
        files=("nexmark/nexmark-*", "windows/nexmark-[!g]*"),
        drives=("benchmarks.nexmark_events:records", "benchmarks.nexmark_events:Stream.times"),
    ),
    Family(
        name="joins of streams",
        files=("jet/stream_join",),
        drives=(f"{_JOIN}.on_rows", f"{_JOIN}.on_watermark", "keyedwm.operators.join.side_buffer:SideBuffer.drain"),
    ),
    Family(
        name="time bounds out of a condition",
        files=("jet/join_time_bounds",),
        drives=("conformance.models.time_bounds:bounds_of",),
    ),
    Family(
        name="asynchronous calls",
        files=("jet/async_transform_watermarks",),
        drives=(f"{_IN_FLIGHT}.control", f"{_IN_FLIGHT}.finish"),
    ),
    Family(
        name="drift between sources",
        files=("flink/flink-align-*", "flink/flink-split-pause-*"),
        drives=("conformance.models.peers:DriftLimit.announce", "conformance.models.peers:PausedSplits.step"),
    ),
)  # fmt: skip


def family_of(path: Path) -> Family:
    """The family of a file's vectors. Raises LookupError unless there is exactly one."""
    families = [family for family in FAMILIES if family.holds(path)]
    if len(families) != 1:
        raise LookupError(f"{path} belongs to {len(families)} families, it must be one")
    return families[0]


def table(outcomes: Iterable[tuple[Path, Outcome]]) -> str:
    """The table of docs/reference/conformance.md."""
    counts = Counter((family_of(path).name, outcome) for path, outcome in outcomes)
    lines = ["| family | driven | match | decided otherwise |", "|---|---|---|---|"]
    for family in FAMILIES:
        match, otherwise = (counts[family.name, outcome] for outcome in (Outcome.MATCH, Outcome.OTHERWISE))
        lines.append(f"| {family.name} | {family.driven} | {match} | {otherwise} |")
    return "\n".join(lines)
