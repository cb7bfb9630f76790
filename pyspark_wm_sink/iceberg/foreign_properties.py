"""Properties of a catalog's server and of a table, by which PyIceberg would run code.

Rule: PyIceberg imports and calls whatever these properties name. Only options may name code: the owner of a catalog or
of a table decides where rows are, and not what the driver and the executors run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.core.errors import OptionError

_NAMES_OF_CODE = ("auth", "py-io-impl", "write.py-location-provider.impl")


def reject_code(owner: str, properties: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise OptionError for a property that names code and has another value than the option of its name.

    owner: who set the properties, for the error. options: PyIceberg's properties from the options of the write.
    """
    for name in _NAMES_OF_CODE:
        if properties.get(name) != options.get(name) and properties.get(name) is not None:
            raise OptionError(
                f"{owner} has the property {name}, which names Python code to run: remove the property, or set option "
                f"catalog.{name} to the same value if you trust that code"
            )
