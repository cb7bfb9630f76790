"""The options of the Kafka target.

Rule: a `kafka.*` property that the sink sets itself is an error, with the name of the option to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keyedwm.config.secrets import refuse_login_in, secret_of
from keyedwm.config.validation import boolean, duration_ms, wrong
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import check_topics
from pyspark_wm_sink.options.record_format import RECORD_NAMES, RecordFormats, record_formats
from pyspark_wm_sink.places.ledger_files import SCHEMES, is_address
from pyspark_wm_sink.places.paths import file_in_the_way, local_directory

EXACTLY_ONCE_NAMES = ("ledger", "sharedTopic", "transactionalIdPrefix", "transactionTimeout")
KAFKA_NAMES = ("topic", "controlSecret", *EXACTLY_ONCE_NAMES, *RECORD_NAMES)
_PREFIX = "kafka."
_DEFAULT_TIMEOUT = "15 minutes"
_MAX_TIMEOUT_MS = 2**31 - 1
_MANAGED = {
    "kafka.transactional.id": "set transactionalIdPrefix instead",
    "kafka.transaction.timeout.ms": "set transactionTimeout instead",
    "kafka.key.serializer": "keys are written as the bytes of the key column; cast it to string or binary, or set "
    "key.format",
    "kafka.value.serializer": "values are written as the bytes of the value column; cast it to string or binary, or "
    "set value.format",
    "kafka.partitioner.class": "keys go to partitions as Java's default partitioner does it; to decide otherwise "
    "give the rows a partition column",
    "kafka.partitioner.ignore.keys": "keys decide the partition; to decide otherwise give the rows a partition column",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaTarget:
    """The topic and how to write to it.

    topic: None if each row names it. ledger: a local path, an address, or None if neither given nor derivable from the
    checkpoint location. secret: the secret that signs control records, None if they are not signed. checkpoint: the
    checkpoint location if the ledger's local path is derived from it. errors_to: the topic of rejected messages.
    is_shared: other queries write rows of the same input to the topic. formats: the formats of records with a schema,
    None for the bytes of the columns.
    """

    client: ClientConfig = field(repr=False)
    topic: str | None
    ledger: Path | str | None
    id_prefix: str | None
    timeout_ms: int
    secret: bytes | None = field(default=None, repr=False)
    checkpoint: Path | None = None
    errors_to: str | None = None
    is_shared: bool = False
    formats: RecordFormats | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> KafkaTarget:
        """Check the options of this target."""
        settings = {name.lower(): value for name, value in options.items()}
        for name, fix in _MANAGED.items():
            if name in settings:
                raise OptionError(f"option {name} cannot be set: {fix}")
        if settings.get("kafka.acks", "all").strip().lower() not in {"all", "-1"}:
            raise wrong(
                "kafka.acks", settings["kafka.acks"], "set it to all: every in-sync replica must acknowledge a record"
            )
        if not boolean("kafka.enable.idempotence", settings.get("kafka.enable.idempotence", "true")):
            raise wrong(
                "kafka.enable.idempotence", "false", "set it to true, or a batch that is sent again is written twice"
            )
        topic, errors_to = (_topic(name, settings) for name in ("topic", "errorsTo"))
        if topic is not None and topic == errors_to:
            raise wrong("errorsTo", errors_to, "that is the topic of the results, another one is expected")
        prefix = settings.get("transactionalidprefix", "").strip()
        if "transactionalidprefix" in settings and not prefix:
            raise wrong("transactionalIdPrefix", settings["transactionalidprefix"], "a name is expected")
        return KafkaTarget(
            client=ClientConfig.from_options(
                {name[len(_PREFIX) :]: value for name, value in settings.items() if name.startswith(_PREFIX)}
            ),
            topic=topic,
            errors_to=errors_to,
            ledger=_ledger(settings),
            checkpoint=_local_checkpoint(settings),
            id_prefix=prefix or None,
            timeout_ms=_timeout_ms(settings.get("transactiontimeout", _DEFAULT_TIMEOUT)),
            is_shared=boolean("sharedTopic", settings.get("sharedtopic", "false")),
            secret=secret_of("controlSecret", settings["controlsecret"]) if "controlsecret" in settings else None,
            formats=record_formats(settings, topic),
        )


def _topic(name: str, settings: Mapping[str, str]) -> str | None:
    topic = settings.get(name.lower())
    if topic is not None and not topic.strip():
        raise wrong(name, topic, "the name of a topic is expected")
    if topic is None:
        return None
    check_topics(name, [topic.strip()])
    return topic.strip()


def is_kafka(name: str) -> bool:
    """Whether an option belongs to this target."""
    return name.lower().startswith(_PREFIX) or name.lower() in {known.lower() for known in KAFKA_NAMES}


def _timeout_ms(value: str) -> int:
    timeout_ms = duration_ms("transactionTimeout", value)
    if not 0 < timeout_ms <= _MAX_TIMEOUT_MS:
        raise wrong("transactionTimeout", value, f"more than 0 and at most {_MAX_TIMEOUT_MS} ms is expected")
    return timeout_ms


def _ledger(settings: Mapping[str, str]) -> Path | str | None:
    """Return where the ledger is: as given, or in the checkpoint if that is a local path or a supported address.

    None if it is neither.
    """
    if "ledger" in settings:
        refuse_login_in("option ledger", settings["ledger"].strip())
        place = _place(settings["ledger"].strip())
        if place is None:
            raise wrong(
                "ledger", settings["ledger"],
                f"a directory is expected that the driver can write durably, or an address of {', '.join(SCHEMES)}",
            )  # fmt: skip
        if isinstance(place, Path):
            _check_directory(settings["ledger"].strip(), place)
        return place
    refuse_login_in("option checkpointLocation", settings.get("checkpointlocation", "").strip())
    checkpoint = _place(settings.get("checkpointlocation", "").strip())
    if isinstance(checkpoint, str):
        return f"{checkpoint.rstrip('/')}/keyedwm"
    return None if checkpoint is None else checkpoint / "keyedwm"


def _check_directory(text: str, directory: Path) -> None:
    """Before tasks write, raise OptionError for a relative path or a path that is no directory.

    A relative path changes with the working directory.
    """
    if not text.startswith(("/", "file:")):
        raise wrong(
            "ledger", text,
            f"it would be {directory}, which a driver that starts in another working directory does not find: an "
            "absolute path is expected",
        )  # fmt: skip
    if "\0" in text:
        raise wrong("ledger", text, "a path has no NUL character")
    if (file := file_in_the_way(directory)) is not None:
        raise wrong("ledger", text, f"{file} is a file, a directory is expected")


def _local_checkpoint(settings: Mapping[str, str]) -> Path | None:
    text = settings.get("checkpointlocation", "").strip()
    return local_directory(text) if text and "ledger" not in settings else None


def _place(text: str) -> Path | str | None:
    """Return a local path or an address; None if it is neither."""
    if not text:
        return None
    return text if is_address(text) else local_directory(text)
