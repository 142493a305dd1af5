"""Compares a snapshot with a job: which state is restored, new, lost, or refused and why.

Owner: none (pure). State under the uid of an operator of another kind is refused here, since nobody would read it.
Types of single states are unknown before functions run: they are compared when each state is registered, and refused
there by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.finished_subtasks import lost_rows
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    NamedOperatorState,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
    SerializerConfig,
)
from yarrow.runtime.snapshot.key_types import check_keys, key_type_of
from yarrow.runtime.snapshot.value_serializers import holds_pickles


def verify(metadata: CheckpointMetadata, job_graph: JobGraph, *, allow_non_restored: bool = False) -> None:
    """Raises SavepointMismatchError with the operator that prevents the restore."""
    for finding in check_savepoint(metadata, job_graph, allow_non_restored=allow_non_restored):
        if finding.outcome is Outcome.REFUSED:
            raise SavepointMismatchError(finding.operator, finding.reason)


class Outcome(StrEnum):
    """The outcome for an operator's state."""

    RESTORES = "restores"
    #: The job has the operator, the snapshot has no state of it.
    NEW = "is new"
    #: The snapshot has state that the job does not use.
    DROPPED = "would be dropped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OperatorFinding:
    """The result of check-savepoint for one operator."""

    operator: str
    uid: str | None
    outcome: Outcome
    #: The reason; empty for RESTORES and NEW.
    reason: str = ""
    #: Names of the states in the snapshot.
    states: tuple[str, ...] = ()
    #: Names of states with pickled values.
    pickled: tuple[str, ...] = ()


def check_savepoint(
    metadata: CheckpointMetadata, job_graph: JobGraph, *, allow_non_restored: bool = False
) -> list[OperatorFinding]:
    """One finding for each operator of the job, in its order, then for operators of the snapshot alone."""
    states = {state.operator_id: state for state in metadata.operators}
    findings = []
    known: set[OperatorID] = set()
    losing = lost_rows(states, job_graph)
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            known.add(operator.id)
            state = states.get(operator.id)
            if state is not None and state.fully_finished and vertex.id in losing:
                findings.append(_finding(state, operator.name, Outcome.REFUSED, losing[vertex.id]))
            else:
                findings.append(_of_operator(vertex, operator, state, allow_non_restored=allow_non_restored))
    for state in metadata.operators:
        if state.operator_id not in known and has_state(state):
            reason = _unclaimed(state, metadata, job_graph)
            outcome = Outcome.DROPPED if allow_non_restored else Outcome.REFUSED
            findings.append(_finding(state, state.name, outcome, reason))
    return findings


def has_state(state: OperatorState) -> bool:
    """Whether state would be lost without the operator."""
    return state.coordinator is not None or any(
        subtask.keyed or subtask.operator for subtask in state.subtasks.values()
    )


#: The kinds of operators (`OperatorSpec.state_kind`) that have a state of this name, for snapshots that tell no kind.
_WRITERS: Final[Mapping[str, Collection[str]]] = {
    "_window_contents": ("windows", "a join or co_group by window"),
    "_window_contents_with_times": ("windows", "a join or co_group by window"),
    "_count_windows": ("windows",),
    "_sessions": ("windows",),
    "_window_slices": ("windows",),
    "_columnar_windows": ("windows of columns",),
    "_join_left": (
        "an interval join",
        "an interval join of columns",
        "an as-of join of columns",
        "a join by windows of columns",
    ),
    "_join_rows": ("an as-of join", "a delayed join"),
    "_join_kept": ("an immediate join",),
    "_pattern_pending_rows": ("a pattern",),
    "_pattern_pending_batches": ("a pattern of columns",),
    "_aggregation": ("a running aggregate",),
    "_waiting_rows": ("rows of a keyed stream in event-time order",),
}
#: The same of operator states.
_WRITERS_WITHOUT_KEYS: Final[Mapping[str, Collection[str]]] = {
    "_waiting_rows": ("rows of a stream without keys in event-time order",),
}


def other_kind(state: OperatorState | None, operator: OperatorDescriptor) -> str:
    """The kind of the operator that wrote a state, if this one is of another; empty = it can go on, or has no state."""
    now = operator.spec.state_kind
    if state is None or not now or not _keeps_records(state):
        return ""
    if state.kind is not msgspec.UNSET:
        return "" if state.kind == now else state.kind
    writers = _writers(state)
    return "" if not writers or now in writers else " or ".join(writers)


def require_kinds(metadata: CheckpointMetadata, job_graph: JobGraph) -> None:
    """Raises SavepointMismatchError for an operator of the job whose state is that of another kind."""
    states = {state.operator_id: state for state in metadata.operators}
    for vertex in job_graph.vertices:
        for operator in vertex.operators:
            if was := other_kind(states.get(operator.id), operator):
                raise SavepointMismatchError(operator.name, _refused_kind(operator, was))


def _keeps_records(state: OperatorState) -> bool:
    """Whether state would be lost that a later result depends on."""
    return state.coordinator is not None or any(
        subtask.keyed or any(map(_has_elements, subtask.operator)) for subtask in state.subtasks.values()
    )


def _has_elements(handle: OperatorStateHandle) -> bool:
    return any(named.elements and not _is_position(named) for named in handle.states)


def _is_position(named: NamedOperatorState) -> bool:
    # Operators say in such lists how far they are, and how they store what they keep.
    return named.mode is OperatorStateMode.UNION and named.name.startswith("_")


def _writers(state: OperatorState) -> Collection[str]:
    """The kinds of operators that may have written a state which tells none; none = it is unknown."""
    for part in state.subtasks.values():
        for keyed in part.keyed:
            for meta in keyed.states:
                if meta.name in _WRITERS:
                    return _WRITERS[meta.name]
        for handle in part.operator:
            for named in handle.states:
                if named.name in _WRITERS_WITHOUT_KEYS and named.elements:
                    return _WRITERS_WITHOUT_KEYS[named.name]
    return ()


def _refused_kind(operator: OperatorDescriptor, was: str) -> str:
    known_by = f"uid '{operator.uid}'" if operator.uid is not None else "no uid"
    return (
        f"operator '{operator.name}' ({known_by}): the snapshot holds the state of {was}, the program declares"
        f" {operator.spec.state_kind}. Declare it as it was. Or begin without this state, also under another uid: drop"
        " it by --allowNonRestoredState (run -n, execution.state-recovery.ignore-unclaimed-state: true)."
    )


def _of_operator(
    vertex: JobVertex,
    operator: OperatorDescriptor,
    state: OperatorState | None,
    *,
    allow_non_restored: bool,
) -> OperatorFinding:
    if state is None or not has_state(state):
        return OperatorFinding(operator.name, operator.uid, Outcome.NEW)
    if was := other_kind(state, operator):
        outcome = Outcome.DROPPED if allow_non_restored else Outcome.REFUSED
        return _finding(state, operator.name, outcome, _refused_kind(operator, was))
    if _is_keyed(state) and state.max_parallelism != vertex.max_parallelism:
        reason = (
            f"operator '{operator.name}': its keyed state was written with max parallelism"
            f" {state.max_parallelism}, the job has {vertex.max_parallelism}: keys would be looked up in wrong"
            f" key groups. Set the max parallelism to {state.max_parallelism} (set_max_parallelism,"
            " pipeline.max-parallelism), or leave it unset."
        )
        return _finding(state, operator.name, Outcome.REFUSED, reason)
    try:
        keyed = (handle for _, subtask in sorted(state.subtasks.items()) for handle in subtask.keyed)
        check_keys(
            operator.name, list(keyed), key_type_of(operator.state_key_type), operator.state_key_columns
        )
    except SavepointMismatchError as error:
        return _finding(state, operator.name, Outcome.REFUSED, str(error))
    return _finding(state, operator.name, Outcome.RESTORES)


def _finding(state: OperatorState, name: str, outcome: Outcome, reason: str = "") -> OperatorFinding:
    named: dict[str, bool] = {}
    for state_name, config in _configs(state):
        named[state_name] = named.get(state_name, False) or holds_pickles(config)
    return OperatorFinding(
        name,
        state.uid,
        outcome,
        reason,
        states=tuple(named),
        pickled=tuple(state_name for state_name, pickled in named.items() if pickled),
    )


def _configs(state: OperatorState) -> Iterator[tuple[str, SerializerConfig]]:
    for _, subtask in sorted(state.subtasks.items()):
        for keyed in subtask.keyed:
            for meta in keyed.states:
                yield meta.name, meta.value
                if meta.map_key is not None:
                    yield meta.name, meta.map_key
        for handle in subtask.operator:
            for named in handle.states:
                yield named.name, named.value
                if named.map_key is not None:
                    yield named.name, named.map_key


def _is_keyed(state: OperatorState) -> bool:
    return any(subtask.keyed for subtask in state.subtasks.values())


def _unclaimed(state: OperatorState, metadata: CheckpointMetadata, job_graph: JobGraph) -> str:
    known_by = f"uid '{state.uid}'" if state.uid is not None else "no uid"
    restored = {other.operator_id for other in metadata.operators}
    alike = [
        operator
        for vertex in job_graph.vertices
        for operator in vertex.operators
        if operator.name == state.name and operator.id not in restored
    ]
    if alike and state.uid is not None:
        now = f"uid '{alike[0].uid}'" if alike[0].uid is not None else "no uid"
        hint = f"The job's operator of that name has {now}: give it back uid('{state.uid}')"
    elif state.uid is None:
        hint = (
            "Operators without a uid are known by their place in the program. Restore the old shape of the"
            " program, and give operators with state a uid"
        )
    else:
        hint = f"Give the operator that goes on with this state uid('{state.uid}')"
    return (
        f"operator '{state.name}' ({known_by}, id {state.operator_id}) of job '{metadata.job_name}' has"
        f" state in the snapshot and is not in the job. {hint}; or drop the state (run -n,"
        " execution.state-recovery.ignore-unclaimed-state: true)."
    )


# ---------------------------------------------------------------------- max parallelism


def max_parallelism_of_savepoint(
    metadata: CheckpointMetadata, job_graph: JobGraph
) -> Mapping[JobVertexID, int]:
    """Vertices with a derived max parallelism that must become the snapshot's.

    A vertex takes that of its operators' keyed state. Raises SavepointMismatchError if these differ, or are
    lower than the vertex's parallelism.
    """
    states = {state.operator_id: state for state in metadata.operators}
    adopted: dict[JobVertexID, int] = {}
    for vertex in job_graph.vertices:
        keyed = [
            states[operator.id]
            for operator in vertex.operators
            if operator.id in states
            and _is_keyed(states[operator.id])
            and not other_kind(states[operator.id], operator)
        ]
        if not keyed:
            continue
        first = keyed[0]
        for other in keyed[1:]:
            if other.max_parallelism != first.max_parallelism:
                raise SavepointMismatchError(
                    other.name,
                    f"operators '{first.name}' and '{other.name}' are chained, and the snapshot has them with max "
                    f"parallelism {first.max_parallelism} and {other.max_parallelism}. Keep them apart with "
                    "start_new_chain().",
                )
        if first.max_parallelism == vertex.max_parallelism or vertex.max_parallelism_explicit:
            continue
        if first.max_parallelism < vertex.parallelism:
            raise SavepointMismatchError(
                first.name,
                f"operator '{first.name}': parallelism {vertex.parallelism} is above the max parallelism"
                f" {first.max_parallelism} of its state in the snapshot, which cannot change. Lower the"
                " parallelism.",
            )
        adopted[vertex.id] = first.max_parallelism
    return adopted


def with_max_parallelism(job_graph: JobGraph, adopted: Mapping[JobVertexID, int]) -> JobGraph:
    """The job with these max parallelisms; use it everywhere, because producers route by their consumers' value."""
    if not adopted:
        return job_graph
    vertices = tuple(
        msgspec.structs.replace(vertex, max_parallelism=adopted.get(vertex.id, vertex.max_parallelism))
        for vertex in job_graph.vertices
    )
    return msgspec.structs.replace(job_graph, vertices=vertices)
