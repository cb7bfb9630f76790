"""The versions of each request: the newest that this client uses, the oldest that is enough, and what is lost below.

Rule: this is the only table; requests take their limits from it, and docs/reference/versions.md shows it. A server that
offers older versions is used, and one warning says what is lost with them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.kafka.requests.reactions import Api


class Use(enum.Enum):
    """The use of a request: reading, writing, or writing exactly once."""

    SOURCE = "the source"
    SINK = "the sink to Kafka"
    EXACTLY_ONCE = "the exactly-once sink to Kafka"


@dataclass(frozen=True, slots=True)
class Versions:
    """oldest: the oldest version that is enough.

    newest: the version to use if it is offered. needed_by: uses that need it.
    """

    oldest: int
    newest: int
    needed_by: frozenset[Use] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.oldest <= self.newest:
            raise ValueError(f"versions {self.oldest} to {self.newest} are none")

    @property
    def limits(self) -> dict[str, int]:
        """As arguments of a request."""
        return {"min_version": self.oldest, "max_version": self.newest}


@dataclass(frozen=True, slots=True)
class Loss:
    """A thing that is lost below a version of a request, or without the request.

    check: the check that it belongs to.
    """

    api: Api
    since: int
    use: Use
    check: str
    consequence: str


# The checks that losses belong to.
TRUNCATION, RECREATION, STATES = "truncation check", "recreation check", "kept states"
BATCHES, LEDGER = "sizes of batches", "ledger"
_ALL = frozenset({Use.SOURCE, Use.SINK, Use.EXACTLY_ONCE})
_WRITING = frozenset({Use.SINK, Use.EXACTLY_ONCE})
_ONCE = frozenset({Use.EXACTLY_ONCE})
VERSIONS: Mapping[Api, Versions] = {
    Api.PRODUCE: Versions(3, 11, _WRITING),
    Api.FETCH: Versions(4, 13, frozenset({Use.SOURCE})),
    Api.LIST_OFFSETS: Versions(2, 7, frozenset({Use.SOURCE})),
    Api.METADATA: Versions(4, 12, _ALL),
    Api.OFFSET_COMMIT: Versions(2, 9),
    Api.OFFSET_FETCH: Versions(2, 9, _ONCE),
    Api.FIND_COORDINATOR: Versions(1, 4, _ONCE),
    Api.INIT_PRODUCER_ID: Versions(0, 4, _WRITING),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 3, _ONCE),
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 3, _ONCE),
    Api.END_TXN: Versions(0, 3, _ONCE),
    Api.TXN_OFFSET_COMMIT: Versions(0, 3, _ONCE),
    Api.DESCRIBE_CONFIGS: Versions(0, 2),
    Api.DESCRIBE_TRANSACTIONS: Versions(0, 0, _ONCE),
    Api.LIST_TRANSACTIONS: Versions(0, 1),
}
LOSSES = (
    Loss(Api.LIST_OFFSETS, 4, Use.SOURCE, TRUNCATION, "leader epochs of log ends are not known"),
    Loss(Api.METADATA, 9, Use.SOURCE, TRUNCATION, "leader epochs of partitions are not known"),
    Loss(Api.OFFSET_FOR_LEADER_EPOCH, 2, Use.SOURCE, TRUNCATION, "no check for a log truncated between two batches"),
    Loss(Api.FETCH, 12, Use.SOURCE, TRUNCATION, "no check for a log truncated while a batch is read"),
    Loss(Api.METADATA, 10, Use.SOURCE, RECREATION, "no check for a topic recreated between two batches"),
    Loss(Api.FETCH, 13, Use.SOURCE, RECREATION, "no check for a topic recreated while a batch is read"),
    Loss(Api.FIND_COORDINATOR, 1, Use.SOURCE, STATES, "no group coordinator: every batch is read a second time"),
    Loss(Api.OFFSET_COMMIT, 2, Use.SOURCE, STATES, "no commits of states: every batch is read a second time"),
    Loss(Api.OFFSET_FETCH, 2, Use.SOURCE, STATES, "no committed states: every batch is read a second time"),
    Loss(Api.DESCRIBE_CONFIGS, 0, Use.SINK, BATCHES, "the largest batch is not known: 900,000 bytes at most"),
    Loss(Api.OFFSET_FETCH, 7, Use.EXACTLY_ONCE, LEDGER, "a pending commit of the marker is not waited for"),
    Loss(
        Api.LIST_TRANSACTIONS, 0, Use.EXACTLY_ONCE, LEDGER, "transactions of dead attempts stay open till they time out"
    ),
)


def missing(use: Use, api_versions: Mapping[int, int]) -> list[Api]:
    """Return the requests that a use needs and that are not offered; api_versions: the newest versions by API key."""
    return [
        api for api, versions in VERSIONS.items()
        if use in versions.needed_by and api_versions.get(api, -1) < versions.oldest
    ]  # fmt: skip


def losses(use: Use, api_versions: Mapping[int, int]) -> list[Loss]:
    """Return what is lost in a use with these versions."""
    return [loss for loss in LOSSES if loss.use is use and api_versions.get(loss.api, -1) < loss.since]


def absent_sentence(use: Use, api_versions: Mapping[int, int]) -> str | None:
    """Name the requests that a use needs and that are not offered; None if all are."""
    names = [f"{api.kafka_name} {VERSIONS[api].oldest}" for api in missing(use, api_versions)]
    return f"{use.value} needs {', '.join(names)} or newer, which these brokers do not offer" if names else None
