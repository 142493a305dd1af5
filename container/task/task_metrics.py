"""The built-in metrics of a task, under Flink's names.

Owner: registered by the task thread, read by the reporting thread. Rates are taken between two readings, which the
worker makes once a second.
"""

from __future__ import annotations

from collections.abc import Callable

from yarrow.container.task.metric_registry import MetricRegistry
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.time_accounting import Phase
from yarrow.runtime.common.clock import perf_counter


class RateBetweenReadings:
    """Growth per second of a count since it was read before."""

    def __init__(self, total: Callable[[], float]) -> None:
        self._total = total
        self._last = (perf_counter(), 0.0)
        self._rate = 0.0

    def __call__(self) -> float:
        now, value = perf_counter(), self._total()
        then, former = self._last
        if now - then >= 0.5:
            self._rate = max(0.0, (value - former) / (now - then))
            self._last = (now, value)
        return self._rate


def register_task_metrics(registry: MetricRegistry, task: StreamTask) -> None:
    """Registers counts, rates, times and queue lengths of a task."""

    def counted(name: str, total: Callable[[], float]) -> None:
        registry.register(name, total)
        registry.register(f"{name}PerSecond", RateBetweenReadings(total))

    counted("numRecordsIn", lambda: task.records_in)
    counted("numRecordsOut", lambda: task.chain.counts.records_out)
    counted("numBytesIn", lambda: sum(c.channel.received_bytes for c in task.gate.channels))
    counted("numBytesOut", lambda: sum(p.bytes_out for p in task.partitions))
    counted("numBuffersOut", lambda: sum(p.batches_out for p in task.partitions))
    for index, (total, rate) in enumerate(
        (
            ("accumulateBusyTimeMs", "busyTimeMsPerSecond"),
            ("accumulateIdleTimeMs", "idleTimeMsPerSecond"),
            ("accumulateBackPressuredTimeMs", "backPressuredTimeMsPerSecond"),
        )
    ):
        registry.register(total, lambda i=index: task.time.totals_ms(perf_counter())[i])  # type: ignore[misc]
        registry.register(rate, lambda i=index: task.time.per_second(perf_counter())[i])  # type: ignore[misc]
    registry.register("isBackPressured", lambda: float(task.time.phase is Phase.BACK_PRESSURED))
    registry.register("currentInputWatermark", lambda: min(v.watermark for v in task.gate.valves))
    barriers = task.gate.barriers
    registry.register("checkpointAlignmentTime", lambda: barriers.alignment_seconds * 1e9)
    registry.register("checkpointStartDelayNanos", lambda: barriers.start_delay_seconds * 1e9)
    registry.register("mailboxQueueSize", lambda: task.mails_waiting)
    registry.register("mailboxLatencyMs", lambda: task.mail_delays.average_ms)
    registry.register("mailboxLatencyMs_max", lambda: task.mail_delays.longest_seconds * 1000)
    registry.register("Shuffle.Netty.Input.Buffers.inputQueueLength", lambda: task.gate.queued)
    registry.register(
        "Shuffle.Netty.Output.Buffers.outputQueueLength", lambda: sum(p.queued for p in task.partitions)
    )
