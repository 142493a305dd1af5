"""The functions that users write: base classes and the contexts of their calls.

Interfaces alone. One instance serves one subtask, and must pickle before `open`. Only the thread that owns
the task calls it (for an AsyncFunction, its event loop). Functions that may emit several results return an
iterable or are generators; process functions send to a side output with `yield tag, value`. Times are
milliseconds since the epoch in UTC. Nothing here executes anything. Programs import from here; the modules
below hold one kind of function each.
"""

from __future__ import annotations

from yarrow.datastream.functions.aggregate_functions import AggregateFunction, ReduceFunction
from yarrow.datastream.functions.async_function import AsyncBatchFunction, AsyncFunction
from yarrow.datastream.functions.async_retries import (
    AsyncFunctionDescriptor,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from yarrow.datastream.functions.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from yarrow.datastream.functions.checkpointed_functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from yarrow.datastream.functions.function import Function, KeyedStateStore, RuntimeContext
from yarrow.datastream.functions.key_functions import KeySelector, NullByteKeySelector, Partitioner
from yarrow.datastream.functions.map_functions import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
)
from yarrow.datastream.functions.process_functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from yarrow.datastream.functions.source_and_sink_functions import (
    ParallelSourceFunction,
    SinkFunction,
    SourceFunction,
)
from yarrow.datastream.functions.timers import TimerService
from yarrow.datastream.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
    WindowGroups,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncBatchFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "NullByteKeySelector",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
    "WindowFunction",
    "WindowGroups",
]
