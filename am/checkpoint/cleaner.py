"""CheckpointsCleaner: deletes the files of checkpoints that do not complete, as soon as that is safe.

Owner: the CheckpointCoordinator. Pure: returns actions. A checkpoint that is aborted while its folder or
metadata is being written is discarded after that write. If another master may still find the checkpoint, its
files stay until no master can. Files that arrive late are deleted on arrival. A shared file is deleted when
no kept or pending checkpoint needs it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from yarrow.am.checkpoint.completed import CompletedCheckpoint, CompletedCheckpointStore
from yarrow.am.checkpoint.events import Action, DiscardLocation, Notify, SettleDoubt
from yarrow.am.checkpoint.pending import CheckpointState, PendingCheckpoint, shared_paths
from yarrow.am.checkpoint.shared_state import SharedStateRegistry
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointNotice,
    DeclineCheckpoint,
)

#: Number of ended checkpoints whose folders are remembered for late messages.
_REMEMBERED = 64


class CheckpointsCleaner:
    """The leftovers of one job's aborted checkpoints."""

    def __init__(
        self,
        store: CompletedCheckpointStore,
        registry: SharedStateRegistry,
        pending: Mapping[int, PendingCheckpoint],
    ) -> None:
        """`pending`: the pending checkpoints; the mapping is always current."""
        self._store = store
        self._registry = registry
        self._pending = pending
        #: Aborted while their folder or metadata was being written: discarded after that write.
        self._writing: dict[int, PendingCheckpoint] = {}
        #: Folders of aborted checkpoints by id, newest last.
        self._aborted: OrderedDict[int, CheckpointLocation | None] = OrderedDict()
        #: Aborted checkpoints that another master may still find.
        self._doubtful: dict[int, CompletedCheckpoint] = {}

    @property
    def in_doubt(self) -> bool:
        """True while the `_metadata` of an aborted checkpoint may exist.

        No task may be restored from an older one.
        """
        return bool(self._doubtful) or any(aborted.stored is not None for aborted in self._writing.values())

    def under_way(self) -> list[int]:
        """Ids of checkpoints that may refer to shared files of completed ones."""
        return [pending.checkpoint_id for pending in self._pending.values() if not pending.kind.is_savepoint]

    def aborted(self, pending: PendingCheckpoint, state: CheckpointState) -> list[Action]:
        """Takes a checkpoint that was in `state` and is not pending any more."""
        checkpoint_id = pending.checkpoint_id
        self._aborted[checkpoint_id] = pending.location
        while len(self._aborted) > _REMEMBERED:
            self._aborted.popitem(last=False)
        actions: list[Action] = []
        if pending.plan is not None and state is not CheckpointState.STORING:
            actions.append(self._tell_aborted(checkpoint_id))
        if state is CheckpointState.STORING or (
            state is CheckpointState.LOCATING and pending.location is None
        ):
            self._writing[checkpoint_id] = pending
        else:
            actions += self._discard(pending)
        return [*actions, *self.no_longer_awaited(checkpoint_id)]

    def no_longer_awaited(self, checkpoint_id: int) -> list[Action]:
        """Deletes shared files of dropped checkpoints that were kept only for this one, which has ended."""
        shared = self._unneeded(self._registry.ended(checkpoint_id))
        return [DiscardLocation(checkpoint_id, CheckpointLocation(directory=""), shared)] if shared else []

    def late(
        self, message: AcknowledgeCheckpoint | AcknowledgeCoordinator | DeclineCheckpoint
    ) -> list[Action]:
        """Deletes files that arrive late for an aborted checkpoint.

        A task that declines may have written some.
        """
        location = self._aborted.get(message.checkpoint_id)
        if location is None or message.checkpoint_id in self._writing:
            return []
        shared: tuple[str, ...] = ()
        if isinstance(message, AcknowledgeCheckpoint):
            shared = self._unneeded(shared_paths(message, location.directory))
        return [DiscardLocation(message.checkpoint_id, location, shared)]

    # Writes for aborted checkpoints.

    def located(self, checkpoint_id: int, location: CheckpointLocation) -> list[Action]:
        """Takes the folder of an aborted checkpoint."""
        aborted = self._writing.pop(checkpoint_id, None)
        if aborted is None:
            return []
        aborted.location = location
        return self._discard(aborted)

    def not_located(self, checkpoint_id: int) -> None:
        """Forgets an aborted checkpoint without a folder: nothing is left of it."""
        self._writing.pop(checkpoint_id, None)

    def stored(self, checkpoint_id: int, pointer: str) -> list[Action]:
        """Takes an aborted checkpoint whose metadata and pointer were written."""
        if pointer and checkpoint_id in self._writing:
            # Another master may find it by now: its files are deleted when its pointer is gone.
            return self.doubt(checkpoint_id, pointer)
        return self.not_stored(checkpoint_id, pointer)

    def not_stored(self, checkpoint_id: int, pointer: str = "") -> list[Action]:
        """Takes an aborted checkpoint that no master can find.

        `pointer`: where its metadata lie nevertheless, "" = nowhere.
        """
        aborted = self._writing.pop(checkpoint_id, None)
        if aborted is None:
            return []
        if pointer:
            # If all state is inline, only the metadata may have a folder.
            aborted.location = CheckpointLocation(directory=pointer)
        return [self._tell_aborted(checkpoint_id), *self._discard(aborted)]

    def doubt(self, checkpoint_id: int, pointer: str) -> list[Action]:
        """Keeps a checkpoint that another master may find like a complete one, until no master can find it."""
        aborted = self._writing.pop(checkpoint_id)
        self._aborted[checkpoint_id] = None
        doubtful = aborted.completed(pointer)
        self._doubtful[checkpoint_id] = doubtful
        self._registry.register(checkpoint_id, doubtful.shared)
        return [SettleDoubt(checkpoint_id)]

    def settled(self, checkpoint_id: int) -> list[Action]:
        """Deletes a checkpoint that no master can find any more."""
        location = CheckpointLocation(directory=self._doubtful.pop(checkpoint_id).pointer)
        shared = self._registry.release(checkpoint_id, self.under_way())
        return [self._tell_aborted(checkpoint_id), DiscardLocation(checkpoint_id, location, shared)]

    def _tell_aborted(self, checkpoint_id: int) -> Action:
        """Tells sinks to give up prepared transactions; called only when no master can find the checkpoint any more."""
        latest = self._store.latest
        return Notify(checkpoint_id, CheckpointNotice.ABORTED, latest.checkpoint_id if latest else -1)

    def _discard(self, aborted: PendingCheckpoint) -> list[Action]:
        self._aborted[aborted.checkpoint_id] = aborted.location
        if aborted.location is None:
            return []
        shared = self._unneeded(aborted.shared_paths())
        return [DiscardLocation(aborted.checkpoint_id, aborted.location, shared)]

    def _unneeded(self, paths: Iterable[str]) -> tuple[str, ...]:
        needed = {path for pending in self._pending.values() for path in pending.shared_paths()}
        return tuple(path for path in self._registry.unneeded(paths) if path not in needed)
