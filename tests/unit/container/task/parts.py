"""What the tests of time share: a target of watermarks, and the context of an operator without a task."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class Target:
    """A WatermarkTarget that keeps the rules of a chain: never back, active with the next watermark."""

    def __init__(self) -> None:
        #: Rows, put there by the test, and watermarks in their order.
        self.seen: list[Any] = []
        self.watermarks: list[int] = []
        self.idle = False

    @property
    def watermark(self) -> int:
        return self.watermarks[-1] if self.watermarks else MIN_TIMESTAMP

    def emit_watermark(self, watermark: int) -> None:
        if watermark > self.watermark:
            self.idle = False
            self.watermarks.append(watermark)
            self.seen.append(watermark)

    def set_idle(self, idle: bool) -> None:
        self.idle = idle


def operator_context(clock: ManualClock, options: Mapping[str, str]) -> Any:
    """Clock, settings and metrics, which is what SourceTime asks for."""
    metrics = MetricRegistry(clock)
    environment = SimpleNamespace(clock=clock, settings=Settings(dict(options)), metrics=metrics)
    return SimpleNamespace(environment=environment, metric_group=OperatorMetricGroup(metrics, ("numbers",)))
