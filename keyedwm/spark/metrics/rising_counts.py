"""A source's counters from its offset, which has a count for each partition.

Rule: a counter never falls. The offset forgets the counts of a partition that is gone; the counter keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_Counts = Mapping[str, Mapping[str, int]]
_Place = tuple[str, str]


@dataclass
class RisingCount:
    """A count of all partitions that a source has, or had while this program ran.

    highest: topic and partition -> its highest count. absent: those without a count in the last offset. ended: the
    counts of partitions that were forgotten and began again.
    """

    highest: dict[_Place, int] = field(default_factory=dict)
    absent: frozenset[_Place] = frozenset()
    ended: int = 0

    def update(self, counts: _Counts) -> None:
        """Take the counts of an offset, by topic and partition; a partition without events has none."""
        present = {
            (topic, partition): count for topic, of_topic in counts.items() for partition, count in of_topic.items()
        }
        for place, count in present.items():
            highest = self.highest.get(place, 0)
            if place in self.absent and count < highest:  # else the offset still knew the partition
                self.ended += highest
                highest = 0
            self.highest[place] = max(count, highest)
        self.absent = frozenset(self.highest.keys() - present.keys())

    @property
    def total(self) -> int:
        """The value of the counter."""
        return self.ended + sum(self.highest.values())
