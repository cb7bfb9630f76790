"""Messages as they are given, checked before any of them is taken."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.windows.columns import Ints
from keyedwm.windows.plan import FARTHEST_MS


def checked(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the columns of a schema; raise InputError if one is missing."""
    for name in schema.names:
        if name not in rows.schema.names:
            raise InputError(f"the messages have no column {name!r}, they have {', '.join(rows.schema.names)}")
    return rows.select(schema.names).cast(schema)


def check_times(name: str, at: Ints) -> None:
    """Raise InputError if event times are beyond what results can hold."""
    if len(at) and max(-int(at.min()), int(at.max())) > FARTHEST_MS:
        raise InputError(
            f"an event time in {name!r} lies between {at.min()} and {at.max()} ms, farther from 1970 than "
            f"{FARTHEST_MS} ms; is its unit right?"
        )
