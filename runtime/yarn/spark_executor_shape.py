"""Shape of an executor's container of Spark: the heap of Java, and a Python process for each core beside it.

Owner: any thread; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from yarrow.common.values.quantities import MemorySize
from yarrow.runtime.config.options import batch, taskmanager, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ContainerShape

#: Java's memory beside its heap, as Spark counts it: a part of the heap, and at least this.
_JAVA_OVERHEAD: Final = MemorySize.of_mebi_bytes(384)
_JAVA_OVERHEAD_PART: Final = 10
#: Each Python process that runs a task.
_PYTHON_TASK: Final = MemorySize.of_mebi_bytes(512)
#: Keys of Spark by which a program sets the memory beside the heap itself.
OVERHEAD_KEYS: Final = ("executor.memoryOverhead", "executor.memoryOverheadFactor")


@dataclass(frozen=True, slots=True)
class ExecutorShape:
    """One executor; sizes are MiB."""

    cores: int
    heap_mb: int
    #: Java's own memory and Python, beside the heap.
    overhead_mb: int
    node_label: str = ""

    @property
    def container(self) -> ContainerShape:
        """The container that YARN has to grant for an executor."""
        return ContainerShape(self.heap_mb + self.overhead_mb, self.cores, self.node_label)


def executor_shape(config: Settings) -> ExecutorShape:
    """The executors of a job."""
    cores = config.get(batch.SPARK_EXECUTOR_CORES) or config.get(taskmanager.NUMBER_OF_TASK_SLOTS)
    heap = config.get(batch.SPARK_EXECUTOR_MEMORY)
    java = max(_JAVA_OVERHEAD.bytes, heap.bytes // _JAVA_OVERHEAD_PART)
    return ExecutorShape(
        cores=cores,
        heap_mb=_mebibytes(heap.bytes),
        overhead_mb=_mebibytes(java + cores * _PYTHON_TASK.bytes),
        node_label=config.get(yarn.TASK_MANAGER_NODE_LABEL) or "",
    )


def _mebibytes(size: int) -> int:
    return -(-size // (1 << 20))
