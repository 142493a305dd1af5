"""WorkerMetrics: metrics of a worker's process, sent once a second for the sums of its TaskExecutor.

Owner: the worker's report thread; it reads counters of other threads and changes none. The supervisor
measures CPU, heap and descriptors from outside. Nothing is imported for the sake of a metric.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable

from yarrow.container.network.input_gate import InputGate
from yarrow.container.task.garbage_collection import GarbageCollection
from yarrow.runtime.metrics.rate import RateBetweenReadings

_COLLECTOR = "Status.JVM.GarbageCollector.All"
_SHUFFLE = "Status.Shuffle.Netty"
_ROCKSDB_MEMORY = "yarrow.container.state.rocksdb.memory"


class WorkerMetrics:
    """The process metrics of one worker. `garbage` None: a shared process with Python's own collection."""

    def __init__(self, garbage: GarbageCollection | None, gates: Callable[[], Iterable[InputGate]]) -> None:
        self._garbage = garbage
        self._gates = gates
        self._garbage_rate = RateBetweenReadings(
            lambda: 0.0 if garbage is None else 1000 * garbage.total_seconds
        )

    def values(self) -> dict[str, float]:
        """Present values: bytes, counts, milliseconds."""
        values = {"Status.JVM.Threads.Count": float(threading.active_count())}
        return values | self._garbage_values() | _arrow() | _managed() | shuffle_memory(self._gates())

    def _garbage_values(self) -> dict[str, float]:
        garbage = self._garbage
        if garbage is None:
            return {}
        return {
            f"{_COLLECTOR}.Count": float(garbage.count),
            f"{_COLLECTOR}.Time": garbage.total_seconds * 1000,
            f"{_COLLECTOR}.TimeMsPerSecond": self._garbage_rate(),
            "gcLongestPauseMs": garbage.longest_seconds * 1000,
        }


def _arrow() -> dict[str, float]:
    """Metrics of Arrow's buffers: they lie outside of Python's heap, as direct buffers do outside of a JVM's."""
    # While another thread imports it, the module is there and has no such function yet.
    total = getattr(sys.modules.get("pyarrow"), "total_allocated_bytes", None)
    if total is None:
        return {}
    allocated = float(total())
    return {
        "arrowPoolBytes": allocated,
        "Status.JVM.Memory.Direct.MemoryUsed": allocated,
        "Status.JVM.Memory.Direct.TotalCapacity": allocated,
    }


def _managed() -> dict[str, float]:
    """Metrics of the memory that this process's databases share; nothing is reserved before the first is opened."""
    memory = sys.modules.get(_ROCKSDB_MEMORY)
    # As with Arrow, another thread may be importing it.
    shared = getattr(getattr(memory, "WORKER_MEMORY", None), "shared", None)
    if shared is None:
        return {}
    return {
        "Status.Flink.Memory.Managed.Used": float(shared.used),
        "Status.Flink.Memory.Managed.Total": float(shared.limit),
    }


def shuffle_memory(gates: Iterable[InputGate]) -> dict[str, float]:
    """How much producers may send ahead to these gates, and how much of it waits; a batch is a segment."""
    channels = [entry.channel for gate in gates for entry in gate.channels]
    size, batches = sum(c.window_bytes for c in channels), sum(c.window_batches for c in channels)
    # One batch may exceed its window.
    used_size = min(size, sum(c.waiting_bytes for c in channels))
    used_batches = min(batches, sum(c.waiting_batches for c in channels))
    return {
        f"{_SHUFFLE}.TotalMemory": float(size),
        f"{_SHUFFLE}.UsedMemory": float(used_size),
        f"{_SHUFFLE}.AvailableMemory": float(size - used_size),
        f"{_SHUFFLE}.TotalMemorySegments": float(batches),
        f"{_SHUFFLE}.UsedMemorySegments": float(used_batches),
        f"{_SHUFFLE}.AvailableMemorySegments": float(batches - used_batches),
    }
