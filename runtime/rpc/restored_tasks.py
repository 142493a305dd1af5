"""RestoredTasks: the restored state of a Deployment's tasks, apart from the Deployment.

Small states are inline, and many of them are too long for one message.

Owner: none (pure). The bytes are sent as a blob, under the key in the Deployment.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.rpc.messages import Deployment
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.snapshot.handles import OperatorSubtaskState, StateHandle


class RestoredTask(Message, frozen=True, kw_only=True):
    """The fields of a TaskDeploymentDescriptor that hold state."""

    attempt_id: ExecutionAttemptID
    restore: dict[OperatorID, OperatorSubtaskState]
    restore_coordinator: StateHandle | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[RestoredTask, ...])


def restored_bytes(deployment: Deployment) -> bytes:
    """The restored state of its tasks; empty if they restore none."""
    restored = [
        RestoredTask(
            attempt_id=task.attempt_id, restore=task.restore, restore_coordinator=task.restore_coordinator
        )
        for task in deployment.tasks
        if task.restore or task.restore_coordinator is not None
    ]
    return _ENCODER.encode(restored) if restored else b""


def without_restored(deployment: Deployment, blob_key: str) -> Deployment:
    """The deployment with the blob of `restored_bytes` in place of the state."""
    tasks = tuple(
        msgspec.structs.replace(task, restore={}, restore_coordinator=None) for task in deployment.tasks
    )
    return msgspec.structs.replace(deployment, tasks=tasks, restored_blob_key=blob_key)


def with_restored(deployment: Deployment, data: bytes) -> Deployment:
    """The deployment with the state of the blob. Raises msgspec.MsgspecError for bytes of another form."""
    found = {each.attempt_id: each for each in _DECODER.decode(data)}
    tasks = tuple(
        task
        if (restored := found.get(task.attempt_id)) is None
        else msgspec.structs.replace(
            task, restore=restored.restore, restore_coordinator=restored.restore_coordinator
        )
        for task in deployment.tasks
    )
    return msgspec.structs.replace(deployment, tasks=tasks, restored_blob_key="")
