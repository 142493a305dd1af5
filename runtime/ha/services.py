"""HighAvailabilityServices: the leader of each component, and the data that a new leader finds. Interfaces alone.

Owner: calls of `LeaderContender` come on the event loop on which the election was started; stores block and are
called through an executor. One election a master process: who wins leads its Dispatcher, ResourceManager, JobMasters
and REST.

Epochs: each grant has a number that is larger than that of every grant before, in the whole life of the
cluster id. The fencing token of each component begins with it (`token_of_epoch`). So a receiver that has seen
a newer leader can refuse an older one for good. Every write to a store is conditional on the epoch still
being the newest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from yarrow.runtime.common.ids import is_hex_id
from yarrow.runtime.ha.records import LeaderRecords, LeadershipLostError
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval

__all__ = [
    "DISPATCHER",
    "RESOURCE_MANAGER",
    "REST_SERVER",
    "HighAvailabilityServices",
    "LeaderContender",
    "LeaderElection",
    "LeadershipLostError",
    "epoch_of_token",
    "token_of_epoch",
]

#: Components whose leader can be looked up.
DISPATCHER, RESOURCE_MANAGER, REST_SERVER = "dispatcher", "resource_manager", "rest_server"


class LeaderContender(Protocol):
    """A process that wants to lead."""

    def grant_leadership(self, epoch: int) -> None:
        """From now on this process leads; `epoch` is larger than any before."""
        ...

    def revoke_leadership(self, cause: str) -> None:
        """Hear that this process leads no more, and another may.

        The contender may write or remove nothing durable.
        """
        ...


class LeaderElection(Protocol):
    """The election of one master process."""

    async def start(self, contender: LeaderContender) -> None:
        """Takes part; returns before anybody has won. Raises when the election cannot be reached in time."""
        ...

    async def publish(self, component: str, leader: LeaderInformation) -> None:
        """Publish the address of the component; LeadershipLostError when this process leads no more."""
        ...

    async def stop(self) -> None:
        """Give up leadership at once; the contender does not hear of it."""
        ...

    def leads(self) -> bool:
        """Whether this process leads at this very moment, by its own clock.

        It is False before `revoke_leadership` comes if the process was stopped and continued. Ask it, from
        any thread, before an act that no epoch guards.
        """
        ...


class HighAvailabilityServices(Protocol):
    """All that outlives a master process of one cluster id."""

    @property
    def is_highly_available(self) -> bool:
        """False = the death of the master ends the cluster: stores are in memory and nothing is cleaned up after it."""
        ...

    @property
    def storage_directory(self) -> str:
        """The folder of this cluster id for data too large for a record; "" = this process's memory."""
        ...

    @property
    def election(self) -> LeaderElection: ...

    def records(self, epoch: int) -> LeaderRecords:
        """The records that the leadership of that epoch, granted to this process, reads and writes."""
        ...

    def leader(self, component: str) -> LeaderRetrieval:
        """Observe the leader of a component, now and at each change."""
        ...

    async def close(self) -> None:
        """Ends connections; keeps everything."""
        ...

    async def remove_all_but(self, kept: Collection[str]) -> None:
        """Remove all data of the cluster id but these records, with all below them, and the published leaders."""
        ...

    async def close_and_clean_up(self) -> None:
        """Ends connections and removes all data of the cluster id: only after its last job has ended for good."""
        ...


#: An epoch has so many hexadecimal digits in a token; the zeros before them tell it from a random token.
_EPOCH_DIGITS, _MARK = 16, "0" * 8


def token_of_epoch(epoch: int, random_hex: str) -> str:
    """A fencing token of 32 hexadecimal digits that begins with the epoch and ends like `random_hex`."""
    return f"{epoch:0{_EPOCH_DIGITS}x}{random_hex[-16:]}"


def epoch_of_token(token: str) -> int:
    """The epoch in a fencing token; 0 for a token made without election, or of another form."""
    return int(token[:_EPOCH_DIGITS], 16) if is_hex_id(token) and token.startswith(_MARK) else 0
