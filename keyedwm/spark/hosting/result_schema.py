"""The declared result columns of a user's function: `process`, `async_map`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from keyedwm.core.errors import OptionError


def declared(schema: object, taken: Sequence[str], caller: str) -> pa.Schema:
    """Return an Arrow schema, or Spark's text of one, as an Arrow schema; taken: columns that it cannot have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    found = schema
    if isinstance(schema, str):
        try:
            parsed = StructType.fromDDL(schema)
            found = to_arrow_schema(parsed if isinstance(parsed, StructType) else StructType(), timezone="UTC")
        except PySparkException as error:
            raise OptionError(f"{caller}: schema={schema!r} is no schema of Spark: {error.getCondition()}") from error
    if not isinstance(found, pa.Schema) or not found.names:
        raise OptionError(f"{caller}: schema={schema!r}: an Arrow schema, or a text such as 'id string', is expected")
    lower = [name.lower() for name in found.names]
    for name in found.names:
        if name.lower() in taken or lower.count(name.lower()) > 1:
            raise OptionError(
                f"{caller}: a result column cannot be called {name!r}: {', '.join(taken)} are there already, and no "
                f"name may come twice"
            )
    return found
