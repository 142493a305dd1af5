"""The built-in metrics of a task, under Flink's names.

Owner: the task thread registers them, the reporting thread reads them. Rates are taken between two readings;
the worker makes one a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.metrics.histogram import WindowedHistogram
from yarrow.container.metrics.metric_registry import MetricRegistry, metric_scope
from yarrow.container.metrics.time_accounting import Phase, TimeAccounting
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.container.network.partition import Partition
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.metrics.rate import RateBetweenReadings

#: The phases that each time metric adds up, by the part of its name.
_PHASES = {
    "Busy": (Phase.BUSY,),
    "Idle": (Phase.IDLE,),
    "BackPressured": (Phase.BACK_PRESSURED, Phase.HARD_BACK_PRESSURED),
    "SoftBackPressured": (Phase.BACK_PRESSURED,),
    "HardBackPressured": (Phase.HARD_BACK_PRESSURED,),
}
#: Flink only accumulates these.
_ACCUMULATED = ("Busy", "Idle", "BackPressured")


class MeasuredTask(Protocol):
    """A task whose metrics are read, such as a StreamTask."""

    time: TimeAccounting
    #: Times at which the restore of operators began and at which they ran (perf_counter); None before.
    initializing_since: float | None
    running_since: float | None

    @property
    def chain(self) -> OperatorChain: ...

    @property
    def gate(self) -> InputGate: ...

    @property
    def partitions(self) -> Sequence[Partition]: ...

    @property
    def records_in(self) -> int: ...

    @property
    def mails_waiting(self) -> int: ...

    @property
    def mail_delays(self) -> WindowedHistogram: ...


def register_task_metrics(registry: MetricRegistry, task: MeasuredTask) -> None:
    """Registers counts, rates, times and queue lengths of a task."""
    registry.counted("numRecordsIn", lambda: task.records_in)
    registry.counted("numRecordsOut", lambda: task.chain.counts.records_out)
    registry.counted("numFiredTimers", lambda: sum(each.fired_timers for each in task.chain.operators))
    registry.register("currentInputWatermark", lambda: min(v.watermark for v in task.gate.valves))
    if len(task.gate.valves) > 1:
        scope = metric_scope(task.chain.head.name)
        for number, valve in enumerate(task.gate.valves, start=1):
            registry.register(f"{scope}.currentInput{number}Watermark", lambda v=valve: v.watermark)  # type: ignore[misc]
    registry.register("initializationTime", lambda: initialization_ms(task))
    _register_times(registry, task)
    _register_network(registry, task)
    barriers = task.gate.barriers
    registry.register("checkpointAlignmentTime", lambda: barriers.alignment_seconds * 1e9)
    registry.register("checkpointStartDelayNanos", lambda: barriers.start_delay_seconds * 1e9)
    registry.register("mailboxQueueSize", lambda: task.mails_waiting)
    registry.register("mailboxMailsPerSecond", RateBetweenReadings(lambda: task.mail_delays.count))
    registry.register_histogram("mailboxLatencyMs", task.mail_delays)


def initialization_ms(task: MeasuredTask) -> float:
    """Milliseconds for which the task has been, or was, INITIALIZING; 0 before."""
    if task.initializing_since is None:
        return 0.0
    until = perf_counter() if task.running_since is None else task.running_since
    return 1000 * (until - task.initializing_since)


def _register_times(registry: MetricRegistry, task: MeasuredTask) -> None:
    def total(phases: Iterable[Phase]) -> float:
        totals = task.time.totals_ms(perf_counter())
        return sum(totals[phase] for phase in phases)

    def rate(phases: Iterable[Phase]) -> float:
        rates = task.time.per_second(perf_counter())
        return sum(rates[phase] for phase in phases)

    for name, phases in _PHASES.items():
        shown = name[0].lower() + name[1:]
        registry.register(f"{shown}TimeMsPerSecond", lambda p=phases: rate(p))  # type: ignore[misc]
        if name in _ACCUMULATED:
            registry.register(f"accumulate{name}TimeMs", lambda p=phases: total(p))  # type: ignore[misc]
    registry.register("isBackPressured", lambda: float(task.time.phase.is_back_pressured))


def _register_network(registry: MetricRegistry, task: MeasuredTask) -> None:
    gate, partitions = task.gate, task.partitions
    local = [entry for entry in gate.channels if entry.is_local]
    remote = [entry for entry in gate.channels if not entry.is_local]
    registry.counted("numBytesIn", lambda: _bytes(gate.channels))
    registry.counted("numBytesOut", lambda: sum(p.bytes_out for p in partitions))
    registry.counted("numBuffersOut", lambda: sum(p.batches_out for p in partitions))
    for scope in ("", "Shuffle.Netty.Input."):
        registry.counted(f"{scope}numBytesInLocal", lambda: _bytes(local))
        registry.counted(f"{scope}numBytesInRemote", lambda: _bytes(remote))
        registry.counted(f"{scope}numBuffersInLocal", lambda: _buffers(local))
        registry.counted(f"{scope}numBuffersInRemote", lambda: _buffers(remote))

    def out_pool_usage() -> float:
        usages = [usage for partition in partitions for usage in partition.usages]
        return sum(usages) / len(usages) if usages else 0.0

    buffers: dict[str, Callable[[], float]] = {
        "Input.Buffers.inputQueueLength": lambda: gate.queued,
        "Input.Buffers.inPoolUsage": lambda: gate.usage,
        "Output.Buffers.outputQueueLength": lambda: sum(p.queued for p in partitions),
        "Output.Buffers.outPoolUsage": out_pool_usage,
    }
    for name, reader in buffers.items():
        registry.register(f"Shuffle.Netty.{name}", reader)
        # The name that Flink used before 1.9 and still reports.
        registry.register(f"buffers.{name.rpartition('.')[2]}", reader)


def _bytes(entries: Iterable[GateChannel]) -> int:
    return sum(entry.channel.received_bytes for entry in entries)


def _buffers(entries: Iterable[GateChannel]) -> int:
    return sum(entry.channel.received_buffers for entry in entries)
