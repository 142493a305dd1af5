"""The vocabulary of the whole API: types and rows, configuration, time, watermarks, the handle on a job.

The lowest layer: it imports nothing of Yarrow but the interface modules of `yarrow.datastream`, starts no
thread and does no I/O.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from yarrow.common.config_options import ConfigOption, ConfigOptions
from yarrow.common.configuration import Configuration
from yarrow.common.execution_config import ExecutionConfig
from yarrow.common.execution_modes import InputDependencyConstraint
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from yarrow.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    MultiRecordDeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from yarrow.common.serializer import TypeSerializer
from yarrow.common.time import Duration, Instant, Time
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, RowKind
from yarrow.common.values.quantities import MemorySize
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkStrategy

if TYPE_CHECKING:
    from yarrow.common.completable_future import CompletableFuture
    from yarrow.common.job_client import JobClient

#: Only clients have jobs to look at, and each worker would load these names.
_OF_CLIENTS = {
    "CompletableFuture": "yarrow.common.completable_future",
    "JobClient": "yarrow.common.job_client",
}

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "MemorySize",
    "MultiRecordDeserializationSchema",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkGenerator",
    "WatermarkStrategy",
]


def __getattr__(name: str) -> Any:
    module = _OF_CLIENTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found
