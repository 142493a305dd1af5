"""The private directory of a standalone cluster: its certificates and secret, its leader, its processes.

Owner: blocking, any thread; several processes read it, each file has one writer and is replaced whole. Only
the user may enter it: a reader of the secret is a member of the cluster.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe

import msgspec

from yarrow.client.errors import CommandError
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.options import cluster, jobmanager, security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.local import sync_folder
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.roles import Role
from yarrow.standalone.leader_announcements import LeaderAnnouncements

_SECRETS, _DAEMONS = "cluster.secret", "daemons.json"


class ClusterSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of the cluster's members."""

    application_id: str
    job_manager: PemIdentity
    task_executor: PemIdentity
    #: Of the drivers of bounded jobs; they get it from the JobManager.
    spark_driver: PemIdentity
    data_secret: bytes
    #: REST clients' token if other hosts reach REST.
    rest_token: str


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process of start-cluster; the start time distinguishes it from a later one with the same id."""

    role: str
    pid: int
    start_ticks: int

    @property
    def is_running(self) -> bool:
        """Whether this very process still runs."""
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None if it is gone or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def directory_path(config: Settings) -> Path:
    """security.cluster.directory, else a folder of the user below env.pid.dir, named by the JobManager."""
    named = config.get(security.CLUSTER_DIRECTORY)
    if named:
        return Path(named)
    where = f"{config.get(jobmanager.RPC_ADDRESS)}-{config.get(jobmanager.RPC_PORT)}"
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"yarrow-{getpass.getuser()}-{where}")
    return Path(config.get(cluster.PID_DIR)) / name


class ClusterDirectory:
    """The directory of one cluster."""

    def __init__(self, path: Path) -> None:
        """Makes it if it is missing. Raises CommandError if others may enter it."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise CommandError(
                f"{path} must be a directory of mode 0700 that belongs to {getpass.getuser()}, since it holds"
                " the cluster's secret. Mend it with chmod 700, or name another in"
                " security.cluster.directory."
            )
        self.path = path
        self.leaders = LeaderAnnouncements(path)

    @staticmethod
    def of(config: Settings) -> ClusterDirectory:
        """The directory of the configured cluster; made if it is missing."""
        return ClusterDirectory(directory_path(config))

    @staticmethod
    def find(config: Settings) -> ClusterDirectory | None:
        """The directory of the configured cluster, if it exists."""
        path = directory_path(config)
        return ClusterDirectory(path) if path.is_dir() else None

    def secrets(self) -> ClusterSecrets:
        """Loads the secrets, or makes them at the first start."""
        found = self.find_secrets()
        return self._make_secrets() if found is None else found

    def find_secrets(self) -> ClusterSecrets | None:
        """The secrets, if a JobManager has made them."""
        path = self.path / _SECRETS
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o077:
                raise CommandError(
                    f"{path} may be read by others: make it 0600, or remove it to have it made anew."
                )
            try:
                return msgspec.msgpack.decode(file.read(), type=ClusterSecrets)
            except msgspec.DecodeError:
                # The message does not contain its content.
                raise CommandError(
                    f"{path} is not of this version of Yarrow: stop the cluster, then remove it to have it made anew."
                ) from None

    def _make_secrets(self) -> ClusterSecrets:
        from yarrow.runtime.security.certificates import CertificateAuthority

        application_id = RandomIdFactory().hex_id()
        authority = CertificateAuthority(application_id, SystemClock())
        secrets = ClusterSecrets(
            application_id=application_id,
            job_manager=authority.issue("jobmanager", Role.JOB_MANAGER),
            task_executor=authority.issue("taskexecutor", Role.TASK_EXECUTOR),
            spark_driver=authority.issue("sparkdriver", Role.SPARK_DRIVER),
            data_secret=os.urandom(32),
            rest_token=token_urlsafe(32),
        )
        return msgspec.msgpack.decode(
            self._write_once(_SECRETS, msgspec.msgpack.encode(secrets)), type=ClusterSecrets
        )

    def daemons(self) -> list[Daemon]:
        """The live processes of start-cluster, in the order of their start."""
        try:
            found = json.loads((self.path / _DAEMONS).read_text())
        except FileNotFoundError:
            return []
        return [daemon for daemon in (Daemon(**entry) for entry in found) if daemon.is_running]

    def remember(self, daemons: list[Daemon]) -> None:
        """Replaces the list of processes."""
        entries = [{"role": d.role, "pid": d.pid, "start_ticks": d.start_ticks} for d in daemons]
        self._write(_DAEMONS, json.dumps(entries).encode())

    def log_directory(self, config: Settings) -> Path:
        """env.log.dir, else `log` in this directory; made if it is missing."""
        named = config.get(cluster.LOG_DIR)
        path = Path(named) if named else self.path / "log"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def _write_once(self, name: str, data: bytes) -> bytes:
        """Writes a file unless another process has done so meanwhile; returns its content."""
        part = self.path / f".{name}.{os.getpid()}"
        replace_whole(part, data)
        try:
            os.link(part, self.path / name)
            sync_folder(str(self.path))
        except FileExistsError:
            return (self.path / name).read_bytes()
        finally:
            part.unlink()
        return data

    def _write(self, name: str, data: bytes) -> None:
        replace_whole(self.path / name, data)
