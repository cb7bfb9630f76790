"""The options of the Kafka target.

Rule: a `kafka.*` property that the sink decides itself is refused with the name of the option that decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keyedwm.core.errors import OptionError
from keyedwm.core.options import boolean, duration_ms, wrong
from keyedwm.kafka.config import ClientConfig
from pyspark_wm_sink.places import local_directory

EXACTLY_ONCE_NAMES = ("ledger", "transactionalIdPrefix", "transactionTimeout")
KAFKA_NAMES = ("topic", *EXACTLY_ONCE_NAMES)
_PREFIX = "kafka."
_DEFAULT_TIMEOUT = "15 minutes"
_LONGEST_TIMEOUT_MS = 2**31 - 1
_DECIDED = {
    "kafka.transactional.id": "set transactionalIdPrefix instead",
    "kafka.transaction.timeout.ms": "set transactionTimeout instead",
    "kafka.key.serializer": "keys are written as the bytes of the key column; cast it to string or binary",
    "kafka.value.serializer": "values are written as the bytes of the value column; cast it to string or binary",
    "kafka.partitioner.class": "keys go to partitions as Java's default partitioner does it; to decide otherwise "
    "give the rows a partition column",
    "kafka.partitioner.ignore.keys": "keys decide the partition; to decide otherwise give the rows a partition column",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaTarget:
    """Where to and how; `topic` None: the rows say. `ledger` None: neither given nor to be had from the checkpoint."""

    client: ClientConfig = field(repr=False)
    topic: str | None
    ledger: Path | None
    id_prefix: str | None
    timeout_ms: int

    @staticmethod
    def parse(options: Mapping[str, str]) -> KafkaTarget:
        """Check the options of this target."""
        given = {name.lower(): value for name, value in options.items()}
        for name, fix in _DECIDED.items():
            if name in given:
                raise OptionError(f"option {name} is not for you to set: {fix}")
        if given.get("kafka.acks", "all").strip().lower() not in {"all", "-1"}:
            raise wrong("kafka.acks", given["kafka.acks"], "records are acknowledged by all in-sync replicas: all")
        if not boolean("kafka.enable.idempotence", given.get("kafka.enable.idempotence", "true")):
            raise wrong(
                "kafka.enable.idempotence", "false", "a batch that is sent again must not be written twice: true"
            )
        topic = given.get("topic", "").strip()
        if "topic" in given and not topic:
            raise wrong("topic", given["topic"], "the name of a topic is wanted")
        prefix = given.get("transactionalidprefix", "").strip()
        if "transactionalidprefix" in given and not prefix:
            raise wrong("transactionalIdPrefix", given["transactionalidprefix"], "a name is wanted")
        return KafkaTarget(
            client=ClientConfig.from_options(
                {name[len(_PREFIX) :]: value for name, value in given.items() if name.startswith(_PREFIX)}
            ),
            topic=topic or None,
            ledger=_ledger(given),
            id_prefix=prefix or None,
            timeout_ms=_timeout_ms(given.get("transactiontimeout", _DEFAULT_TIMEOUT)),
        )


def is_kafka(name: str) -> bool:
    """Whether an option belongs to this target."""
    return name.lower().startswith(_PREFIX) or name.lower() in {known.lower() for known in KAFKA_NAMES}


def _timeout_ms(value: str) -> int:
    timeout_ms = duration_ms("transactionTimeout", value)
    if not 0 < timeout_ms <= _LONGEST_TIMEOUT_MS:
        raise wrong("transactionTimeout", value, f"more than 0 and at most {_LONGEST_TIMEOUT_MS} ms is wanted")
    return timeout_ms


def _ledger(given: Mapping[str, str]) -> Path | None:
    """Return the ledger's directory: as given, or under the checkpoint where that is a directory of this machine."""
    if "ledger" in given:
        place = given["ledger"].strip()
        directory = local_directory(place) if place else None
        if directory is None:
            raise wrong("ledger", given["ledger"], "a directory is wanted that the driver can write durably")
        return directory
    checkpoint = given.get("checkpointlocation", "").strip()
    directory = local_directory(checkpoint) if checkpoint else None
    return None if directory is None else directory / "keyedwm"
