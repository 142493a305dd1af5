"""State: the values that user functions keep between records.

Interfaces of the handles, and the descriptors that name a state and declare its type. A handle belongs to the
current key, and may be used only while a function of its task is being called, on the task's thread. The
backends that keep the values are part of the runtime. Programs import from here.
"""

from __future__ import annotations

from yarrow.datastream.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

# Job graphs that were stored before name this class by this module.
from yarrow.datastream.state.descriptors import _CallableReduceFunction as _CallableReduceFunction
from yarrow.datastream.state.handles import (
    AggregatingState,
    AppendingState,
    BroadcastState,
    ListState,
    MapState,
    MergingState,
    ReadOnlyBroadcastState,
    ReducingState,
    State,
    ValueState,
)
from yarrow.datastream.state.operator_state_store import OperatorStateStore
from yarrow.datastream.state.time_to_live import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]
