"""The leaders that are announced in the directory of a standalone cluster: a file for each leadership.

Owner: blocking, any thread; several masters write, and clients and TaskExecutors read. A master writes and removes the
files of its own leaderships, and removes those that its own leadership has replaced. So a former leader that
was stopped for a while can neither hide its successor nor remove the successor's announcement. This module must not
decide who leads.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.ha.services import epoch_of_token

_PREFIX, _SUFFIX = "leader.", ".json"


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The running JobManager: its address for TaskExecutors, and that for people."""

    address: str
    #: Fencing token of the leadership, which begins with its epoch.
    leader_id: str
    web_address: str
    #: The process, and the host on which its id counts.
    pid: int
    host: str


class LeaderAnnouncements:
    """The announced leaders of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def present(self) -> Leader | None:
        """The announced leader of the latest epoch; None if every one has withdrawn."""
        while True:
            files = self._files()
            try:
                found = [(path.stat().st_mtime_ns, _read(path)) for path in files]
            except FileNotFoundError:
                # A file has gone since: its successor may have come since as well.
                continue
            latest = max(
                found, key=lambda entry: (epoch_of_token(entry[1].leader_id), entry[0]), default=None
            )
            return None if latest is None else latest[1]

    def announce(self, leader: Leader) -> None:
        """Announces a leader, then removes the announcements of those that it has replaced.

        A dead process of this host is replaced whatever its epoch: epochs begin anew if somebody empties ZooKeeper.
        """
        own = self._path(leader.leader_id)
        replace_whole(own, msgspec.json.encode(leader))
        epoch = epoch_of_token(leader.leader_id)
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                if path != own and (_epoch_of(path) <= epoch or _is_dead(_read(path))):
                    path.unlink()

    def withdraw(self, leader_id: str) -> None:
        """Removes the announcement of one leadership, if it still stands."""
        self._path(leader_id).unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes every announcement; no master may run."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [*self._folder.glob(f"{_PREFIX}*{_SUFFIX}")]

    def _path(self, leader_id: str) -> Path:
        return self._folder / f"{_PREFIX}{leader_id}{_SUFFIX}"


def _read(path: Path) -> Leader:
    return msgspec.json.decode(path.read_bytes(), type=Leader)


def _epoch_of(path: Path) -> int:
    return epoch_of_token(path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX))


def _is_dead(leader: Leader) -> bool:
    return leader.host == socket.gethostname() and not Path(f"/proc/{leader.pid}").exists()
