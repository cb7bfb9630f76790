"""Watermarks of keys by the book, row by row in plain Python: what counts of a key, what closes, what is late."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

NEVER = -(10**18)


@dataclass(frozen=True)
class Row:
    """A row of a key (owner, page) from a partition."""

    owner: str
    page: str
    partition: int
    time_ms: int
    offset: int


@dataclass
class Model:
    """Tumbling and sliding windows of a plan; counts the rows of each window."""

    lag_ms: int
    behind_ms: int
    size_ms: int
    slide_ms: int
    idle_ms: int | None = None
    slowest: bool = True
    row_by_row: bool = False
    lateness_ms: int = 0
    by_owner: bool = False
    by_frame: bool = False
    front_ms: int = NEVER
    first_ms: int = NEVER
    highs: dict = field(default_factory=dict)  # owner → partition → highest event time
    own: dict = field(default_factory=dict)
    last_seen_ms: dict = field(default_factory=dict)
    windows: dict = field(default_factory=lambda: defaultdict(list))  # key, end → offsets
    on_time_windows: set = field(default_factory=set)  # key, end of windows that were on time
    late: list = field(default_factory=list)

    @property
    def floor_ms(self) -> int:
        return NEVER if self.front_ms == NEVER else self.front_ms - self.behind_ms

    def owner_of(self, row: Row):
        return row.owner if self.by_owner else (row.owner, row.page)

    def forget(self, owners: list) -> None:
        floor_ms = self.floor_ms
        for owner in owners:
            if owner not in self.highs:
                continue
            reach = max(self.own.get(owner, NEVER), max(self.highs[owner].values()) - self.lag_ms)
            if reach <= floor_ms:
                for owner_state in (self.highs, self.own, self.last_seen_ms):
                    owner_state.pop(owner, None)

    def counts(self, owner) -> int:
        self.forget([owner])
        known = max(self.own.get(owner, NEVER), self.floor_ms)
        if self.idle_ms is None or owner not in self.last_seen_ms or self.front_ms == NEVER:
            return known
        is_idle = self.front_ms - max(self.last_seen_ms[owner], self.first_ms) >= self.idle_ms
        return max(known, self.front_ms) if is_idle else known

    def key_lateness(self) -> tuple[list[tuple[int, int]], Counter]:
        """How far behind W keys are, with how many of them, and how many rows were late of each."""
        self.forget(list(self.highs))
        behind = Counter(max(0, self.front_ms - own) for own in self.own.values() if own > self.floor_ms)
        return sorted(behind.items()), Counter(map(self.owner_of, self.late))

    def rise(self, rows: list[Row], was: dict) -> None:
        for row in rows:
            of = self.highs.setdefault(self.owner_of(row), {})
            at = row.partition if self.slowest else 0
            of[at] = max(of.get(at, NEVER), row.time_ms)
        for owner in {self.owner_of(row) for row in rows}:
            within = [high - self.lag_ms for high in self.highs[owner].values() if high - self.lag_ms > self.floor_ms]
            self.own[owner] = max(was[owner], min(within)) if within else max(was[owner], self.own.get(owner, NEVER))
            self.last_seen_ms[owner] = self.front_ms

    def ends(self, time_ms: int) -> list[int]:
        last = time_ms // self.slide_ms * self.slide_ms
        return [last + self.slide_ms + step * self.slide_ms for step in range(self.size_ms // self.slide_ms)]

    def add_rows(self, rows: list[Row]) -> list[tuple]:
        """The panes that a batch shows: (owner, page, end, number of rows, timing)."""
        panes = []
        before = {self.owner_of(row): self.counts(self.owner_of(row)) for row in rows}
        changed_windows = set()
        for row in rows:
            owner = self.owner_of(row)
            counts = self.counts(owner) if self.row_by_row else before[owner]
            if self.row_by_row:
                self.rise([row], {owner: counts})
                is_late = row.time_ms < counts
            else:
                is_closed = [end + self.lateness_ms <= counts for end in self.ends(row.time_ms)]
                is_late = is_closed[0] if self.by_frame else all(is_closed)
            if is_late:
                self.late.append(row)
                continue
            for end in self.ends(row.time_ms):
                if end + self.lateness_ms > counts:
                    self.windows[row.owner, row.page, end].append(row.offset)
                    changed_windows.add((row.owner, row.page, end, owner))
        for name, page, end, owner in changed_windows:
            if end <= before[owner] < end + self.lateness_ms:
                panes.append((name, page, end, len(self.windows[name, page, end]), "late"))
                self.on_time_windows.add((name, page, end))
        if not self.row_by_row and rows:
            self.rise(rows, before)
        return sorted(panes + self.close())

    def advance(self, front_ms: int) -> list[tuple]:
        if front_ms <= self.front_ms:
            return []
        if self.first_ms == NEVER:
            self.first_ms = front_ms
        self.front_ms = front_ms
        self.forget(list(self.highs))
        panes = self.close()
        for owner in list(self.highs):
            if self.counts(owner) == front_ms:  # idle: what W has closed stays closed
                high_ms, own_ms = max(self.highs[owner].values()), self.own.get(owner, NEVER)
                if min(front_ms, self.ends(high_ms)[-1] + self.lateness_ms) > own_ms:
                    # Rows up to the lag above the floor may be held of the time before the key was last forgotten.
                    last_ms = self.ends(max(high_ms, self.floor_ms + self.lag_ms))[-1] + self.lateness_ms
                    self.own[owner] = max(own_ms, min(front_ms, last_ms))
        return panes

    def close(self) -> list[tuple]:
        panes = []
        for (name, page, end), offsets in sorted(self.windows.items()):
            owner = name if self.by_owner else (name, page)
            counts = self.counts(owner)
            if end <= counts and (name, page, end) not in self.on_time_windows:
                self.on_time_windows.add((name, page, end))
                panes.append((name, page, end, len(offsets), "on_time"))
            if end + self.lateness_ms <= counts:
                del self.windows[name, page, end]
        return panes

    def complete(self) -> list[tuple]:
        return sorted(
            (*key, len(rows), "on_time") for key, rows in self.windows.items() if key not in self.on_time_windows
        )


@dataclass
class SessionModel(Model):
    """Sessions of a plan; `size_ms` is the gap, and an event at the end of a session belongs to it."""

    sessions: dict = field(default_factory=dict)  # key → [start, end, number of rows, whether it was on time]

    def add_rows(self, rows: list[Row]) -> list[tuple]:
        panes, before = [], {self.owner_of(row): self.counts(self.owner_of(row)) for row in rows}
        rows_by_key: dict = {}
        for row in rows:
            owner = self.owner_of(row)
            if self.row_by_row:
                counts = self.counts(owner)
                self.rise([row], {owner: counts})
                if row.time_ms < counts:
                    self.late.append(row)
                    continue
            rows_by_key.setdefault((row.owner, row.page), []).append(row)
        for key, new in rows_by_key.items():
            counts = before[self.owner_of(new[0])]
            for row in new:
                self.add(key, row)
            for one in list(self.sessions[key]):
                if one[4] and one[1] + self.lateness_ms < counts:  # nothing that is held is closed: all of it is new
                    self.late += one[4]
                    self.sessions[key].remove(one)
                elif one[4] and one[1] < counts:
                    panes.append((*key, one[1], one[2], "late"))
                    one[3] = True
                one[4] = []
        if not self.row_by_row and rows:
            self.rise(rows, before)
        return sorted(panes + self.close())

    def add(self, key, row: Row) -> None:
        joined = [row.time_ms, row.time_ms + self.size_ms, 1, False, [row]]
        others = []
        for one in self.sessions.get(key, []):
            if one[0] <= joined[1] and joined[0] <= one[1]:
                low, high = min(one[0], joined[0]), max(one[1], joined[1])
                joined = [low, high, joined[2] + one[2], False, joined[4] + one[4]]
            else:
                others.append(one)
        self.sessions[key] = [*others, joined]

    def ends(self, time_ms: int) -> list[int]:
        return [time_ms + self.size_ms + 1]

    def close(self) -> list[tuple]:
        panes = []
        for key, key_sessions in self.sessions.items():
            counts = self.counts(key[0] if self.by_owner else key)
            panes += [(*key, one[1], one[2], "on_time") for one in key_sessions if one[1] < counts and not one[3]]
            for one in key_sessions:
                one[3] = one[3] or one[1] < counts
            key_sessions[:] = [one for one in key_sessions if one[1] + self.lateness_ms >= counts]
        return sorted(panes)

    def complete(self) -> list[tuple]:
        rest = [
            (*key, one[1], one[2], "on_time")
            for key, key_sessions in self.sessions.items()
            for one in key_sessions
            if not one[3]
        ]
        return sorted(rest)
