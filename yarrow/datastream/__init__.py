"""The DataStream API: the names that a program imports.

Names are loaded when they are first used. So a worker that imports an interface module from here does not
load the graph-building modules. Those import the runtime, which imports the interface modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yarrow.datastream.async_data_stream import AsyncDataStream
    from yarrow.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from yarrow.datastream.checkpoint_config import CheckpointConfig
    from yarrow.datastream.checkpoint_storage import (
        CheckpointStorage,
        CustomCheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from yarrow.datastream.checkpointing_mode import CheckpointingMode
    from yarrow.datastream.columnar_keyed_stream import (
        ColumnAggregate,
        ColumnarKeyedStream,
        ColumnarWindowedStream,
    )
    from yarrow.datastream.connected_streams import (
        ConnectedIterativeStreams,
        ConnectedStreams,
        IterativeStream,
    )
    from yarrow.datastream.data_stream import DataStream, OrderedStream
    from yarrow.datastream.data_stream_sink import DataStreamSink
    from yarrow.datastream.execution_mode import RuntimeExecutionMode
    from yarrow.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
    from yarrow.datastream.functions import (
        AggregateFunction,
        AllWindowFunction,
        AsyncBatchFunction,
        AsyncFunction,
        AsyncFunctionDescriptor,
        AsyncRetryPredicate,
        AsyncRetryStrategy,
        BaseBroadcastProcessFunction,
        BroadcastProcessFunction,
        CheckpointedFunction,
        CheckpointListener,
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        Function,
        FunctionInitializationContext,
        FunctionSnapshotContext,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeyedStateStore,
        KeySelector,
        MapFunction,
        ParallelSourceFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RuntimeContext,
        SinkFunction,
        SourceFunction,
        WindowFunction,
        WindowGroups,
    )
    from yarrow.datastream.functions.output_selector import OutputSelector
    from yarrow.datastream.functions.process_join_function import ProcessJoinFunction
    from yarrow.datastream.functions.two_data_sets_functions import (
        CoGroupFunction,
        FlatJoinFunction,
        JoinFunction,
    )
    from yarrow.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from yarrow.datastream.keyed_joins import (
        AsOfJoin,
        AsOfJoined,
        ColumnarAsOfJoin,
        ColumnarAsOfJoined,
        ColumnarIntervalJoin,
        ColumnarIntervalJoined,
        ColumnarWindowJoin,
        ColumnarWindowJoined,
        DelayedJoin,
        DelayedJoined,
        ImmediateJoin,
        IntervalJoin,
        IntervalJoined,
    )
    from yarrow.datastream.keyed_stream import KeyedStream
    from yarrow.datastream.output_tag import OutputTag
    from yarrow.datastream.program.closeable_iterator import CloseableIterator
    from yarrow.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
    from yarrow.datastream.state import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateTtlConfig,
        ValueStateDescriptor,
    )
    from yarrow.datastream.state_backend import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        FsStateBackend,
        HashMapStateBackend,
        MemoryStateBackend,
        PredefinedOptions,
        RocksDBStateBackend,
        StateBackend,
    )
    from yarrow.datastream.stream_distribution import SplitStream
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
    from yarrow.datastream.time_characteristic import TimeCharacteristic
    from yarrow.datastream.time_domain import TimeDomain
    from yarrow.datastream.timerservice import TimerService
    from yarrow.datastream.window import (
        CountWindow,
        GlobalWindow,
        MergingWindowAssigner,
        TimeWindow,
        Trigger,
        TriggerResult,
        Window,
        WindowAssigner,
    )
    from yarrow.datastream.windowed_stream import WindowedStream

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "AllWindowFunction",
    "AsOfJoin",
    "AsOfJoined",
    "AsyncBatchFunction",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ColumnAggregate",
    "ColumnarAsOfJoin",
    "ColumnarAsOfJoined",
    "ColumnarIntervalJoin",
    "ColumnarIntervalJoined",
    "ColumnarKeyedStream",
    "ColumnarWindowJoin",
    "ColumnarWindowJoined",
    "ColumnarWindowedStream",
    "ConnectedIterativeStreams",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "DelayedJoin",
    "DelayedJoined",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GlobalWindow",
    "HashMapStateBackend",
    "ImmediateJoin",
    "IntervalJoin",
    "IntervalJoined",
    "IterativeStream",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "ListStateDescriptor",
    "MapFunction",
    "MapStateDescriptor",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OrderedStream",
    "OutputSelector",
    "OutputTag",
    "ParallelSourceFunction",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "ReducingStateDescriptor",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "SplitStream",
    "StateBackend",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "TimeCharacteristic",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "ValueStateDescriptor",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowGroups",
    "WindowedStream",
]

#: Where each name is defined.
_MODULE_OF = {
    "AggregateFunction": "functions",
    "AggregatingStateDescriptor": "state",
    "AllWindowFunction": "functions",
    "AsOfJoin": "keyed_joins",
    "AsOfJoined": "keyed_joins",
    "AsyncDataStream": "async_data_stream",
    "AsyncBatchFunction": "functions",
    "AsyncFunction": "functions",
    "AsyncFunctionDescriptor": "functions",
    "AsyncRetryPredicate": "functions",
    "AsyncRetryStrategy": "functions",
    "BaseBroadcastProcessFunction": "functions",
    "BroadcastConnectedStream": "broadcast_stream",
    "BroadcastProcessFunction": "functions",
    "BroadcastStream": "broadcast_stream",
    "CheckpointConfig": "checkpoint_config",
    "CheckpointListener": "functions",
    "CheckpointStorage": "checkpoint_storage",
    "CheckpointedFunction": "functions",
    "CheckpointingMode": "checkpointing_mode",
    "CloseableIterator": "program.closeable_iterator",
    "CoFlatMapFunction": "functions",
    "CoGroupFunction": "functions.two_data_sets_functions",
    "CoGroupedStreams": "joined_streams",
    "CoMapFunction": "functions",
    "CoProcessFunction": "functions",
    "ColumnAggregate": "columnar_keyed_stream",
    "ColumnarAsOfJoin": "keyed_joins",
    "ColumnarAsOfJoined": "keyed_joins",
    "ColumnarIntervalJoin": "keyed_joins",
    "ColumnarIntervalJoined": "keyed_joins",
    "ColumnarWindowJoin": "keyed_joins",
    "ColumnarWindowJoined": "keyed_joins",
    "ColumnarKeyedStream": "columnar_keyed_stream",
    "ColumnarWindowedStream": "columnar_keyed_stream",
    "ConnectedIterativeStreams": "connected_streams",
    "ConnectedStreams": "connected_streams",
    "CountWindow": "window",
    "CustomCheckpointStorage": "checkpoint_storage",
    "CustomStateBackend": "state_backend",
    "DataStream": "data_stream",
    "DataStreamSink": "data_stream_sink",
    "DelayedJoin": "keyed_joins",
    "DelayedJoined": "keyed_joins",
    "EmbeddedRocksDBStateBackend": "state_backend",
    "ExternalizedCheckpointRetention": "externalized_checkpoint_retention",
    "FileSystemCheckpointStorage": "checkpoint_storage",
    "FilterFunction": "functions",
    "FlatJoinFunction": "functions.two_data_sets_functions",
    "FlatMapFunction": "functions",
    "FsStateBackend": "state_backend",
    "Function": "functions",
    "FunctionInitializationContext": "functions",
    "FunctionSnapshotContext": "functions",
    "GlobalWindow": "window",
    "HashMapStateBackend": "state_backend",
    "ImmediateJoin": "keyed_joins",
    "IntervalJoin": "keyed_joins",
    "IntervalJoined": "keyed_joins",
    "IterativeStream": "connected_streams",
    "JobManagerCheckpointStorage": "checkpoint_storage",
    "JoinFunction": "functions.two_data_sets_functions",
    "JoinedStreams": "joined_streams",
    "KeySelector": "functions",
    "KeyedBroadcastProcessFunction": "functions",
    "KeyedCoProcessFunction": "functions",
    "KeyedProcessFunction": "functions",
    "KeyedStateStore": "functions",
    "KeyedStream": "keyed_stream",
    "ListStateDescriptor": "state",
    "MapFunction": "functions",
    "MapStateDescriptor": "state",
    "MemorySize": "slot_sharing_group",
    "MemoryStateBackend": "state_backend",
    "MergingWindowAssigner": "window",
    "OrderedStream": "data_stream",
    "OutputSelector": "functions.output_selector",
    "OutputTag": "output_tag",
    "ParallelSourceFunction": "functions",
    "Partitioner": "functions",
    "PredefinedOptions": "state_backend",
    "ProcessAllWindowFunction": "functions",
    "ProcessFunction": "functions",
    "ProcessJoinFunction": "functions.process_join_function",
    "ProcessWindowFunction": "functions",
    "ReduceFunction": "functions",
    "ReducingStateDescriptor": "state",
    "RocksDBStateBackend": "state_backend",
    "RuntimeContext": "functions",
    "RuntimeExecutionMode": "execution_mode",
    "SinkFunction": "functions",
    "SlotSharingGroup": "slot_sharing_group",
    "SourceFunction": "functions",
    "SplitStream": "stream_distribution",
    "StateBackend": "state_backend",
    "StateTtlConfig": "state",
    "StreamExecutionEnvironment": "stream_execution_environment",
    "TimeCharacteristic": "time_characteristic",
    "TimeDomain": "time_domain",
    "TimeWindow": "window",
    "TimerService": "timerservice",
    "Trigger": "window",
    "TriggerResult": "window",
    "ValueStateDescriptor": "state",
    "Window": "window",
    "WindowAssigner": "window",
    "WindowFunction": "functions",
    "WindowGroups": "functions",
    "WindowedStream": "windowed_stream",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{module}"), name)
    except (AttributeError, ImportError) as error:
        # `from ... import` would make a bare "cannot import name" of an AttributeError.
        from yarrow.datastream.program.shadowed_modules import import_failure

        raise import_failure(f"{__name__}.{name}", error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
