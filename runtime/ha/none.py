"""Without high availability: an election of one, that is won at once, and records in memory.

Owner: the loop of the control plane. The stores outlive control planes that share the object, not the process.
"""

from __future__ import annotations

from collections.abc import Collection

from yarrow.runtime.ha.records import LeaderRecords, LeadershipLostError, RecordsInMemory
from yarrow.runtime.ha.services import LeaderContender
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation, LeaderRetrieval


class NoHighAvailability:
    """High availability without ZooKeeper: it is also the LeaderElection, whose only candidate is this process."""

    is_highly_available = False
    storage_directory = ""

    def __init__(self) -> None:
        self._records = RecordsInMemory()
        self._leaders: dict[str, AnnouncedLeader] = {}
        self._leads = False

    @property
    def election(self) -> NoHighAvailability:
        """Won when it is started."""
        return self

    def records(self, epoch: int) -> LeaderRecords:
        """See HighAvailabilityServices."""
        return self._records.of_epoch(epoch)

    async def start(self, contender: LeaderContender) -> None:
        """See LeaderElection."""
        self._leads = True
        contender.grant_leadership(self._records.next_leadership().epoch)

    async def publish(self, component: str, leader: LeaderInformation) -> None:
        """See LeaderElection."""
        if not self._leads:
            raise LeadershipLostError(f"{component} is led by nobody: the election has been stopped")
        self._leader(component).announce(leader)

    async def stop(self) -> None:
        """See LeaderElection."""
        self._leads = False

    def leads(self) -> bool:
        """See LeaderElection."""
        return self._leads

    def leader(self, component: str) -> LeaderRetrieval:
        """See HighAvailabilityServices."""
        return self._leader(component)

    def _leader(self, component: str) -> AnnouncedLeader:
        return self._leaders.setdefault(component, AnnouncedLeader())

    async def close(self) -> None:
        """Nothing to close."""

    async def remove_all_but(self, kept: Collection[str]) -> None:
        """Do nothing: memory ends with the process."""

    async def close_and_clean_up(self) -> None:
        """Do nothing: memory ends with the process."""
