"""Who leads: the address and fencing token of a component, and how changes are told.

Owner: listeners are called on the event loop of the retrieval's user. Must not know how a leader is elected:
the standalone cluster announces one for ever, ZooKeeper announces each new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class LeaderInformation(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of one component: where it is, and the token that its messages must bear."""

    address: str
    leader_id: str


#: Called with the new leader, or None when there is none at present.
LeaderListener = Callable[[LeaderInformation | None], None]


class LeaderRetrieval(Protocol):
    """Tells a listener who leads, now and at each change."""

    def start(self, listener: LeaderListener) -> None:
        """Begins to call `listener`, at once where the leader is known."""
        ...

    def stop(self, listener: LeaderListener) -> None:
        """No call reaches `listener` afterwards."""
        ...


class AnnouncedLeader:
    """A LeaderRetrieval whose leader is announced by a call: of standalone clusters, and of tests."""

    def __init__(self, leader: LeaderInformation | None = None) -> None:
        self._leader = leader
        self._listeners: list[LeaderListener] = []

    def start(self, listener: LeaderListener) -> None:
        self._listeners.append(listener)
        if self._leader is not None:
            listener(self._leader)

    def stop(self, listener: LeaderListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def announce(self, leader: LeaderInformation | None) -> None:
        """Makes `leader` the leader and tells every listener."""
        self._leader = leader
        for listener in list(self._listeners):
            listener(leader)
