"""CheckpointsCleaner: what a checkpoint that does not complete leaves behind, and when it may go.

Owner: the CheckpointCoordinator. Pure: actions come out. Aborted while its folder or metadata is being written, it is
discarded when that is over; where another master may find it all the same, its files stay until that is settled. Files
that come late go whenever they come. Shared files go when no checkpoint needs them that is kept or under way.
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

#: Ended checkpoints whose late messages are still known by their folder.
_REMEMBERED = 64


class CheckpointsCleaner:
    """Of one job."""

    def __init__(
        self,
        store: CompletedCheckpointStore,
        registry: SharedStateRegistry,
        pending: Mapping[int, PendingCheckpoint],
    ) -> None:
        """`pending`: those under way, as they are at the time of asking."""
        self._store = store
        self._registry = registry
        self._pending = pending
        #: Aborted while their folder or metadata was being written: discarded when that is over.
        self._writing: dict[int, PendingCheckpoint] = {}
        #: Folders of ended checkpoints that did not complete, by id; newest last.
        self._aborted: OrderedDict[int, CheckpointLocation | None] = OrderedDict()
        #: Aborted, and perhaps to be found by another master all the same.
        self._doubtful: dict[int, CompletedCheckpoint] = {}

    @property
    def in_doubt(self) -> bool:
        """True while another master might find an aborted checkpoint: no task may begin from an older one."""
        return bool(self._doubtful) or any(aborted.stored is not None for aborted in self._writing.values())

    def under_way(self) -> list[int]:
        """Checkpoints that may refer to shared files of completed ones."""
        return [pending.checkpoint_id for pending in self._pending.values() if not pending.kind.is_savepoint]

    def aborted(self, pending: PendingCheckpoint, state: CheckpointState) -> list[Action]:
        """One was in that state, and is not under way any more."""
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
        """Shared files of dropped checkpoints that were kept for this one, which has ended."""
        shared = self._unneeded(self._registry.ended(checkpoint_id))
        return [DiscardLocation(checkpoint_id, CheckpointLocation(directory=""), shared)] if shared else []

    def late(
        self, message: AcknowledgeCheckpoint | AcknowledgeCoordinator | DeclineCheckpoint
    ) -> list[Action]:
        """Deletes files of a checkpoint that did not complete, whenever they come.

        A task that declines may have begun some.
        """
        location = self._aborted.get(message.checkpoint_id)
        if location is None or message.checkpoint_id in self._writing:
            return []
        shared: tuple[str, ...] = ()
        if isinstance(message, AcknowledgeCheckpoint):
            shared = self._unneeded(shared_paths(message, location.directory))
        return [DiscardLocation(message.checkpoint_id, location, shared)]

    # What was being written for an aborted one.

    def located(self, checkpoint_id: int, location: CheckpointLocation) -> list[Action]:
        """Its folder is there."""
        aborted = self._writing.pop(checkpoint_id, None)
        if aborted is None:
            return []
        aborted.location = location
        return self._discard(aborted)

    def not_located(self, checkpoint_id: int) -> None:
        """It has no folder: nothing is left."""
        self._writing.pop(checkpoint_id, None)

    def stored(self, checkpoint_id: int, pointer: str) -> list[Action]:
        """Its metadata are there, and the pointer to them."""
        if pointer and checkpoint_id in self._writing:
            # Another master may find it by now: its files go when its pointer is gone.
            return self.doubt(checkpoint_id, pointer)
        return self.not_stored(checkpoint_id, pointer)

    def not_stored(self, checkpoint_id: int, pointer: str = "") -> list[Action]:
        """Nobody can find it. `pointer`: where its metadata are all the same, "" = nowhere."""
        aborted = self._writing.pop(checkpoint_id, None)
        if aborted is None:
            return []
        if pointer:
            # Where all state is inline the metadata alone may have a folder.
            aborted.location = CheckpointLocation(directory=pointer)
        return [self._tell_aborted(checkpoint_id), *self._discard(aborted)]

    def doubt(self, checkpoint_id: int, pointer: str) -> list[Action]:
        """Another master may find it: it is kept as if it were complete until nobody can any more."""
        aborted = self._writing.pop(checkpoint_id)
        self._aborted[checkpoint_id] = None
        doubtful = aborted.completed(pointer)
        self._doubtful[checkpoint_id] = doubtful
        self._registry.register(checkpoint_id, doubtful.shared)
        return [SettleDoubt(checkpoint_id)]

    def settled(self, checkpoint_id: int) -> list[Action]:
        """Nobody can find it any more."""
        location = CheckpointLocation(directory=self._doubtful.pop(checkpoint_id).pointer)
        shared = self._registry.release(checkpoint_id, self.under_way())
        return [self._tell_aborted(checkpoint_id), DiscardLocation(checkpoint_id, location, shared)]

    def _tell_aborted(self, checkpoint_id: int) -> Action:
        """Only when no master can find it any more: sinks give up what they have prepared for it."""
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
