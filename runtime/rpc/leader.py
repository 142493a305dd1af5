"""The leader of a component: its address and fencing token, and how changes are reported.

Owner: listeners are called on the event loop of the retrieval's user. Must not know how a leader is elected:
the standalone cluster announces one for ever, ZooKeeper announces each new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class LeaderInformation(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of one component: its address, and the token of messages to it."""

    address: str
    leader_id: str


#: Called with the new leader, or None if there is none at present.
LeaderListener = Callable[[LeaderInformation | None], None]


class LeaderRetrieval(Protocol):
    """Tells a listener the present leader and each later one."""

    def start(self, listener: LeaderListener) -> None:
        """Begins to call `listener`, at once if the leader is known."""
        ...

    def stop(self, listener: LeaderListener) -> None:
        """Stops calling `listener`."""
        ...


class AnnouncedLeader:
    """A LeaderRetrieval whose leader is announced by a call: in standalone clusters, and in tests."""

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
