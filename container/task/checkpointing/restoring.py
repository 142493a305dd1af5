"""FetchedState: a task's restored state, fetched and verified by the snapshot thread before operators are set up.

Owner: the snapshot thread fills `FetchedState`, the task thread reads it afterwards. Files of databases may
be large, so they wait on the local disk instead of memory. Must not interpret the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from yarrow.container.protocol.failure import OperatorFailure
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
    """The bytes of a task's handles. `local_directory` belongs to the task and ends with it."""

    def __init__(self, reader: SnapshotReader, local_directory: str) -> None:
        self.reader = reader
        self._local_directory = local_directory
        self._bytes: dict[StateHandle, bytes] = {}
        self._files: dict[StateHandle, Path] = {}

    def fetch(self, descriptor: TaskDeploymentDescriptor, vertex: JobVertex) -> None:
        """Reads everything. Snapshot thread. Raises OperatorFailure with operator, states and file."""
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
            for handle, states, is_database in _handles(state):
                try:
                    self._fetch(handle, f"operator '{name}'{states}", is_database)
                except Exception as error:
                    raise OperatorFailure(name, "", error) from error

    def _fetch(self, handle: StateHandle, of: str, is_database: bool) -> None:
        if isinstance(handle, InlineStateHandle) or handle in self._bytes or handle in self._files:
            return
        if is_database:
            os.makedirs(self._local_directory, mode=0o700, exist_ok=True)
            path = Path(self._local_directory, f"restored-{len(self._files)}")
            self.reader.copy(handle, str(path), of)
            self._files[handle] = path
        else:
            self._bytes[handle] = self.reader.read(handle, of)

    def read(self, handle: StateHandle) -> bytes:
        """The bytes of a handle, which are dropped here; a later read fetches them from storage again."""
        if isinstance(handle, InlineStateHandle):
            return handle.data
        path = self._files.pop(handle, None)
        if path is not None:
            data = path.read_bytes()
            path.unlink()
            return data
        found = self._bytes.pop(handle, None)
        return self.reader.read(handle) if found is None else found


def _handles(state: OperatorSubtaskState) -> Iterator[tuple[StateHandle, str, bool]]:
    """Each handle, a text with the names of its states, and whether it is a database's file."""
    for keyed in state.keyed:
        names = _named([each.name for each in keyed.states])
        if isinstance(keyed, KeyGroupsSnapshot):
            yield keyed.handle, names, False
        else:
            for file in (*keyed.shared, *keyed.private):
                yield file.handle, names, True
    for operator in state.operator:
        yield operator.handle, _named([each.name for each in operator.states]), False
    for channel in state.channels:
        yield channel.handle, ", records in flight", False


def _named(names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return (
        f", state {shown}" if len(names) == 1 else f", states {shown}{' and more' if len(names) > 5 else ''}"
    )
