"""The metadata of a savepoint of history, from what its tasks and enumerators have left.

Owner: none (functions). Must not read state.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from yarrow.container.batch.history.kept_state import decode_states
from yarrow.container.operators.sources.source_reader import HISTORY_CHECKPOINT
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    InlineStateHandle,
    OperatorState,
    OperatorSubtaskState,
)


def savepoint_metadata(
    graph: JobGraph,
    states: Mapping[tuple[JobVertexID, int], bytes],
    enumerators: Mapping[JobVertexID, bytes],
    timestamp_ms: int,
) -> CheckpointMetadata:
    """The metadata of all operators of a job.

    `states` are the handles of each subtask (`write_state`), `enumerators` the states of sources' enumerators.
    """
    from yarrow import __version__

    found: dict[OperatorID, dict[int, OperatorSubtaskState]] = {}
    for (_, subtask), data in sorted(states.items()):
        for operator_id, state in decode_states(data).items():
            found.setdefault(operator_id, {})[subtask] = state
    operators = []
    for vertex in graph.vertices:
        for index, operator in enumerate(vertex.operators):
            enumerator = enumerators.get(vertex.id) if index == 0 else None
            if operator.id not in found and enumerator is None:
                continue
            operators.append(
                OperatorState(
                    operator_id=operator.id,
                    name=operator.name,
                    uid=operator.uid,
                    parallelism=vertex.parallelism,
                    max_parallelism=vertex.max_parallelism,
                    subtasks=found.get(operator.id, {}),
                    coordinator=None if enumerator is None else InlineStateHandle(data=enumerator),
                    kind=operator.spec.state_kind or UNSET,
                )
            )
    return CheckpointMetadata(
        engine_version=__version__,
        job_id=graph.job_id,
        job_name=graph.name,
        checkpoint_id=HISTORY_CHECKPOINT,
        timestamp_ms=timestamp_ms,
        kind=SnapshotKind.SAVEPOINT,
        operators=tuple(operators),
    )
