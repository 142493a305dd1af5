"""Shape of a SparkDriver's container: the heap of Java, the memory beside it, and Python processes for each core.

Owner: any thread; pure. Client and master compute the same: YARN learns the shape at the submission, before the
application knows whether a bounded job will come.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.quantities import MemorySize
from yarrow.runtime.config.options import batch, taskmanager, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import MemoryBudgetError
from yarrow.runtime.yarn.gateways import ContainerShape

#: Java's memory beside its heap, as Spark counts it: a part of the heap, and at least this.
_JAVA_OVERHEAD: Final = MemorySize.of_mebi_bytes(384)
_JAVA_OVERHEAD_PART: Final = 10
#: The driver's own Python process, and the one from which Spark forks its workers.
_PYTHON_DRIVER: Final = MemorySize.of_mebi_bytes(256)
#: Each Python process that runs a task.
_PYTHON_TASK: Final = MemorySize.of_mebi_bytes(512)


def spark_driver_shape(config: Settings) -> ContainerShape:
    """The container of a SparkDriver; yarn.spark-driver.memory and .vcores, else what its parts need.

    Raises MemoryBudgetError if the memory does not hold Java.
    """
    vcores = config.get(yarn.SPARK_DRIVER_VCORES)
    cores = vcores if vcores > 0 else config.get(taskmanager.NUMBER_OF_TASK_SLOTS)
    needed = java_memory(config).bytes + _PYTHON_DRIVER.bytes
    memory = config.get(yarn.SPARK_DRIVER_MEMORY) or MemorySize(needed + cores * _PYTHON_TASK.bytes)
    if memory.bytes < needed:
        raise MemoryBudgetError(
            f"{yarn.SPARK_DRIVER_MEMORY.key} of {memory.human()} is too small: {batch.SPARK_DRIVER_MEMORY.key} of"
            f" {config.get(batch.SPARK_DRIVER_MEMORY).human()}, Java's memory beside it and the driver's Python process"
            f" make {MemorySize(needed).human()}. Raise the first or lower the second.",
            (yarn.SPARK_DRIVER_MEMORY.key,),
        )
    return ContainerShape(
        memory_mb=-(-memory.bytes // (1 << 20)),
        vcores=cores,
        node_label=config.get(yarn.TASK_MANAGER_NODE_LABEL) or "",
    )


def java_memory(config: Settings) -> MemorySize:
    """Java's heap and what Java needs beside it."""
    heap = config.get(batch.SPARK_DRIVER_MEMORY).bytes
    return MemorySize(heap + max(_JAVA_OVERHEAD.bytes, heap // _JAVA_OVERHEAD_PART))


def too_large_for(shape: ContainerShape, config: Settings) -> str:
    """Why a job's SparkDriver does not fit the container that was declared; "" = it fits."""
    needed = -(-(java_memory(config).bytes + _PYTHON_DRIVER.bytes) // (1 << 20))
    if needed <= shape.memory_mb:
        return ""
    return (
        f"the job asks for {batch.SPARK_DRIVER_MEMORY.key} of {config.get(batch.SPARK_DRIVER_MEMORY).human()}, with"
        f" which its SparkDriver needs {needed} MB. This application's SparkDrivers have {shape.memory_mb} MB: start"
        f" it with a larger {yarn.SPARK_DRIVER_MEMORY.key}"
    )
