"""The exporters by name, and their common contract."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Protocol

from keyedwm.core.errors import OptionError


class Exporter(Protocol):
    """A system that figures go to."""

    @property
    def place(self) -> str:
        """Where the figures are: an address, a path, or a name."""

    def changed(self) -> None:
        """Take note that figures have changed; returns at once."""

    def close(self) -> None:
        """Export a last time, where figures are sent, and give back what is held."""


class ExporterName(Enum):
    """The exporters that users name."""

    PROMETHEUS = "prometheus"
    PUSH_GATEWAY = "pushgateway"
    TEXT_FILE = "textfile"
    OPENTELEMETRY = "opentelemetry"

    @property
    def extra(self) -> str:
        """The extra of this package that brings the library of the exporter."""
        return "otel" if self is ExporterName.OPENTELEMETRY else "prometheus"


def require_library(name: ExporterName) -> None:
    """Raise OptionError if the library of an exporter is not installed."""
    package, module = {
        "prometheus": ("prometheus-client", "prometheus_client"),
        "otel": ("opentelemetry-sdk", "opentelemetry.metrics"),
    }[name.extra]
    try:
        import_module(module)
    except ImportError as error:
        raise OptionError(
            f"metrics: exporter={name.value!r} needs {package}, which is not installed: "
            f"pip install 'keyedwm[{name.extra}]'"
        ) from error
