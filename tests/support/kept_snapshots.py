"""KeptSnapshots: the receiver of snapshots of a harness that keeps what barriers have cut."""

from __future__ import annotations

from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot, TaskName


class KeptSnapshots:
    """The snapshots that a test has taken; a declined checkpoint fails the test."""

    def __init__(self) -> None:
        self.taken: list[PendingSubtaskSnapshot] = []

    def deliver(self, snapshot: PendingSubtaskSnapshot) -> None:
        """SnapshotReceiver."""
        self.taken.append(snapshot)

    def decline(self, task: TaskName, checkpoint_id: int, error: BaseException) -> None:
        """SnapshotReceiver."""
        raise AssertionError(f"checkpoint {checkpoint_id} was declined: {error}") from error
