"""The SlotManager's knowledge of a slot: its state machine, its job, and its profile.

Owner: the SlotManager. Values and checks alone; the SlotManager decides who gets a slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from yarrow.runtime.common.ids import AllocationID, JobID, ResourceID
from yarrow.runtime.common.state_machine import IllegalTransitionError, transitions
from yarrow.runtime.rpc.messages import ResourceProfile, SlotID


class SlotState(Enum):
    """The state of a slot, as the SlotManager believes it."""

    FREE = "FREE"
    PENDING = "PENDING"
    ALLOCATED = "ALLOCATED"
    UNKNOWN = "UNKNOWN"


#: An ALLOCATED slot reaches another job only through FREE.
SLOT_TRANSITIONS: Mapping[SlotState, frozenset[SlotState]] = transitions(
    {
        SlotState.FREE: (SlotState.PENDING, SlotState.ALLOCATED),
        SlotState.PENDING: (SlotState.ALLOCATED, SlotState.FREE, SlotState.UNKNOWN),
        SlotState.ALLOCATED: (SlotState.FREE,),
        SlotState.UNKNOWN: (SlotState.FREE, SlotState.ALLOCATED),
    }
)


class Slot(msgspec.Struct):
    """One slot of a registered TaskExecutor."""

    slot_id: SlotID
    profile: ResourceProfile
    state: SlotState = SlotState.FREE
    #: Set while PENDING or ALLOCATED.
    allocation_id: AllocationID | None = None
    job_id: JobID | None = None
    #: The requirement that the allocation serves.
    requested: ResourceProfile | None = None

    def enter(self, state: SlotState) -> None:
        """Changes the state. Raises IllegalTransitionError if SLOT_TRANSITIONS has no such edge."""
        if state is not self.state:
            if state not in SLOT_TRANSITIONS[self.state]:
                raise IllegalTransitionError(
                    f"slot {self.slot_id.index} of {self.slot_id.resource_id}: no transition from"
                    f" {self.state.name} to {state.name}"
                )
            self.state = state


class RegisteredTaskExecutor(msgspec.Struct):
    """A TaskExecutor with its slots."""

    resource_id: ResourceID
    slots: dict[int, Slot]
    #: Sequence number of the newest accepted report.
    report_sequence: int
    #: Monotonic time in seconds since which no slot is in use; None while one is.
    idle_since: float | None

    @property
    def free(self) -> int:
        """Number of free slots."""
        return sum(slot.state is SlotState.FREE for slot in self.slots.values())

    def note_idleness(self, now: float) -> None:
        """Updates `idle_since`; call it after a slot has changed."""
        if any(slot.state is not SlotState.FREE for slot in self.slots.values()):
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = now


def fits(slot: ResourceProfile, wanted: ResourceProfile) -> bool:
    """True if a slot of that profile can serve the requirement; -1 is unspecified on either side."""

    def enough(have: float, want: float) -> bool:
        return want < 0 or have < 0 or have >= want

    return enough(slot.cpu_cores, wanted.cpu_cores) and enough(slot.memory_bytes, wanted.memory_bytes)
