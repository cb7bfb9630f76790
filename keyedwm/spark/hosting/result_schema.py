"""The declared result columns of a user's function: `process`, `async_map`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import analysed


def declared(schema: object, reserved: Sequence[str], caller: str) -> pa.Schema:
    """Return an Arrow schema, or Spark's text of one, as an Arrow schema. reserved: names that it cannot have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    result = schema
    if isinstance(schema, str):
        try:
            parsed = analysed(lambda: StructType.fromDDL(schema), caller)
            result = to_arrow_schema(parsed if isinstance(parsed, StructType) else StructType(), timezone="UTC")
        except PySparkException as error:
            raise OptionError(f"{caller}: schema={schema!r} is no schema of Spark: {error.getCondition()}") from error
    if not isinstance(result, pa.Schema) or not result.names:
        raise OptionError(f"{caller}: schema={schema!r}: an Arrow schema, or a text such as 'id string', is expected")
    lower = [name.lower() for name in result.names]
    for name in result.names:
        if name.lower() in reserved or lower.count(name.lower()) > 1:
            raise OptionError(
                f"{caller}: a result column cannot be called {name!r}: {', '.join(reserved)} are there already, and no "
                f"name may come twice"
            )
    return result
