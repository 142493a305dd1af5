"""SlotMatching: which free slot serves a requirement (cluster.evenly-spread-out-slots).

Owner: the SlotManager. Pure decisions; chance comes from the injected ids.
"""

from __future__ import annotations

from yarrow.am.resourcemanager.slots import Slot, fits
from yarrow.runtime.common.ids import IdFactory, ResourceID
from yarrow.runtime.rpc.messages import ResourceProfile


class SlotMatching:
    """Chooses a slot of the least used TaskExecutor, or any slot."""

    def __init__(self, evenly_spread_out: bool, ids: IdFactory) -> None:
        self._evenly_spread_out = evenly_spread_out
        self._ids = ids

    def choose(
        self, free: list[Slot], profile: ResourceProfile, shares_free: dict[ResourceID, float]
    ) -> int | None:
        """Position of the slot to take; None if none fits. `free` is not empty."""
        if self._evenly_spread_out:
            fitting = [i for i, slot in enumerate(free) if fits(slot.profile, profile)]
            return max(fitting, key=lambda i: shares_free[free[i].slot_id.resource_id], default=None)
        start = int(self._ids.hex_id()[-8:], 16) % len(free)
        for step in range(len(free)):
            position = (start + step) % len(free)
            if fits(free[position].profile, profile):
                return position
        return None
