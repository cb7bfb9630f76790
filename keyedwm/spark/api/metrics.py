"""`metrics`: the figures of a session's queries, exported to Prometheus or OpenTelemetry.

Rule: an exporter that fails never ends a query. Sessions of one process that export to the same place share it. A call
for a session that exports there already replaces the call before, for example when a cell of a notebook runs again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyedwm.config.secrets import refuse_login_in
from keyedwm.config.validation import is_host_name, number
from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest
from keyedwm.spark.arguments import argument_text, require_session
from keyedwm.spark.failures.checkpoint_errors import Failures
from keyedwm.spark.metrics.exporter import Exporter, ExporterName, MetricsListener, require_library
from keyedwm.spark.metrics.figures import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTENS_AT = "0.0.0.0:9464"
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>[0-9]{1,5})")
_MOST_PORT = 65_535
# Which arguments an exporter takes beside the session.
_TAKES = {
    ExporterName.PROMETHEUS: ("address",),
    ExporterName.PUSH_GATEWAY: ("address",),
    ExporterName.TEXT_FILE: ("path",),
    ExporterName.OPENTELEMETRY: ("meter_provider",),
}


class Metrics:
    """The export of a session's queries. place: the address that is listened at or pushed to, or the file's path."""

    def __init__(self, spark: SparkSession, export: _Export) -> None:
        self.place = export.exporter.place
        self._spark = spark
        self._export = export
        self._listener = MetricsListener(export.figures, export.exporter, Failures(spark))
        spark.streams.addListener(self._listener)
        self._listener.add_running(spark.streams.active)
        export.users.append(self)

    def stop(self) -> None:
        """Remove the listener, and end the export if no other session uses it; the last figures stay at the place."""
        if self in self._export.users:
            self._export.users.remove(self)
            if not self.has_ended:
                self._spark.streams.removeListener(self._listener)
            self._export.close_without_users()

    def is_of(self, spark: SparkSession) -> bool:
        """Whether it exports the queries of this session."""
        return self._spark is spark

    @property
    def has_ended(self) -> bool:
        """Whether its session was stopped, and its listener with it; False if the session is of Spark Connect."""
        context = getattr(self._spark, "_sc", None)
        return context is not None and getattr(context, "_jsc", None) is None


_Where = tuple[ExporterName, Any]


@dataclass(frozen=True, slots=True)
class _Export:
    """The exporter that sessions of this process share when they export to one place."""

    where: _Where
    figures: Figures
    exporter: Exporter
    users: list[Metrics] = field(default_factory=list)

    def close_without_users(self) -> None:
        """Release the place unless a running session uses it: a session may end without `Metrics.stop`."""
        self.users[:] = [one for one in self.users if not one.has_ended]
        if not self.users and _exports.pop(self.where, None) is not None:
            self.exporter.close()


_exports: dict[_Where, _Export] = {}


def metrics(
    spark: SparkSession,
    exporter: str = "prometheus",
    *,
    address: str | None = None,
    path: str | None = None,
    meter_provider: Any = None,
    partitions: int = 20,
) -> Metrics:
    """Export the figures of all queries of the session; docs/reference/metrics.md lists them.

    exporter: `prometheus` listens for a Prometheus server at `address` (host:port, all interfaces at 9464 by default,
    port 0 for any); `pushgateway` sends to the push gateway at `address`; `textfile` writes `path`, a file *.prom that
    a node exporter reads; `opentelemetry` gives a meter to `meter_provider` or else to the global one. partitions: how
    many of the slowest partitions of each source have series of their own, 0 for none. Raises OptionError.
    """
    require_session(spark, "metrics")
    name = _exporter_name(exporter)
    targets = {"address": address, "path": path, "meter_provider": meter_provider}
    for argument, value in targets.items():
        if value is not None and argument not in _TAKES[name]:
            raise OptionError(f"metrics: exporter={name.value!r} takes no {argument}: leave it out")
    partition_count = number("metrics: partitions", partitions)
    if partition_count < 0:
        raise OptionError(f"metrics: partitions is {partition_count}: a whole number of at least 0 is expected")
    require_library(name)
    for export in list(_exports.values()):
        export.close_without_users()
    where = name, _target(name, targets)
    if where not in _exports:
        figures = Figures(time.time, partition_count)
        _exports[where] = _Export(where, figures, _exporter(figures, spark, where))
    export = _exports[where]
    export.figures.partitions = partition_count
    before = [one for one in export.users if one.is_of(spark)]
    running = Metrics(spark, export)
    for one in before:
        one.stop()
    return running


def _exporter_name(value: object) -> ExporterName:
    known = [one.value for one in ExporterName]
    if value not in known:
        close = nearest(value, known) if isinstance(value, str) else None
        hint = f"; did you mean {close}?" if close else ""
        raise OptionError(f"metrics: exporter={argument_text(value)}: one of {', '.join(known)} is expected{hint}")
    return ExporterName(value)


def _target(name: ExporterName, targets: Mapping[str, Any]) -> Any:
    """Return the host and port, the path or the provider; equal for all spellings of it. Raises OptionError."""
    if name is ExporterName.OPENTELEMETRY:
        from keyedwm.spark.metrics.otel import provider_of

        return provider_of(targets["meter_provider"])
    if name is ExporterName.TEXT_FILE:
        return str(Path(_text(targets, "path", "a file *.prom that a node exporter reads")).absolute())
    if name is ExporterName.PUSH_GATEWAY:
        return _host_and_port(_text(targets, "address", "host:port of a push gateway"))
    return _host_and_port(_LISTENS_AT if targets["address"] is None else targets["address"])


def _exporter(figures: Figures, spark: SparkSession, where: _Where) -> Exporter:
    name, target = where
    if name is ExporterName.OPENTELEMETRY:
        from keyedwm.spark.metrics.otel import OtelExporter

        return OtelExporter(figures, target)
    from keyedwm.spark.metrics.prometheus import HttpExporter, file_exporter, push_exporter

    if name is ExporterName.TEXT_FILE:
        return file_exporter(figures, target)
    host, port = target
    if name is ExporterName.PUSH_GATEWAY:
        return push_exporter(figures, f"{host}:{port}", spark.conf.get("spark.app.name") or "keyedwm")
    return HttpExporter(figures, host, port)


def _text(targets: Mapping[str, Any], argument: str, right: str) -> str:
    value = targets[argument]
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"metrics: {argument}={argument_text(value)}: {right} is expected")
    return value


def _host_and_port(address: object) -> tuple[str, int]:
    """Split host:port; raises OptionError."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or int(match["port"]) > _MOST_PORT or not is_host_name(match["host"]):
        if isinstance(address, str):
            refuse_login_in("metrics: address", address)
        raise OptionError(f"metrics: address={argument_text(address)}: host:port is expected, such as {_LISTENS_AT}")
    return match["host"], int(match["port"])
