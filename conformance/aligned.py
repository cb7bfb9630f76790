"""Barriers of several channels through the product's `keyedwm.core.barriers`: who waits, and which cut is whole.

Rule: as long as barriers come in turn and nobody gives a snapshot up, the product says after each of them who is held
and what is complete, and the scalar model must say the same. The product knows no cancelled and no overtaken
snapshots (a batch that fails is run again as a whole), so from the first of those on the model answers alone.
"""

from __future__ import annotations

from conformance.disagreement import DisagreementError
from conformance.models.alignment import Aborted, Alignment, Completed
from keyedwm.core.barriers import align, collect_cuts, first_incomplete
from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind

_NONE = -1


class AlignedBarriers(Alignment):
    """The scalar alignment, held against the product's functions after each exactly-once step."""

    _in_turn = True

    def barrier(self, channel: str, snapshot_id: int, *, terminal: bool = False) -> list[Completed | Aborted]:
        """See Alignment."""
        before = self.snapshot()
        newest = self._newest_of()
        changes = super().barrier(channel, snapshot_id, terminal=terminal)
        ignored = self.snapshot() == before
        if ignored or terminal or any(isinstance(change, Aborted) for change in changes):
            self._in_turn = False
        self._check({**newest, channel: snapshot_id}, changes)
        return changes

    def done(self, channel: str) -> list[Completed | Aborted]:
        """See Alignment."""
        newest = self._newest_of()
        changes = super().done(channel)
        newest.pop(channel, None)
        self._check(newest, changes)
        return changes

    def cancel(self, snapshot_id: int) -> list[Completed | Aborted]:
        """See Alignment."""
        self._in_turn = False
        return super().cancel(snapshot_id)

    def _newest_of(self) -> dict[str, int]:
        """Each live channel's newest barrier: the open one where it delivered that, else the last that closed."""
        state = self.snapshot()
        newest = dict.fromkeys(sorted(state.live), state.closed_through)
        for snapshot_id, delivered in state.delivered:
            newest |= dict.fromkeys(sorted(delivered & state.live), snapshot_id)
        return newest

    def _check(self, newest: dict[str, int], changes: list[Completed | Aborted]) -> None:
        if not (self._in_turn and self._holding and newest):
            return
        snapshot_id, ahead = align(newest)
        complete = [change.snapshot_id for change in changes]
        if self.blocked_channels() != ahead or (complete and complete != [snapshot_id]):
            raise DisagreementError(
                f"the model holds {self.blocked_channels()} and completes {complete}, align says {ahead}"
            )
        highest = max(newest.values())
        if highest == _NONE:
            return
        rows = [
            ControlRow(kind=ControlKind.BARRIER, channel=name, offset=0, snapshot=highest, channels=len(newest))
            for name, delivered in newest.items()
            if delivered == highest
        ]
        whole = first_incomplete(collect_cuts(rows)) is None
        if whole is bool(ahead):
            raise DisagreementError(f"{len(rows)} of {len(newest)} barriers of {highest} came, whole says {whole}")
