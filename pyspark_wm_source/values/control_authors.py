"""The authors whose control records count: `propagateFrom` names the query, `controlSecret` asks for its code.

Rule: a record of another author is skipped, counted and named in the log once; it stops no query and moves no
watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keyedwm.core.inline import is_genuine, query_of
from keyedwm.core.text import short_repr
from keyedwm.kafka.client.values import TopicPartition

if TYPE_CHECKING:
    from keyedwm.kafka.records.read import ControlRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlAuthors:
    """query: the only query that counts, None for any. secret: the secret of the records' codes, or None."""

    query: str | None = None
    secret: bytes | None = field(default=None, repr=False)

    @property
    def proven(self) -> bool:
        """Whether a record that counts was surely written by an author with the secret."""
        return self.secret is not None

    def refusal(self, record: ControlRecord, channel: TopicPartition) -> str | None:
        """Say why a control record does not count, None if it does. The code is checked before the value is parsed."""
        if self.secret is not None and not is_genuine(record.value, self.secret, record.header, *channel):
            return "it has no code, or one that option controlSecret does not make for this partition"
        if self.query is not None and (query := query_of(record.value)) != self.query:
            return f"it is of query {short_repr(query or '')}, option propagateFrom names {short_repr(self.query)}"
        return None
