"""What a cluster's directory says about who leads, whatever order masters write in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from yarrow.runtime.ha.services import token_of_epoch
from yarrow.standalone.leader_announcements import Leader, LeaderAnnouncements


def leader(epoch: int, pid: int | None = None, host: str = "") -> Leader:
    return Leader(
        address=f"grpc://master-{epoch}:1/resourcemanager",
        leader_id=token_of_epoch(epoch, f"{epoch:032x}"),
        web_address=f"http://master-{epoch}:2",
        pid=os.getpid() if pid is None else pid,
        host=host or socket.gethostname(),
    )


def test_a_leader_is_announced_and_withdraws(tmp_path: Path) -> None:
    leaders = LeaderAnnouncements(tmp_path)
    assert leaders.present() is None
    leaders.announce(leader(1))
    assert leaders.present() == leader(1)
    leaders.withdraw(leader(1).leader_id)
    assert leaders.present() is None


def test_a_successor_replaces_and_removes_its_predecessor(tmp_path: Path) -> None:
    leaders = LeaderAnnouncements(tmp_path)
    for epoch in (1, 2, 3):
        leaders.announce(leader(epoch))
    assert leaders.present() == leader(3)
    assert len([*tmp_path.iterdir()]) == 1


def test_a_former_leader_that_was_stopped_neither_hides_nor_removes_its_successor(tmp_path: Path) -> None:
    leaders = LeaderAnnouncements(tmp_path)
    leaders.announce(leader(1))
    leaders.announce(leader(2))
    # The first one had been stopped while it announced itself, and goes on only now.
    leaders.announce(leader(1))
    assert leaders.present() == leader(2)
    leaders.withdraw(leader(1).leader_id)
    assert leaders.present() == leader(2)


def test_without_election_the_last_one_counts(tmp_path: Path) -> None:
    leaders = LeaderAnnouncements(tmp_path)
    for name in ("first", "second"):
        leaders.announce(
            Leader(address="a", leader_id=name, web_address=name, pid=os.getpid(), host=socket.gethostname())
        )
        found = leaders.present()
        assert found is not None and found.web_address == name


def test_a_killed_master_hides_no_leader_whose_epochs_began_anew(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    leaders = LeaderAnnouncements(tmp_path)
    leaders.announce(leader(7, child.pid))
    leaders.announce(leader(1))
    assert leaders.present() == leader(1)
    # Ids of processes say nothing about those of other hosts.
    leaders.announce(leader(7, child.pid, "another.example"))
    leaders.announce(leader(2))
    assert leaders.present() == leader(7, child.pid, "another.example")


def test_a_stopped_cluster_has_no_leader(tmp_path: Path) -> None:
    leaders = LeaderAnnouncements(tmp_path)
    leaders.announce(leader(1, host="another.example"))
    leaders.clear()
    assert leaders.present() is None
    assert [*tmp_path.iterdir()] == []
