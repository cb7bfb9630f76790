"""Where each source of a batch begins and ends, read from Spark's offset log: the plan that the source itself made.

Rule: it only reads. An offset that cannot be read is unknown, and is never guessed. The log has a batch before its
first task runs. The log is this query's only if the checkpoint names the query's id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.parsing import parse_json, whole_number
from keyedwm.core.rows import channel_name
from keyedwm.core.text import error_text
from keyedwm.savepoint_files import Files
from pyspark_wm_sink.batch.record import Reads

_MARK = "state_key"  # a field that only offsets of keyedwm's source have
_HEAD = 2  # lines of a file of the log before the lines of the sources
# Remote checkpoints whose reading raised an error. Later commits in this process would wait for the error again.
_unreachable: set[str] = set()
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRange:
    """One source's part of a batch: channel → its first offset, and the offset behind its last one."""

    begins: Mapping[str, int]
    ends: Mapping[str, int]

    def __post_init__(self) -> None:
        wrong = [name for name, end in self.ends.items() if not 0 <= self.begins.get(name, -1) <= end]
        if wrong or len(self.begins) != len(self.ends):
            raise ValueError(f"the range of {wrong or list(self.begins)} is invalid: 0 <= begin <= end is expected")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """The plan of a batch. sources: in Spark's order; None for a source that is not keyedwm's.

    is_stateful: the checkpoint holds state of operators, which a new checkpoint would lack.
    """

    sources: tuple[SourceRange | None, ...]
    is_stateful: bool = False

    @property
    def begins(self) -> dict[str, int]:
        """Where each channel begins; the lower offset if two sources read it."""
        begins: dict[str, int] = {}
        for source in self.sources:
            for channel, offset in ({} if source is None else source.begins).items():
                begins[channel] = min(offset, begins.get(channel, offset))
        return begins

    @property
    def is_all_keyedwm(self) -> bool:
        """Whether all sources are keyedwm's."""
        return None not in self.sources

    @property
    def reads(self) -> Reads:
        """Where each source ends, as the record of the batch keeps it."""
        sources = tuple(None if source is None else source.ends for source in self.sources)
        return Reads(sources=sources, is_stateful=self.is_stateful)


def read_plan(checkpoint: str | None, query: str | None, batch: int | None) -> BatchPlan | None:
    """Read the plan of a batch; None if no checkpoint is given, or it cannot be read, lacks the batch or is another's.

    query: the id of the query, None if it is not known; then the plan is unknown, too.
    """
    if checkpoint is None or query is None or batch is None or checkpoint in _unreachable:
        return None
    files = Files(checkpoint)
    try:
        owner, text = files.read("metadata"), files.read(f"offsets/{batch}")
        if owner is None or text is None:
            return None
        if parse_json(owner)["id"] != query:
            _log.warning("checkpointLocation %s is that of another query: where batch %d begins is unknown",
                         checkpoint, batch)  # fmt: skip
            return None
        return BatchPlan(
            sources=tuple(map(_source_range, text.splitlines()[_HEAD:])), is_stateful=bool(files.names("state"))
        )
    except KeyedwmError as error:
        why = str(error)
        if not files.is_local:
            _unreachable.add(checkpoint)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = error_text(error)
    _log.warning("where batch %d begins cannot be read from the checkpoint %s: %s", batch, checkpoint, why)
    return None


def _source_range(line: str) -> SourceRange | None:
    """Read one source's line of the offset log, as `pyspark_wm_source/values/offsets.py` writes it."""
    if not line.startswith("{"):
        return None
    content = parse_json(line)
    if _MARK not in content:
        return None
    begins, ends = {}, {}
    for topic, partitions in content["offsets"].items():
        for partition, next_offset in partitions.items():
            channel = channel_name(topic, int(partition))
            ends[channel] = whole_number(next_offset, "the next offset of a partition")
            read = content["channels"][topic][partition][0] if content["channels"] else 0
            begins[channel] = ends[channel] - whole_number(read, "the number of offsets read of a partition")
    return SourceRange(begins=begins, ends=ends)
