"""SlotPool: the slots that a job holds, and which shared slot each of them is.

Owner: the JobMaster's loop. Pure; times are given. A shared slot (group, i) holds subtask i of every vertex
of its slot sharing group, which keeps forward edges local. A job needs, for each group, as many as its
largest parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from yarrow.am.execution.execution_graph import unknown_worker
from yarrow.runtime.common.ids import AllocationID, ResourceID
from yarrow.runtime.rpc.messages import ResourceProfile, SlotOffer, WorkerAddress

#: Longer ago than any slot.idle.timeout; finite, so that JSON can tell it.
_LONG_AGO: Final = -1e300


class SharedSlot(NamedTuple):
    """The slot of one subtask index of a slot sharing group."""

    group: str
    subtask: int


@dataclass(slots=True)
class HeldSlot:
    """A slot that a TaskExecutor gave to the job."""

    allocation_id: AllocationID
    resource_id: ResourceID
    slot_index: int
    profile: ResourceProfile
    worker: WorkerAddress
    #: What it is used as; None while idle.
    shared: SharedSlot | None = None
    #: Since when it is idle; of no meaning while used.
    idle_since: float = 0.0


class HeldSlotSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A HeldSlot without what only its user needs to know."""

    allocation_id: AllocationID
    resource_id: ResourceID
    slot_index: int
    #: The TaskExecutor of the worker, as the worker's address tells it.
    worker: ResourceID
    shared: SharedSlot | None
    idle_since: float


class SlotPoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a SlotPool decides by; sequences are in its order."""

    idle_timeout: float
    at_least: int
    slots: tuple[HeldSlotSnapshot, ...]
    waiting: tuple[SharedSlot, ...]
    #: Shared slot, TaskExecutor, slot index.
    places: tuple[tuple[SharedSlot, ResourceID, int], ...]
    #: TaskExecutor, slot index, shared slot.
    homes: tuple[tuple[ResourceID, int, SharedSlot], ...]


class SlotPool:
    """Offers in, assignments out."""

    def __init__(self, idle_timeout: float) -> None:
        self._idle_timeout = idle_timeout
        self._held: dict[AllocationID, HeldSlot] = {}
        self._assigned: dict[SharedSlot, HeldSlot] = {}
        #: Needed and without a slot, in the order in which they were asked for.
        self._waiting: dict[SharedSlot, None] = {}
        #: Where each shared slot was last: TaskExecutor and slot index.
        self._places: dict[SharedSlot, tuple[ResourceID, int]] = {}
        #: What was last in each place.
        self._homes: dict[tuple[ResourceID, int], SharedSlot] = {}
        #: So many are wanted in all, whatever is needed now.
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
        """How many slots to declare: those held and those still waited for, or more that are wanted in all."""
        return max(len(self._held) + len(self._waiting), self._at_least)

    @property
    def held(self) -> int:
        """How many slots the job has."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many shared slots have none yet."""
        return len(self._waiting)

    @property
    def at_least(self) -> int:
        """How many are wanted in all, whatever is needed now."""
        return self._at_least

    def want_at_least(self, slots: int) -> None:
        """So many are taken and not given up, used or not. 0: what is idle then is given up at the next look."""
        self._at_least = slots

    def slot(self, shared: SharedSlot) -> HeldSlot | None:
        """The slot that serves as `shared`; None while it waits."""
        return self._assigned.get(shared)

    def allocation(self, allocation_id: AllocationID) -> HeldSlot | None:
        """The held slot of that allocation."""
        return self._held.get(allocation_id)

    def require(self, wanted: Iterable[SharedSlot]) -> None:
        """These shared slots are needed: idle slots are used first, the former one by choice; the rest waits."""
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
        """Takes the offers that are needed, and again those it already took; their allocations."""
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
                    # What is taken and not used goes when it is not wanted any more.
                    idle_since=_LONG_AGO,
                )
                self._held[offer.allocation_id] = slot
                if self._waiting:
                    self._assign(slot, self._best_for(slot))
                taken.append(offer.allocation_id)
        return tuple(taken)

    def _best_for(self, slot: HeldSlot) -> SharedSlot:
        """What was in that slot before its worker died goes back there; else what waits longest."""
        former = self._homes.get(_place(slot))
        return former if former in self._waiting else next(iter(self._waiting))

    def _assign(self, slot: HeldSlot, shared: SharedSlot) -> None:
        self._waiting.pop(shared, None)
        slot.shared = shared
        self._assigned[shared] = slot
        self._places[shared] = place = _place(slot)
        self._homes[place] = shared

    def release(self, shared: SharedSlot, now: float) -> None:
        """Nothing of `shared` runs or will run: its slot is idle from now on, or no more waited for."""
        self._waiting.pop(shared, None)
        slot = self._assigned.pop(shared, None)
        if slot is not None:
            slot.shared = None
            slot.idle_since = now

    def release_unless(self, is_needed: Callable[[SharedSlot], bool]) -> None:
        """Shared slots that the job does not have any more: theirs are idle, and given up at the next look."""
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
        """The slot is lost; what it was used as waits for another only when required again."""
        slot = self._held.pop(allocation_id, None)
        if slot is not None and slot.shared is not None:
            self._assigned.pop(slot.shared, None)
        return slot

    def remove_task_executor(self, resource_id: ResourceID) -> list[HeldSlot]:
        """All slots of a TaskExecutor are lost."""
        lost = [slot for slot in self._held.values() if slot.resource_id == resource_id]
        for slot in lost:
            self.remove(slot.allocation_id)
        return lost

    def clear(self) -> list[HeldSlot]:
        """Needs nothing any more: gives up all slots, to be freed by the caller."""
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
        """(slot index, allocation) of what a TaskExecutor has for this job."""
        return tuple(
            (slot.slot_index, slot.allocation_id)
            for slot in self._held.values()
            if slot.resource_id == resource_id
        )


def _place(slot: HeldSlot) -> tuple[ResourceID, int]:
    return slot.resource_id, slot.slot_index
