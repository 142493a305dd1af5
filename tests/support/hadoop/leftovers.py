"""What programs have left on a cluster: the check after every test.

Owner: the caller's thread; blocks while it asks YARN, HDFS, ZooKeeper and the machine. Only looks: whoever finds
something decides what to do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: Below it live the znodes of high availability where nothing else is configured.
ZNODE_ROOT = "/flink"
_SECONDS = 60.0


@dataclass(frozen=True)
class Leftovers:
    """Everything found, by kind; false when nothing was."""

    #: Ids of applications that have not ended.
    applications: Sequence[str] = ()
    #: Number and command of processes in containers.
    processes: Sequence[str] = ()
    #: Paths of znodes below the root.
    znodes: Sequence[str] = ()
    #: Files (and empty folders) of HDFS where nothing should stay.
    files: Sequence[str] = ()

    def __bool__(self) -> bool:
        return any((self.applications, self.processes, self.znodes, self.files))

    def __str__(self) -> str:
        kinds = {
            "applications that have not ended": self.applications,
            "processes of containers": self.processes,
            "znodes": self.znodes,
            "files on HDFS": self.files,
        }
        lines = [f"{kind}:\n  " + "\n  ".join(found) for kind, found in kinds.items() if found]
        return "\n".join(lines) or "nothing"

    def since(self, before: Leftovers) -> Leftovers:
        """What is here and was not there before."""
        return Leftovers(
            *(
                [entry for entry in now if entry not in then]
                for now, then in (
                    (self.applications, before.applications),
                    (self.processes, before.processes),
                    (self.znodes, before.znodes),
                    (self.files, before.files),
                )
            )
        )


@dataclass(frozen=True)
class Places:
    """Where to look, and what may stay."""

    znode_root: str = ZNODE_ROOT
    #: Folders of HDFS in which nothing should stay; None: the user's home, and /tmp.
    folders: Sequence[str] | None = None
    #: Folders below those whose content is kept on purpose: collected logs, environments.
    kept: Sequence[str] = field(default=("/tmp/logs",))

    #: Names of folders that may stay when they are empty: Skein makes its own once, and Spark one for each session.
    may_be_empty: Sequence[str] = (".skein", ".sparkStaging")

    def is_kept(self, path: str) -> bool:
        """Whether a file, or a folder that is empty, may stay."""
        return path.rpartition("/")[2] in self.may_be_empty or self.is_below_kept(path)

    def is_below_kept(self, path: str) -> bool:
        """Whether it is one of the folders whose content is kept, or lies in one."""
        return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in self.kept)


def znodes_below(quorum: str, root: str) -> list[str]:
    """Paths of all znodes below `root`; none where there is no such node. Raises OSError without a server."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=quorum, timeout=_SECONDS)
    try:
        client.start(timeout=_SECONDS)
    except KazooTimeoutError as error:
        client.close()
        raise OSError(f"ZooKeeper at {quorum} does not answer: {error}") from error
    try:
        found: list[str] = []
        waiting = [root]
        while waiting:
            parent = waiting.pop()
            try:
                names = client.get_children(parent)
            except NoNodeError:
                continue
            below = [f"{parent.rstrip('/')}/{name}" for name in sorted(names)]
            below = [path for path in below if path != "/zookeeper"]
            found += below
            waiting += below
        return sorted(found)
    finally:
        client.stop()
        client.close()
