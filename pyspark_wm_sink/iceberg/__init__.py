"""The Iceberg target: stage Parquet files, publish them with one snapshot of the table."""

from __future__ import annotations

from keyedwm.core.errors import OptionError

try:
    import pyiceberg as pyiceberg
except ModuleNotFoundError as missing:
    raise OptionError(
        f"option table: an Iceberg table is written with PyIceberg, which is not installed here ({missing}): "
        f"pip install 'keyedwm[iceberg]', on the driver and on the executors"
    ) from missing
