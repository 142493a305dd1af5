"""Assignment: divides a checkpoint or savepoint among the subtasks of a job, at the same or another parallelism.

Owner: none (pure): metadata and a graph in, handles by subtask out. It must not read state, nor decide where
subtasks run. The job must have passed `savepoint_check.verify`, with the max parallelism of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.key_groups import KeyGroupRange, key_group_range_for_operator_index
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.graph.operator_spec import PartitionerKind, StreamKind
from yarrow.runtime.snapshot.channel_edges import edges_by_name
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.finished_subtasks import Subtask, finished_subtasks
from yarrow.runtime.snapshot.handles import (
    ChannelStateHandle,
    CheckpointMetadata,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from yarrow.runtime.snapshot.redistribution import keyed_handles, operator_handles
from yarrow.runtime.snapshot.savepoint_check import other_kind, verify
from yarrow.runtime.snapshot.value_serializers import holds_pickles


@dataclass(frozen=True, slots=True)
class Assignment:
    """The restored parts of a job's tasks."""

    #: Without operators and subtasks that have no state.
    tasks: Mapping[Subtask, Mapping[OperatorID, OperatorSubtaskState]]
    #: States of split enumerators, by the operator of their source.
    coordinators: Mapping[OperatorID, StateHandle]
    #: Finished subtasks, which are not run again.
    finished: frozenset[Subtask]


def assign(
    metadata: CheckpointMetadata, job_graph: JobGraph, *, allow_non_restored: bool = False
) -> Assignment:
    """Divides all state among the subtasks of `job_graph`.

    Raises SavepointMismatchError with the operator if state does not fit the job. `allow_non_restored` leaves
    out state of operators that the job lacks, or has with another kind.
    """
    verify(metadata, job_graph, allow_non_restored=allow_non_restored)
    states = {state.operator_id: state for state in metadata.operators}
    channels = _channels(metadata, job_graph, states, allow_non_restored)
    # `verify` refuses the state of an operator of another kind, unless it may be dropped.
    claimed = {
        operator.id: (vertex, states[operator.id])
        for vertex in job_graph.vertices
        for operator in vertex.operators
        if operator.id in states and not other_kind(states[operator.id], operator)
    }
    tasks: dict[Subtask, dict[OperatorID, OperatorSubtaskState]] = {}
    for vertex, state in claimed.values():
        for subtask, own in enumerate(_subtask_states(state, vertex.parallelism)):
            if not own.is_empty:
                tasks.setdefault((vertex.id, subtask), {})[state.operator_id] = own
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            for handle in _lists_behind(job_graph, vertex, operator, states):
                for subtask in range(vertex.parallelism):
                    of_task = tasks.setdefault((vertex.id, subtask), {})
                    own = of_task.get(operator.id, OperatorSubtaskState())
                    of_task[operator.id] = msgspec.structs.replace(own, operator=(*own.operator, handle))
    for (vertex_id, subtask), handles in channels.items():
        of_task = tasks.setdefault((vertex_id, subtask), {})
        head = job_graph.vertex(vertex_id).operators[0].id
        own = of_task.get(head, OperatorSubtaskState())
        of_task[head] = OperatorSubtaskState(
            keyed=own.keyed, operator=own.operator, channels=tuple(sorted(handles, key=_reading_order))
        )
    coordinators = {
        state.operator_id: state.coordinator
        for state in metadata.operators
        if state.coordinator is not None and state.operator_id in claimed
    }
    return Assignment(tasks, coordinators, finished_subtasks(states, job_graph))


def _subtask_states(state: OperatorState, parallelism: int) -> Iterator[OperatorSubtaskState]:
    parts = zip(keyed_handles(state, parallelism), operator_handles(state, parallelism), strict=True)
    for keyed, operator in parts:
        yield OperatorSubtaskState(keyed=keyed, operator=operator)


def _lists_behind(
    job: JobGraph, vertex: JobVertex, operator: OperatorDescriptor, states: Mapping[OperatorID, OperatorState]
) -> Iterator[OperatorStateHandle]:
    """The pieces of the list of operators behind an operator that it reads as well."""
    name = operator.spec.reads_list_behind
    for edge in job.outputs_of(vertex.id) if name else ():
        behind = states.get(job.vertex(edge.target).operators[0].id)
        if behind is None or vertex.operators[edge.source_operator] != operator:
            continue
        for _, subtask in sorted(behind.subtasks.items()):
            for handle in subtask.operator:
                if named := tuple(state for state in handle.states if state.name == name):
                    yield msgspec.structs.replace(handle, states=named)


# ---------------------------------------------------------------------- records in flight


def _channels(
    metadata: CheckpointMetadata,
    job: JobGraph,
    states: Mapping[OperatorID, OperatorState],
    allow_non_restored: bool,
) -> dict[Subtask, list[ChannelStateHandle]]:
    """Records in flight by the reading subtask, including those that waited at their producer."""
    edges = edges_by_name(job)
    found: dict[Subtask, list[ChannelStateHandle]] = {}
    for owner in metadata.operators:
        for state in owner.subtasks.values():
            for channel in state.channels:
                edge = edges.get(channel.edge)
                if edge is None:
                    if allow_non_restored:
                        continue
                    raise _edge_is_gone(owner, channel)
                _check_rows(metadata, job, edge, owner, channel)
                consumers, shared = _consumers(job, edge, channel, states)
                given = msgspec.structs.replace(channel, shared=shared)
                for consumer in consumers:
                    found.setdefault((edge.target, consumer), []).append(given)
    return found


def _check_rows(
    metadata: CheckpointMetadata,
    job: JobGraph,
    edge: JobEdge,
    owner: OperatorState,
    channel: ChannelStateHandle,
) -> None:
    """Raises SavepointMismatchError if the rows of a channel could not be read correctly or safely."""
    reads_columns = edge.stream_kind is StreamKind.COLUMNAR
    if (channel.rows is None) != reads_columns or (
        channel.rows is not None and channel.rows.type_spec != edge.type_spec
    ):
        raise SavepointMismatchError(
            owner.name,
            f"operator '{owner.name}': the unaligned checkpoint holds records in flight on the edge to '"
            f"{job.vertex(edge.target).operators[0].name}', whose type has changed. Restore the unchanged"
            " program, take a savepoint and restore that.",
        )
    if channel.rows is not None and holds_pickles(channel.rows) and metadata.job_id != job.job_id:
        raise SavepointMismatchError(
            owner.name,
            f"operator '{owner.name}': the unaligned checkpoint of job {metadata.job_id} holds pickled records in "
            f"flight to '{job.vertex(edge.target).operators[0].name}', which no other job reads. Declare the type of "
            "that stream (output_type), or restore from a savepoint, which holds no records in flight.",
        )


def _consumers(
    job: JobGraph, edge: JobEdge, channel: ChannelStateHandle, states: Mapping[OperatorID, OperatorState]
) -> tuple[list[int], bool]:
    """The subtasks that may own rows of a channel now, and whether each must leave out rows of other key groups."""
    vertex = job.vertex(edge.target)
    new = vertex.parallelism
    head = states.get(vertex.operators[0].id)
    old = channel.consumers or (new if head is None else head.parallelism)
    key_groups = channel.max_parallelism or (vertex.max_parallelism if head is None else head.max_parallelism)
    kind = edge.partitioner.kind
    if kind is PartitionerKind.KEY_GROUP and key_groups != vertex.max_parallelism:
        # An operator without keyed state: its rows have other key groups now.
        return list(range(new)), True
    if old == new:
        return [channel.consumer], False
    if kind is PartitionerKind.KEY_GROUP:
        held = key_group_range_for_operator_index(vertex.max_parallelism, old, channel.consumer)
        owners = [
            subtask
            for subtask in range(new)
            if _range(vertex, subtask).intersection(held).number_of_key_groups
        ]
        return owners, True
    if kind is PartitionerKind.BROADCAST:
        # Every old subtask had all rows: each new one takes those of the subtask whose broadcast state it
        # takes.
        taken = [subtask for subtask in range(new) if _broadcast_source(subtask, old) == channel.consumer]
        return taken, False
    if kind is PartitionerKind.CUSTOM:
        name = vertex.operators[0].name
        raise SavepointMismatchError(
            name,
            f"operator '{name}': the unaligned checkpoint holds records in flight on an edge with a custom"
            f" partitioner, and the parallelism changes from {old} to {new}. The new owners of these records"
            f" are unknown: restore at parallelism {old}, or from a savepoint.",
        )
    return [channel.consumer * new // old], False


def _broadcast_source(subtask: int, old: int) -> int:
    return subtask if subtask < old else subtask % old


def _range(vertex: JobVertex, subtask: int) -> KeyGroupRange:
    return key_group_range_for_operator_index(vertex.max_parallelism, vertex.parallelism, subtask)


def _reading_order(channel: ChannelStateHandle) -> tuple[str, int, int, bool]:
    """Records in the consumer's queue come before those that its producer had not sent."""
    return (channel.edge, channel.consumer, channel.producer, channel.at_producer)


def _edge_is_gone(owner: OperatorState, channel: ChannelStateHandle) -> SavepointMismatchError:
    return SavepointMismatchError(
        owner.name,
        f"operator '{owner.name}': the unaligned checkpoint holds records in flight on an edge that the"
        f" job does not have ({channel.edge}). Restore the unchanged program, take a savepoint and restore"
        " that; or allow state that is not restored, which loses the records.",
    )
