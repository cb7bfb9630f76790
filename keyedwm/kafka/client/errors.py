"""The error codes of brokers, and the errors that this package raises, for example for untrusted certificates.

Rule: a code is never a bare number outside this package, and an error names topic, partition and offset as far as they
are known.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Sequence

import kafka.errors as wire_errors
from kafka.errors import for_code

from keyedwm.core.errors import DataLossError, InputError, KeyedwmError, OptionError, UnavailableError
from keyedwm.core.text import offsets_text
from keyedwm.kafka.client.security import Security
from keyedwm.kafka.client.values import TopicPartition

# OpenSSL's X509_V_ERR_*: errors that another store of trusted certificates cannot cure.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME, _OTHER_ADDRESS = 62, 64
_TRUST = "kafka.ssl.truststore.location"


class Code(enum.IntEnum):
    """The broker's error codes that this package uses by name; all others are `OTHER`."""

    OTHER = -2
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    TOPIC_ALREADY_EXISTS = 36
    NOT_CONTROLLER = 41
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE = 45
    DUPLICATE_SEQUENCE = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    TRANSACTION_ABORTABLE = 120
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    REBOOTSTRAP_REQUIRED = 129

    @classmethod
    def of(cls, code: int) -> Code:
        """The member for a number from the wire."""
        try:
            return cls(code)
        except ValueError:
            return cls.OTHER

    @property
    def denied(self) -> bool:
        """Return whether the broker denied access, so that a retry changes nothing."""
        return self in _DENIED


_DENIED = frozenset({
    Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip


def described(code: int) -> str:
    """Kafka's own name and number of a code, for a message."""
    return f"{for_code(code).__name__.removesuffix('Error')} ({code})"


class NoBrokerError(UnavailableError):
    """No broker answered the first request of a process: the address is wrong, or the brokers are away."""

    advice = "fix the address or the protocol, or if brokers answered there before, retry: nothing was lost"


class UnknownTopicError(InputError):
    """A topic or partition that the cluster does not have."""

    advice = "create the topic, or fix the options subscribe and assign"

    @classmethod
    def of(cls, topic: str, neighbour: str | None = None) -> UnknownTopicError:
        """Return the error for a topic, with the text of Spark's own source. neighbour: the name of a similar topic."""
        hint = f"; did you mean {neighbour!r}?" if neighbour is not None else ""
        return cls(f"This server does not host this topic-partition: topic {topic!r} does not exist{hint}")


class AccessError(KeyedwmError):
    """The cluster denies an operation, or does not accept the credentials."""

    advice = "grant the rights, or fix the kafka.sasl.* and kafka.ssl.* options"


class UnsupportedRequestError(OptionError):
    """The brokers do not offer a request, or none of the versions that this client can use."""

    advice = "use newer brokers, or do without: keyedwm doctor lists what works with these"


class GroupAccessError(AccessError):
    """The rights on a consumer group are missing; reading is still possible."""


class CorruptRecordError(InputError):
    """A record batch that is damaged or of an unknown format; `next_offset` is the first offset after it, if known."""

    advice = "restore the partition from a replica, or skip the batch"

    topic: str = ""
    partition: int = -1
    offset: int = -1
    next_offset: int | None = None

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, damage: str, next_offset: int | None = None) -> CorruptRecordError:
        """Return the error for the batch that starts at `offset`."""
        error = cls(f"the record batch at offset {offset} of {tp} {damage}")
        error.topic, error.partition = tp
        error.offset, error.next_offset = offset, next_offset
        return error


class OffsetOutOfRangeError(DataLossError):
    """A requested offset is outside of the present log, `earliest` to `latest` (exclusive)."""

    topic: str = ""
    partition: int = -1
    offset: int = -1
    earliest: int = -1
    latest: int = -1

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, earliest: int, latest: int) -> OffsetOutOfRangeError:
        """Return the error for one requested offset."""
        error = cls(f"offset {offset} of {tp} is out of range: the log holds {offsets_text(earliest, latest)}")
        error.topic, error.partition = tp
        error.offset, error.earliest, error.latest = offset, earliest, latest
        return error


class TopicRecreatedError(DataLossError):
    """The topic under a name is another one than before: its topic id has changed."""

    topic: str = ""

    @classmethod
    def of(cls, topic: str, expected: object, current: object) -> TopicRecreatedError:
        """Return the error for the expected topic id and the id in the brokers' answer."""
        error = cls(f"topic {topic!r} was deleted and recreated: its topic id was {expected} and is {current} now")
        error.topic = topic
        return error


class LogTruncatedError(DataLossError):
    """A partition's log lost records that were already read, as after an unclean leader election."""

    topic: str = ""
    partition: int = -1
    offset: int = -1

    @classmethod
    def of(cls, tp: TopicPartition, offset: int, epoch: int, end_offset: int) -> LogTruncatedError:
        """Return the error for a reader's position, the leader epoch of its last record, and the log's divergence."""
        error = cls(
            f"the log of {tp} was truncated to the end offset {end_offset}, but the next offset to read is {offset}, "
            f"in leader epoch {epoch}: an unclean leader election lost records"
        )
        error.topic, error.partition = tp
        error.offset = offset
        return error


class RecordTooLargeError(InputError):
    """An intact record that does not fit in the memory for one record; it must not be skipped as damaged."""

    advice = "raise kafka.fetch.max.bytes"


class LoginError(wire_errors.SaslAuthenticationFailedError):
    """The login failed for a reason that is named; it is final, as a rejected login is."""


class MechanismError(wire_errors.UnsupportedSaslMechanismError):
    """The broker does not offer the mechanism. mechanisms: those that the broker offers and this client knows."""

    def __init__(self, mechanisms: Sequence[str]) -> None:
        super().__init__("the broker does not offer this mechanism")
        self.mechanisms = mechanisms


class CertificateError(wire_errors.KafkaConnectionError):
    """The certificate of one broker failed the check, and a retry changes nothing; `address` is its host:port."""

    def __init__(self, address: str, cause: ssl.SSLCertVerificationError) -> None:
        super().__init__(f"{address}: {cause}")
        self.address = address
        self.code, self.verify_message = cause.verify_code, cause.verify_message


def certificate_sentence(error: CertificateError, security: Security) -> str:
    """Return a sentence with the certificate's fault and the option that cures it."""
    if error.code in {_OTHER_NAME, _OTHER_ADDRESS}:
        return (
            f"the certificate of {error.address} is for another host name: set kafka.bootstrap.servers, and the "
            "brokers' advertised.listeners, to names that it holds "
            "(an empty kafka.ssl.endpoint.identification.algorithm leaves names unchecked)"
        )
    if error.code in {_NOT_YET_VALID, _EXPIRED}:
        return (
            f"the certificate of {error.address}, or one that it is signed by, is not valid now "
            f"({error.verify_message}): renew it, or set this machine's clock"
        )
    return (
        f"the certificate of {error.address} is not trusted by {_trusting(security)}: {error.verify_message}; "
        f"set {_TRUST} to a file with the certificate of the authority that signed it"
    )


def _trusting(security: Security) -> str:
    if security.tls.trust is not None:
        return f"{security.tls.trust.path} ({_TRUST})"
    if security.tls.trusted_pem is not None:
        return "kafka.ssl.truststore.certificates"
    return f"the system's certificates, as {_TRUST} is not set"
