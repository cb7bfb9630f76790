"""Where a source begins that goes on from a savepoint: at the end of the last batch of the query that was stopped.

Rule: the first batch is planned as the stopped query would have planned its next one: from the same offset, with the
states that its tasks left. Only the consumer group is a new one, so that the savepoint can be continued again.
"""

from __future__ import annotations

from keyedwm.core.errors import OptionError
from keyedwm.savepoint_files import read_savepoint
from pyspark_wm_source.options.start_offsets import Topics
from pyspark_wm_source.values.offsets import QueryOffset


def continued(place: str, topics: Topics) -> QueryOffset:
    """Return the offset of the savepoint's source that reads these topics. Raises OptionError if there is not one."""
    savepoint = read_savepoint("option continueFrom", place)
    sources = [QueryOffset.from_json(source) for source in savepoint.sources]
    mine = [offset for offset in sources if all(topics.selects(tp) for tp in offset.channels)]
    if len(mine) == 1:
        return mine[0]
    topics_of_sources = "; ".join(", ".join(sorted({tp.topic for tp in offset.channels})) for offset in sources)
    found = "no source" if not mine else f"{len(mine)} sources"
    raise OptionError(
        f"option continueFrom: {found} of the savepoint {place} read the topics that {topics.option} selects here; its "
        f"sources read: {topics_of_sources or 'nothing'}"
    )
