"""The sink's options, checked once when the writer is made (DESIGN section 11).

Rule: an option that exists here is honoured or refused; none is ignored in silence. `storage.*` goes to the table's
object store as it stands (`storage.aws_region`), and its values never appear in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from keyedwm.core.errors import OptionError
from keyedwm.core.options import choice, refuse_unknown
from keyedwm.core.watermark import Guarantee

STORAGE = "storage."
_SPARK = ("checkpointLocation", "queryName")
_OURS = ("path", "snapshot", "guarantee", "controlRows")
# The Kafka target's own names: known, so that they are not mistaken for typing errors, and refused by name.
_KAFKA_TARGET = ("topic", "ledger", "transactionalIdPrefix", "transactionTimeout")


class SnapshotMode(Enum):
    """What closes a snapshot."""

    BARRIER = "barrier"
    BATCH = "batch"


class ControlRows(Enum):
    """What becomes of control rows."""

    DROP = "drop"
    INLINE = "inline"


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """Everything that the user decided; `snapshot` None: by the input (DESIGN section 8)."""

    path: str
    snapshot: SnapshotMode | None
    guarantee: Guarantee
    control_rows: ControlRows
    storage: Mapping[str, str] = field(repr=False)

    @staticmethod
    def parse(options: Mapping[str, str]) -> SinkOptions:
        """Check every option; raises OptionError with one sentence about the first that is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        for name in sorted(options):
            if name.lower().startswith("kafka.") or name.lower() in {known.lower() for known in _KAFKA_TARGET}:
                raise OptionError(
                    f"option {name}: the Kafka target of the sink is not available in this version, "
                    f"the Delta target is: set path to the table's directory instead"
                )
        refuse_unknown(
            (name for name in options if not name.lower().startswith(STORAGE)), (*_OURS, *_SPARK), side="sink"
        )
        return SinkOptions(
            path=_location(given.get("path", "")),
            snapshot=choice("snapshot", given["snapshot"], SnapshotMode) if "snapshot" in given else None,
            guarantee=choice("guarantee", given.get("guarantee", Guarantee.EXACTLY_ONCE.value), Guarantee),
            control_rows=choice("controlRows", given.get("controlrows", ControlRows.DROP.value), ControlRows),
            storage={name[len(STORAGE) :]: value for name, value in given.items() if name.startswith(STORAGE)},
        )


def _location(path: str) -> str:
    """Return an address as it stands, and a local directory as an absolute path: workers may run elsewhere."""
    path = path.strip()
    if not path:
        raise OptionError("option path is missing: the directory or address of the Delta table is wanted")
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else str(Path(path).absolute())
