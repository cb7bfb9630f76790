"""The state that an operator continues from, and the batch that must come first: `continue_from=TARGET`.

Rule: the first batch must be the one that follows the savepoint; any other batch is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.savepoint_files import OperatorState, Savepoint, read_savepoint
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from pyspark_wm_source.values.offsets import QueryOffset

# The entry of a rescaled bucket's manifest with the snapshot of each source that must come next (`check_follows`).
FOLLOWS = "follows"


def operator_of(place: str, layout: BucketLayout) -> tuple[Savepoint, OperatorState]:
    """Return a savepoint and the operator whose state continues. Raises OptionError or FormatError."""
    savepoint = read_savepoint(f"{layout.kind}: continue_from", place)
    operator = _operator(savepoint, layout)
    followers = [other for other in savepoint.operators.values() if operator.name in other.sources]
    if followers and len(layout.ids) != len(operator.manifests) and _watermarks_differ(operator):
        raise OptionError(
            f"{layout.who}: continue_from {place}: its buckets hold rows back and have emitted different watermarks, "
            f"so in other buckets rows could be late for {followers[0].kind} {followers[0].name}, which follows them: "
            f"give buckets={len(operator.manifests)}"
        )
    if operator.name != layout.name and followers:
        raise OptionError(
            f"{layout.who}: continue_from {place}: {followers[0].kind} {followers[0].name} follows its channels by "
            f"name: give name={operator.name!r}"
        )
    return savepoint, operator


def _watermarks_differ(operator: OperatorState) -> bool:
    """Return whether buckets have emitted different watermarks."""
    watermarks = [(manifest.get("emitted_ms"), manifest.get("emitted", {})) for manifest in operator.manifests]
    return any(one != watermarks[0] for one in watermarks)


def _operator(savepoint: Savepoint, layout: BucketLayout) -> OperatorState:
    """Return the state of the layout's kind and name, or else the only state of the kind."""
    candidates = {name: one for name, one in savepoint.operators.items() if one.kind == layout.kind}
    if layout.name in candidates:
        return candidates[layout.name]
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    raise OptionError(
        f"{layout.who}: continue_from {savepoint.place} holds the state of "
        + (
            f"{', '.join(sorted(candidates))}, and none of that name: give one of them as name"
            if candidates
            else f"no {layout.kind}"
        )
    )


def follows_of(savepoint: Savepoint, operator: OperatorState) -> dict[str, int | None]:
    """Return source or operator -> the snapshot that must come next, for all that this operator follows."""
    offsets = [QueryOffset.from_json(source) for source in savepoint.sources]
    sources = {offset.source: offset.batch + 1 for offset in offsets}
    others = {other.name: other.snapshot for other in savepoint.operators.values()}
    known = sources | {name: snapshot + 1 for name, snapshot in others.items() if snapshot is not None}
    followed = operator.sources
    if followed <= known.keys():
        return {name: known[name] for name in sorted(followed)}
    return dict(sources)  # state of 0.2.0 names no sources


def check_follows(who: str, follows: Mapping[str, int | None], rows: Iterable[ControlRow]) -> dict[str, int | None]:
    """Raise InputError for a first batch that does not follow the savepoint.

    follows: source -> the snapshot that must come next, None if it has come. Returns this mapping as it is after these
    rows, empty if all snapshots have come.
    """
    left = dict(follows)
    for row in rows:
        if row.kind is not ControlKind.BARRIER or row.source is None:
            continue
        expected = follows.get(row.source, -1)
        if expected not in {None, row.snapshot}:
            actual = "another source" if expected == -1 else f"snapshot {row.snapshot}, not {expected},"
            raise InputError(
                f"{who}: it begins with the state of a savepoint, and {actual} of its input comes first: give the "
                f"same savepoint to the source (option continueFrom) and to every operator (continue_from)"
            )
        left[row.source] = None
    return left if any(expected is not None for expected in left.values()) else {}
