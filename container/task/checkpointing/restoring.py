"""State of a task on its way back: fetched and verified by the snapshot thread before its operators are set up.

Owner: `FetchedState` is filled by the snapshot thread and read by the task thread afterwards. Must not know what the
bytes mean.
"""

from __future__ import annotations

from yarrow.container.task.failure import OperatorFailure
from yarrow.runtime.common import fault_points
from yarrow.runtime.graph.job_graph import JobVertex
from yarrow.runtime.rpc.messages import TaskDeploymentDescriptor
from yarrow.runtime.snapshot.handles import (
    InlineStateHandle,
    KeyGroupsSnapshot,
    OperatorSubtaskState,
    StateHandle,
)
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader


class FetchedState:
    """The bytes of a task's handles."""

    def __init__(self) -> None:
        self._bytes: dict[StateHandle, bytes] = {}

    def fetch(self, descriptor: TaskDeploymentDescriptor, vertex: JobVertex, reader: SnapshotReader) -> None:
        """Snapshot thread: reads everything. Raises OperatorFailure naming operator, states and file."""
        fault_points.reach(
            "restore.inside",
            checkpoint_id=descriptor.restored_checkpoint_id,
            task=vertex.name,
            subtask=descriptor.subtask,
            attempt=descriptor.attempt_number,
        )
        names = {operator.id: operator.name for operator in vertex.operators}
        for operator_id, state in descriptor.restore.items():
            name = names.get(operator_id, operator_id)
            for handle, states in _handles(state):
                if isinstance(handle, InlineStateHandle) or handle in self._bytes:
                    continue
                try:
                    self._bytes[handle] = reader.read(handle, f"operator '{name}'{states}")
                except Exception as error:
                    raise OperatorFailure(name, "", error) from error

    def read(self, handle: StateHandle) -> bytes:
        """The bytes of a handle; those of a file are let go of."""
        if isinstance(handle, InlineStateHandle):
            return handle.data
        return self._bytes.pop(handle)


def _handles(state: OperatorSubtaskState) -> list[tuple[StateHandle, str]]:
    """Each handle with the names of the states in it, as a part of a message."""
    found: list[tuple[StateHandle, str]] = []
    for keyed in state.keyed:
        names = _named([each.name for each in keyed.states])
        if isinstance(keyed, KeyGroupsSnapshot):
            found.append((keyed.handle, names))
        else:
            found += [(file.handle, names) for file in (*keyed.shared, *keyed.private)]
    for operator in state.operator:
        found.append((operator.handle, _named([each.name for each in operator.states])))
    found += [(channel.handle, ", records in flight") for channel in state.channels]
    return found


def _named(names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return (
        f", state {shown}" if len(names) == 1 else f", states {shown}{' and more' if len(names) > 5 else ''}"
    )
