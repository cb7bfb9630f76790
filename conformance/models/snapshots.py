"""The ledger of snapshots: which id is next, which is open, which is the last that holds (rule 12).

Rule: ids start at 0 and go up by one, aborted ones included; one snapshot is open at a time. The transitions are this
table, and what is not in it is refused:

    nothing open --begin(next id)--> open --seal--> sealed, nothing open
                                     open --abort-> aborted, nothing open
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from keyedwm.core.errors import OutOfTurnError


@dataclass(frozen=True, slots=True)
class SnapshotLedger:
    """A value: each step answers with the next ledger. `sealed_id` is the snapshot to restore from, None: the start."""

    next_id: int = 0
    open_id: int | None = None
    sealed_id: int | None = None

    def begin(self, snapshot_id: int) -> SnapshotLedger:
        """Open the next snapshot."""
        if self.open_id is not None:
            raise OutOfTurnError(f"snapshot {snapshot_id} was begun while snapshot {self.open_id} is open")
        if snapshot_id != self.next_id:
            raise OutOfTurnError(f"snapshot {snapshot_id} was begun, the next id is {self.next_id}")
        return replace(self, next_id=self.next_id + 1, open_id=snapshot_id)

    def seal(self, snapshot_id: int) -> SnapshotLedger:
        """The open snapshot is complete and durable."""
        self._check_open(snapshot_id, "sealed")
        return replace(self, open_id=None, sealed_id=snapshot_id)

    def abort(self, snapshot_id: int) -> SnapshotLedger:
        """The open snapshot is given up; its id is used up."""
        self._check_open(snapshot_id, "aborted")
        return replace(self, open_id=None)

    def restored(self) -> SnapshotLedger:
        """The ledger after a restart: what was open is given up, its id is used again by nobody."""
        return replace(self, open_id=None)

    def _check_open(self, snapshot_id: int, state: str) -> None:
        if snapshot_id != self.open_id:
            now = "none is open" if self.open_id is None else f"snapshot {self.open_id} is open"
            raise OutOfTurnError(f"snapshot {snapshot_id} was {state}, but {now}")
