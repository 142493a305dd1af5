"""Whether the present program reads what sources and sinks have stored: splits, enumerators, writers, committables.

No reader or writer is made, because these connect to other systems. The values themselves are read, as a
restore would read them, which finds classes that are missing or have changed. Owner: the main thread; calls
block. It must not judge an operator.
"""

from __future__ import annotations

from typing import Any

from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.checkpointed import initialize_function
from yarrow.container.operators.registry import operator_class
from yarrow.container.sources.coordinator_state import load_state
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorState, OperatorStateMode
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader


def keeps_values(descriptor: OperatorDescriptor) -> bool:
    """Whether the engine keeps values for this source or sink: see check_values."""
    return bool(operator_class(descriptor.spec).engine_lists)


def check_values(
    descriptor: OperatorDescriptor, state: OperatorState, reader: SnapshotReader, *, trusted: bool
) -> None:
    """Reads every split, unprocessed record, enumerator, writer state and committable; `trusted`: also pickled ones.

    Raises SnapshotError with operator and state, as the restore would.
    """
    name = descriptor.name
    handles = [handle for _, part in sorted(state.subtasks.items()) for handle in part.operator]
    backend = OperatorStateBackend(name, handles, reader.of(f"operator '{name}'"), trusted=trusted)
    for listed, mode in operator_class(descriptor.spec).engine_lists.items():
        ask = backend.list_state if mode is OperatorStateMode.SPLIT else backend.union_list_state
        ask(ListStateDescriptor(listed))
    if state.coordinator is not None and descriptor.spec.has_enumerator:
        load_state(reader.read(state.coordinator, f"operator '{name}'"), name, trusted=trusted)


def initialize_outside(descriptor: OperatorDescriptor, context: OperatorContext) -> None:
    """Lets a SourceFunction or SinkFunction register its states, without opening it.

    Raises SnapshotError for differing types, and user code's own errors.
    """
    spec: Any = descriptor.spec
    initialize_function(load_function(spec.function, descriptor.name), context, None)
