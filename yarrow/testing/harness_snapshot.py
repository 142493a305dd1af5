"""HarnessSnapshot: the state of all operators of a harness at one cut, and its division among other subtasks.

Owner: the test's thread. It is the content of a savepoint, kept in memory. Must not know fragments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from yarrow.container.operators.base import RestoredState
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    FileStateHandle,
    InlineStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StateHandle,
)

#: A vertex and the number of one of its subtasks, from 0.
Subtask = tuple[JobVertexID, int]


class MemoryOutput:
    """A SnapshotOutput that keeps everything in its handles. A savepoint shares no files."""

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        """The chunks as one piece."""
        return InlineStateHandle(data=b"".join(chunks))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        """Raises AssertionError: only checkpoints share files."""
        raise AssertionError(f"a savepoint shares no files, but {local_path} was to be shared")

    def write_own_file(self, local_path: str) -> StateHandle:
        """The content of a file."""
        return InlineStateHandle(data=Path(local_path).read_bytes())


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """The state of all operators at one cut; made by `OperatorHarness.snapshot`."""

    metadata: CheckpointMetadata

    @staticmethod
    def of(
        graph: JobGraph,
        checkpoint_id: int,
        epoch_ms: int,
        states: Mapping[Subtask, Mapping[OperatorID, OperatorSubtaskState]],
    ) -> HarnessSnapshot:
        """The states of subtasks, by operator, at a time of the harness's clock."""
        operators = []
        for vertex in graph.vertices:
            for operator in vertex.operators:
                subtasks = {
                    number: own[operator.id]
                    for (vertex_id, number), own in states.items()
                    if vertex_id == vertex.id and operator.id in own
                }
                if subtasks:
                    operators.append(
                        OperatorState(
                            operator_id=operator.id,
                            name=operator.name,
                            uid=operator.uid,
                            parallelism=vertex.parallelism,
                            max_parallelism=vertex.max_parallelism,
                            subtasks=subtasks,
                            kind=operator.spec.state_kind or UNSET,
                        )
                    )
        metadata = CheckpointMetadata(
            engine_version="the operator harness",
            job_id=graph.job_id,
            job_name=graph.name,
            checkpoint_id=checkpoint_id,
            timestamp_ms=epoch_ms,
            kind=SnapshotKind.SAVEPOINT,
            operators=tuple(operators),
        )
        return HarnessSnapshot(metadata)

    def divided(self, graph: JobGraph) -> dict[Subtask, RestoredState]:
        """The state of each subtask of a graph, at the parallelism that it has.

        Raises SavepointMismatchError if state has no operator in the graph, or does not fit it.
        """
        tasks = assign(self.metadata, graph).tasks
        return {
            (vertex.id, number): RestoredState(
                self.metadata.checkpoint_id, tasks.get((vertex.id, number), {}), _read
            )
            for vertex in graph.vertices
            for number in range(vertex.parallelism)
        }


def _read(handle: StateHandle) -> bytes:
    assert isinstance(handle, InlineStateHandle), "MemoryOutput made it"
    return handle.data
