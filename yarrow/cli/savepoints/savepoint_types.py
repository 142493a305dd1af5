"""Compares states with a program's declared types: it opens the program's functions here, as if they were restored.

Restored states have no content, so nothing is read or decoded: types are compared when a state is registered.
Sources and sinks are not opened, because that connects to other systems: their stored values are read. Owner:
the main thread; user code runs in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import structs

from yarrow.cli.savepoints.savepoint_outside import check_values, initialize_outside, keeps_values
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.snapshot.errors import SavepointMismatchError, SnapshotError
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    InlineStateHandle,
    KeyedStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorStateHandle,
)
from yarrow.runtime.snapshot.key_group_form import write_key_groups
from yarrow.runtime.snapshot.savepoint_check import has_state
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.state_processor.subtasks import LoneOperator, state_without_checkpoint

_NO_ENTRIES: Final = InlineStateHandle(data=b"".join(write_key_groups((), ())))


def other_types(
    metadata: CheckpointMetadata, graph: JobGraph, reader: SnapshotReader, *, trusted: bool
) -> tuple[list[SavepointMismatchError], tuple[str, ...]]:
    """The states that would be refused with reasons, and the questions without an answer.

    `trusted`: pickled values of sources and sinks are read.
    """
    refused: list[SavepointMismatchError] = []
    notes: list[str] = []
    for vertex, operator, state in _with_state(metadata, graph):
        try:
            if keeps_values(operator):
                check_values(operator, state, reader, trusted=trusted)
            else:
                with _without_content(vertex, operator, state, graph) as lone:
                    _register_states(operator, lone)
        except SnapshotError as error:
            refused.append(SavepointMismatchError(operator.name, str(error)))
        except Exception as error:  # user code may raise anything
            notes.append(
                f"types of the states of '{operator.name}' were not all compared: its function could not be opened here"
                f" ({type(error).__name__}: {error})"
            )
    return refused, tuple(notes)


def _with_state(
    metadata: CheckpointMetadata, graph: JobGraph
) -> Iterator[tuple[JobVertex, OperatorDescriptor, OperatorState]]:
    states = {state.operator_id: state for state in metadata.operators}
    for vertex in graph.vertices:
        for operator in vertex.operators:
            state = states.get(operator.id)
            if state is not None and has_state(state):
                yield vertex, operator, state


def _register_states(descriptor: OperatorDescriptor, lone: LoneOperator) -> None:
    """Makes an operator's function register its states, opened if that connects to no other system."""
    fragment, subtask = lone.fragment, lone.subtask
    if descriptor.spec.opens_outside:
        initialize_outside(descriptor, fragment.context(subtask))
        return
    operator = fragment.operator(subtask)
    try:
        operator.open()
    finally:
        operator.close()
        operator.context.state.dispose()


def _without_content(
    vertex: JobVertex, descriptor: OperatorDescriptor, state: OperatorState, graph: JobGraph
) -> LoneOperator:
    """A single operator, restored from its states without their content."""
    parts = [part for _, part in sorted(state.subtasks.items())]
    groups = KeyGroupRange(0, vertex.max_parallelism - 1)
    return LoneOperator(
        descriptor,
        graph.job_id,
        max_parallelism=vertex.max_parallelism,
        restored=state_without_checkpoint(
            descriptor.id,
            keyed=[_emptied_keys(keyed, groups) for part in parts for keyed in part.keyed],
            operator=[_emptied(handle) for part in parts for handle in part.operator],
        ),
        configuration=graph.configuration,
    )


def _emptied_keys(keyed: KeyedStateHandle, groups: KeyGroupRange) -> KeyGroupsSnapshot:
    """The same states without content, in the form that every backend reads."""
    return KeyGroupsSnapshot(key_groups=(groups.start, groups.end), states=keyed.states, handle=_NO_ENTRIES)


def _emptied(handle: OperatorStateHandle) -> OperatorStateHandle:
    states = tuple(structs.replace(named, elements=()) for named in handle.states)
    return structs.replace(handle, states=states, handle=_NO_ENTRIES)
