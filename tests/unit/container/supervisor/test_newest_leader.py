"""NewestLeader: a ResourceManager of an older epoch is never followed."""

from __future__ import annotations

from yarrow.container.supervisor.newest_leader import NewestLeader
from yarrow.runtime.ha.services import token_of_epoch
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderListener


class Announcer:
    """A LeaderRetrieval that a test drives."""

    def __init__(self) -> None:
        self.listeners: list[LeaderListener] = []

    def start(self, listener: LeaderListener) -> None:
        self.listeners.append(listener)

    def stop(self, listener: LeaderListener) -> None:
        self.listeners.remove(listener)

    def announce(self, leader: LeaderInformation | None) -> None:
        for listener in self.listeners:
            listener(leader)


def leader_of(epoch: int) -> LeaderInformation:
    return LeaderInformation(address=f"host-{epoch}", leader_id=token_of_epoch(epoch, "a" * 32))


def test_a_resource_manager_of_an_older_epoch_is_refused() -> None:
    announcer, epochs, heard = Announcer(), list[int](), list[LeaderInformation | None]()
    newest = NewestLeader(announcer, epochs.append)
    newest.start(heard.append)
    announcer.announce(leader_of(3))
    announcer.announce(leader_of(2))
    assert heard == [leader_of(3)]
    announcer.announce(None)
    announcer.announce(leader_of(2))
    assert heard == [leader_of(3), None], "an older one does not come back when the newest has gone"
    assert (newest.epoch, epochs) == (3, [3])


def test_the_same_epoch_is_followed_again_and_told_once() -> None:
    announcer, epochs, heard = Announcer(), list[int](), list[LeaderInformation | None]()
    newest = NewestLeader(announcer, epochs.append)
    newest.start(heard.append)
    for leader in (leader_of(1), None, leader_of(1), leader_of(2)):
        announcer.announce(leader)
    assert heard == [leader_of(1), None, leader_of(1), leader_of(2)]
    assert epochs == [1, 2]


def test_a_listener_that_stops_hears_nothing() -> None:
    announcer, heard = Announcer(), list[LeaderInformation | None]()
    newest = NewestLeader(announcer, lambda epoch: None)
    newest.start(heard.append)
    newest.stop(heard.append)
    assert announcer.listeners == []
    newest._announced(leader_of(1))
    assert heard == []
