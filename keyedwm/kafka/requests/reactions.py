"""The reaction of this client to each error code in the answer to each request.

Rule: this is the only table. What a code means does not depend on the request, unless a line of `_BY_REQUEST` says so.
An unknown code, which a newer Kafka may have, is retried: every retry has an end.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from keyedwm.kafka.client.errors import Code


class Api(enum.IntEnum):
    """The requests of this client, by Kafka's API keys; the connection has the requests of a login."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    LIST_GROUPS = 16
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    CREATE_PARTITIONS = 37
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66

    @property
    def kafka_name(self) -> str:
        """Kafka's name, as `OffsetFetch`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Reaction(enum.Enum):
    """The next step after an answer.

    RETRY: send the request again after a pause. REFRESH: as RETRY, after a look for the leader or coordinator. FINAL: a
    retry changes nothing. ANSWER: the code is the answer itself, and no failure.
    """

    RETRY = "retry"
    REFRESH = "refresh"
    FINAL = "final"
    ANSWER = "answer"

    @property
    def repeats(self) -> bool:
        """Whether the request is sent again."""
        return self in {Reaction.RETRY, Reaction.REFRESH}


_NEWEST_CODE = 133  # of Kafka 4.4
_REFRESH = frozenset({
    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER, Code.BROKER_NOT_AVAILABLE,
    Code.REPLICA_NOT_AVAILABLE, Code.NETWORK_EXCEPTION, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR, Code.LISTENER_NOT_FOUND, Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH,
    Code.PREFERRED_LEADER_NOT_AVAILABLE, Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, Code.ELECTION_NOT_NEEDED,
    Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID, Code.REBOOTSTRAP_REQUIRED,
})  # fmt: skip
_RETRY = frozenset({
    Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE, Code.REQUEST_TIMED_OUT, Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.NOT_CONTROLLER, Code.CONCURRENT_TRANSACTIONS,
    Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH, Code.OFFSET_NOT_AVAILABLE,
    Code.UNSTABLE_OFFSET_COMMIT, Code.THROTTLING_QUOTA_EXCEEDED, Code.FETCH_SESSION_TOPIC_ID_ERROR,
    Code.SHARE_SESSION_NOT_FOUND, Code.INVALID_SHARE_SESSION_EPOCH,
})  # fmt: skip
# The different meaning of a code in the answer to this one request.
_BY_REQUEST: Mapping[tuple[Api, Code], Reaction] = {
    (Api.PRODUCE, Code.DUPLICATE_SEQUENCE): Reaction.ANSWER,  # an earlier attempt has written the batch
    (Api.PRODUCE, Code.POLICY_VIOLATION): Reaction.RETRY,  # Event Hubs uses it for throttling; Kafka for settings only
    (Api.FETCH, Code.OFFSET_OUT_OF_RANGE): Reaction.REFRESH,  # the log is asked for its ends, which may differ
    (Api.FETCH, Code.CORRUPT_MESSAGE): Reaction.FINAL,  # on the broker's disk
    (Api.METADATA, Code.UNKNOWN_TOPIC_OR_PARTITION): Reaction.ANSWER,  # there is no such topic
    (Api.OFFSET_COMMIT, Code.UNKNOWN_TOPIC_OR_PARTITION): Reaction.FINAL,  # the topic was deleted
    (Api.OFFSET_FETCH, Code.UNKNOWN_TOPIC_OR_PARTITION): Reaction.ANSWER,  # nothing is committed there
    (Api.OFFSET_FETCH, Code.GROUP_ID_NOT_FOUND): Reaction.ANSWER,  # a new group: nothing is committed
    (Api.DELETE_TOPICS, Code.UNKNOWN_TOPIC_OR_PARTITION): Reaction.FINAL,
    (Api.CREATE_PARTITIONS, Code.UNKNOWN_TOPIC_OR_PARTITION): Reaction.FINAL,
    (Api.ADD_PARTITIONS_TO_TXN, Code.OPERATION_NOT_ATTEMPTED): Reaction.RETRY,  # another partition was rejected
    (Api.DESCRIBE_TRANSACTIONS, Code.TRANSACTIONAL_ID_NOT_FOUND): Reaction.ANSWER,
    # The transaction has ended, or another producer has the id: the coordinator is asked which is true.
    (Api.END_TXN, Code.INVALID_PRODUCER_EPOCH): Reaction.ANSWER,
    (Api.END_TXN, Code.PRODUCER_FENCED): Reaction.ANSWER,
    (Api.END_TXN, Code.INVALID_TXN_STATE): Reaction.ANSWER,
    (Api.END_TXN, Code.INVALID_PRODUCER_ID_MAPPING): Reaction.ANSWER,
}


def reaction(api: int, number: int) -> Reaction:
    """Return the reaction to an error code in the answer to a request, by its API key.

    A setting that cannot be read is unknown, whatever the error: work continues without it (DescribeConfigs).
    """
    if number == 0 or api == Api.DESCRIBE_CONFIGS:  # 0: no error, as nearly all answers have
        return Reaction.ANSWER
    code = Code.of(number)
    if (Api(api), code) in _BY_REQUEST:
        return _BY_REQUEST[Api(api), code]
    if code in _REFRESH:
        return Reaction.REFRESH
    if code in _RETRY or not 0 < number <= _NEWEST_CODE:
        return Reaction.RETRY
    return Reaction.FINAL
