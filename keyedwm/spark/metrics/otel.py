"""The figures as instruments of OpenTelemetry: observable gauges and counters of one meter.

Rule: the program sets up OpenTelemetry with its readers and exporters; this module adds a meter. A provider never
forgets an instrument, and ignores the callbacks of a second one. So each provider has one set of instruments.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Observation, get_meter_provider

from keyedwm import __version__
from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import argument_text
from keyedwm.spark.metrics.catalogue import METRICS, Kind, Metric
from keyedwm.spark.metrics.figures import Figures, Sample

_READING_S = 0.2
_API = "opentelemetry.metrics"  # providers of the API alone collect nothing


class _Instruments:
    """The instruments of a provider. figures: those of all exporters to the provider."""

    def __init__(self, provider: Any) -> None:
        self.figures: list[Figures] = []
        self._by_metric: Mapping[Metric, Sequence[Sample]] = {}
        self._until_s = 0.0
        meter = provider.get_meter("keyedwm", __version__)
        for metric in METRICS:
            is_counter = metric.kind is Kind.COUNTER
            create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
            create(
                metric.opentelemetry, callbacks=[partial(self._observe, metric)], unit=metric.unit.value,
                description=metric.help,
            )  # fmt: skip

    def _observe(self, metric: Metric, _options: CallbackOptions) -> Iterable[Observation]:
        for sample in self._samples().get(metric, ()):
            yield Observation(sample.value, dict(zip(metric.labels, sample.labels, strict=True)))

    def _samples(self) -> Mapping[Metric, Sequence[Sample]]:
        """Return the samples by metric. One reading calls this for each metric, so samples are kept for _READING_S."""
        now_s = time.monotonic()
        if now_s >= self._until_s:
            by_metric = defaultdict(list)
            for figures in self.figures:
                for sample in figures.samples():
                    by_metric[sample.metric].append(sample)
            self._by_metric, self._until_s = by_metric, now_s + _READING_S
        return self._by_metric

    def forget_samples(self) -> None:
        """Compute the samples again at the next reading."""
        self._until_s = 0.0


class OtelExporter:
    """Exports the figures to the readers of a MeterProvider."""

    place = "opentelemetry"

    def __init__(self, figures: Figures, provider: Any) -> None:
        if provider not in _instruments:
            _instruments[provider] = _Instruments(provider)
        self._figures = figures
        self._to = _instruments[provider]
        self._to.figures.append(figures)
        self._to.forget_samples()

    def changed(self) -> None:
        """Make the next reading compute the samples again."""
        self._to.forget_samples()

    def close(self) -> None:
        """Remove the figures from the provider's instruments."""
        self._to.figures.remove(self._figures)
        self._to.forget_samples()


_instruments: WeakKeyDictionary[Any, _Instruments] = WeakKeyDictionary()


def provider_of(meter_provider: Any) -> Any:
    """Return the given provider, or else the global one. Raises OptionError if there is none."""
    if meter_provider is not None:
        if not hasattr(meter_provider, "get_meter"):
            raise OptionError(
                f"metrics: meter_provider={argument_text(meter_provider)}: a MeterProvider of OpenTelemetry is expected"
            )
        return meter_provider
    provider = get_meter_provider()
    if type(provider).__module__.startswith(_API):
        raise OptionError(
            "metrics: no MeterProvider of OpenTelemetry is set: pass meter_provider=, or call "
            "opentelemetry.metrics.set_meter_provider before"
        )
    return provider
