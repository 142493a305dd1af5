"""SlotPool: the slots that a job holds, and the shared slot that each of them serves.

Owner: the JobMaster's loop. Pure; times are passed in. A shared slot (group, i) holds subtask i of every
vertex of its slot sharing group, which keeps forward edges local. Each group needs as many shared slots as
its largest parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from yarrow.am.execution.execution_graph import unknown_worker
from yarrow.runtime.common.ids import AllocationID, ResourceID
from yarrow.runtime.rpc.messages import ResourceProfile, SlotOffer, WorkerAddress

#: Longer ago than any slot.idle.timeout; finite, so that JSON can hold it.
_LONG_AGO: Final = -1e300


class SharedSlot(NamedTuple):
    """The slot of one subtask index of a slot sharing group."""

    group: str
    subtask: int


class HeldSlot(msgspec.Struct):
    """A slot that a TaskExecutor gave to the job."""

    allocation_id: AllocationID
    resource_id: ResourceID
    slot_index: int
    profile: ResourceProfile
    worker: WorkerAddress
    #: The shared slot that it serves; None while idle.
    shared: SharedSlot | None = None
    #: Monotonic time in seconds at which it became idle; without meaning while used.
    idle_since: float = 0.0


class HeldSlotSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A HeldSlot without the parts that no decision reads."""

    allocation_id: AllocationID
    resource_id: ResourceID
    slot_index: int
    #: The worker's TaskExecutor.
    worker: ResourceID
    shared: SharedSlot | None
    idle_since: float


class SlotPoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state by which a SlotPool decides; sequences keep its order."""

    idle_timeout: float
    at_least: int
    slots: tuple[HeldSlotSnapshot, ...]
    waiting: tuple[SharedSlot, ...]
    #: Shared slot, TaskExecutor, slot index.
    places: tuple[tuple[SharedSlot, ResourceID, int], ...]
    #: TaskExecutor, slot index, shared slot.
    homes: tuple[tuple[ResourceID, int, SharedSlot], ...]


class SlotPool:
    """Takes slot offers, and assigns slots to shared slots."""

    def __init__(self, idle_timeout: float) -> None:
        self._idle_timeout = idle_timeout
        self._held: dict[AllocationID, HeldSlot] = {}
        self._assigned: dict[SharedSlot, HeldSlot] = {}
        #: Needed shared slots without a slot, in the order of the requests.
        self._waiting: dict[SharedSlot, None] = {}
        #: The last place of each shared slot: TaskExecutor and slot index.
        self._places: dict[SharedSlot, tuple[ResourceID, int]] = {}
        #: The last shared slot of each place.
        self._homes: dict[tuple[ResourceID, int], SharedSlot] = {}
        #: Least number of wanted slots, whatever is needed now.
        self._at_least = 0

    def snapshot(self) -> SlotPoolSnapshot:
        """The present state, by which the pool decides."""
        return SlotPoolSnapshot(
            idle_timeout=self._idle_timeout,
            at_least=self._at_least,
            slots=tuple(
                HeldSlotSnapshot(
                    allocation_id=slot.allocation_id,
                    resource_id=slot.resource_id,
                    slot_index=slot.slot_index,
                    worker=slot.worker.resource_id,
                    shared=slot.shared,
                    idle_since=slot.idle_since,
                )
                for slot in self._held.values()
            ),
            waiting=tuple(self._waiting),
            places=tuple((shared, *place) for shared, place in self._places.items()),
            homes=tuple((*place, shared) for place, shared in self._homes.items()),
        )

    @classmethod
    def restored(cls, snapshot: SlotPoolSnapshot) -> SlotPool:
        """The pool of a snapshot, for decisions alone: of workers only ids are known."""
        pool = cls(snapshot.idle_timeout)
        pool._at_least = snapshot.at_least
        for kept in snapshot.slots:
            slot = HeldSlot(
                kept.allocation_id,
                kept.resource_id,
                kept.slot_index,
                ResourceProfile(),
                unknown_worker(kept.worker),
                kept.shared,
                kept.idle_since,
            )
            pool._held[slot.allocation_id] = slot
            if slot.shared is not None:
                pool._assigned[slot.shared] = slot
        pool._waiting = dict.fromkeys(snapshot.waiting)
        pool._places = {shared: (resource_id, index) for shared, resource_id, index in snapshot.places}
        pool._homes = {(resource_id, index): shared for resource_id, index, shared in snapshot.homes}
        return pool

    @property
    def required(self) -> int:
        """How many slots to declare: held and awaited ones, or the wanted minimum if that is more."""
        return max(len(self._held) + len(self._waiting), self._at_least)

    @property
    def held(self) -> int:
        """The number of slots that the job holds."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """The number of shared slots without a slot."""
        return len(self._waiting)

    @property
    def at_least(self) -> int:
        """The least number of wanted slots, whatever is needed now."""
        return self._at_least

    def want_at_least(self, slots: int) -> None:
        """Takes and keeps at least so many slots, used or not.

        With 0, idle ones are given up at the next look.
        """
        self._at_least = slots

    def slot(self, shared: SharedSlot) -> HeldSlot | None:
        """The slot that serves as `shared`; None while it waits."""
        return self._assigned.get(shared)

    def allocation(self, allocation_id: AllocationID) -> HeldSlot | None:
        """The held slot of that allocation."""
        return self._held.get(allocation_id)

    def require(self, wanted: Iterable[SharedSlot]) -> None:
        """Needs these shared slots: idle slots are used first, preferably the former ones; the rest waits."""
        missing = dict.fromkeys(
            shared for shared in wanted if shared not in self._assigned and shared not in self._waiting
        )
        if not missing:
            return
        idle = {_place(slot): slot for slot in self._held.values() if slot.shared is None}
        for shared in missing:
            own = idle.pop(self._places[shared], None) if shared in self._places else None
            if own is not None:
                self._assign(own, shared)
        for shared in missing:
            if shared in self._assigned:
                continue
            if idle:
                self._assign(idle.pop(next(iter(idle))), shared)
            else:
                self._waiting[shared] = None

    def offer(self, resource_id: ResourceID, offers: Iterable[SlotOffer]) -> tuple[AllocationID, ...]:
        """Takes the offers that are needed, and again those already taken; returns their allocations."""
        taken = []
        for offer in offers:
            known = self._held.get(offer.allocation_id)
            if known is not None:
                known.worker = offer.worker
                taken.append(offer.allocation_id)
            elif self._waiting or len(self._held) < self._at_least:
                slot = HeldSlot(
                    offer.allocation_id,
                    resource_id,
                    offer.slot_index,
                    offer.profile,
                    offer.worker,
                    # A slot that is taken and not used is given up once it is not wanted any more.
                    idle_since=_LONG_AGO,
                )
                self._held[offer.allocation_id] = slot
                if self._waiting:
                    self._assign(slot, self._best_for(slot))
                taken.append(offer.allocation_id)
        return tuple(taken)

    def _best_for(self, slot: HeldSlot) -> SharedSlot:
        """The shared slot that ran in that slot before its worker died, else the one that waits longest."""
        former = self._homes.get(_place(slot))
        return former if former in self._waiting else next(iter(self._waiting))

    def _assign(self, slot: HeldSlot, shared: SharedSlot) -> None:
        self._waiting.pop(shared, None)
        slot.shared = shared
        self._assigned[shared] = slot
        self._places[shared] = place = _place(slot)
        self._homes[place] = shared

    def release(self, shared: SharedSlot, now: float) -> None:
        """Frees `shared`, which no task needs: its slot becomes idle, or the wait for one ends."""
        self._waiting.pop(shared, None)
        slot = self._assigned.pop(shared, None)
        if slot is not None:
            slot.shared = None
            slot.idle_since = now

    def release_unless(self, is_needed: Callable[[SharedSlot], bool]) -> None:
        """Frees shared slots that the job does not have any more; their slots are given up at the next look."""
        for shared in [*self._assigned, *self._waiting]:
            if not is_needed(shared):
                self.release(shared, _LONG_AGO)

    def take_idle(self, now: float) -> list[HeldSlot]:
        """Gives up unwanted slots that were idle for longer than slot.idle.timeout.

        The caller frees them.
        """
        idle = [
            slot
            for slot in self._held.values()
            if slot.shared is None and now - slot.idle_since >= self._idle_timeout
        ]
        del idle[max(0, len(self._held) - self._at_least) :]
        for slot in idle:
            del self._held[slot.allocation_id]
        return idle

    def remove(self, allocation_id: AllocationID) -> HeldSlot | None:
        """Removes a lost slot. Its shared slot waits for another one only when it is required again."""
        slot = self._held.pop(allocation_id, None)
        if slot is not None and slot.shared is not None:
            self._assigned.pop(slot.shared, None)
        return slot

    def remove_task_executor(self, resource_id: ResourceID) -> list[HeldSlot]:
        """Removes all slots of a lost TaskExecutor."""
        lost = [slot for slot in self._held.values() if slot.resource_id == resource_id]
        for slot in lost:
            self.remove(slot.allocation_id)
        return lost

    def clear(self) -> list[HeldSlot]:
        """Needs no slot any more. Returns all slots for the caller to free."""
        slots = list(self._held.values())
        self._held.clear()
        self._assigned.clear()
        self._waiting.clear()
        self._at_least = 0
        return slots

    def held_slots(self) -> list[HeldSlot]:
        """All slots of the job."""
        return list(self._held.values())

    def allocations_of(self, resource_id: ResourceID) -> tuple[tuple[int, AllocationID], ...]:
        """Pairs (slot index, allocation) of a TaskExecutor's slots for this job."""
        return tuple(
            (slot.slot_index, slot.allocation_id)
            for slot in self._held.values()
            if slot.resource_id == resource_id
        )


def _place(slot: HeldSlot) -> tuple[ResourceID, int]:
    return slot.resource_id, slot.slot_index
