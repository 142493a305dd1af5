"""LocalProcessDriver: TaskExecutors as child processes of this one, each in a session of its own.

Owner: the ResourceManager's loop. Everything that a child must know goes through a pipe on its standard
input, which stays open: its end tells the child that this process died. Must not put a secret into argv or
the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yarrow.am.resourcemanager.driver import ResourceEventHandler, TaskExecutorStartError
from yarrow.runtime.common.ids import IdFactory, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap, encode_bootstrap
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES
from yarrow.runtime.rpc.messages import ResourceProfile

_log = logging.getLogger(__name__)

#: Bytes of a dead child's .err file that its cause quotes.
_QUOTED = 2000


@dataclass(frozen=True, slots=True)
class LocalProcessSettings:
    """What the driver starts."""

    application_id: str
    log_directory: str
    #: Where working directories are made; one of taskmanager.tmp.dirs.
    tmp_directory: str
    configuration: Mapping[str, str]
    data_secret: bytes
    host: str = "127.0.0.1"
    bind_host: str = "127.0.0.1"
    slots_per_task_executor: int = 1
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    listen_tcp: bool = False
    #: Arguments of the process, the interpreter first.
    command: tuple[str, ...] = field(
        default_factory=lambda: (sys.executable, "-m", "yarrow.container.task_executor_main")
    )
    #: Seconds a child has to end by itself before it is killed.
    grace: float = 3.0


@dataclass(slots=True)
class _Child:
    process: asyncio.subprocess.Process
    working_directory: str
    error_file: Path
    watcher: asyncio.Task[None] | None = None
    released: bool = False


class LocalProcessDriver:
    """Starts `python -m yarrow.container.task_executor_main` children."""

    def __init__(
        self, settings: LocalProcessSettings, issue_identity: Callable[[str], PemIdentity], ids: IdFactory
    ) -> None:
        """`issue_identity(name)` makes a child's certificates: CertificateAuthority.issue."""
        self._settings = settings
        self._issue_identity = issue_identity
        self._ids = ids
        self._handler: ResourceEventHandler | None = None
        self._leader: LeaderInformation | None = None
        self._children: dict[ResourceID, _Child] = {}
        self._started = 0

    @property
    def can_request(self) -> bool:
        return True

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Process id of each living child."""
        return {name: child.process.pid for name, child in self._children.items()}

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler
        self._leader = leader

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        self._started += 1
        resource_id = ResourceID(f"{self._settings.host}:{self._started}-{self._ids.hex_id()[-6:]}")
        working_directory = await asyncio.to_thread(self._make_directories)
        error_file = Path(self._settings.log_directory) / f"taskexecutor-{self._started}-{os.getpid()}.err"
        bootstrap = encode_bootstrap(self._bootstrap(resource_id, working_directory))
        try:
            with open(error_file, "ab") as errors:  # noqa: ASYNC230 (a local file, opened once a process)
                process = await asyncio.create_subprocess_exec(
                    *self._settings.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=errors,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            await asyncio.to_thread(shutil.rmtree, working_directory, ignore_errors=True)
            command = " ".join(self._settings.command)
            raise TaskExecutorStartError(f"cannot start a TaskExecutor with {command!r}: {error}") from error
        child = _Child(process, working_directory, error_file)
        self._children[resource_id] = child
        child.watcher = asyncio.get_running_loop().create_task(self._watch(resource_id, child))
        assert process.stdin is not None
        process.stdin.write(bootstrap)
        # A child that died before it read is reported by its watcher.
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        return resource_id

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        child = self._children.get(resource_id)
        if child is not None:
            child.released = True
            await self._end(child)

    async def terminate(self) -> None:
        for child in self._children.values():
            child.released = True
        await asyncio.gather(*(self._end(child) for child in list(self._children.values())))

    def _make_directories(self) -> str:
        os.makedirs(self._settings.log_directory, exist_ok=True)
        return tempfile.mkdtemp(prefix="yarrow-te-", dir=self._settings.tmp_directory)

    def _bootstrap(self, resource_id: ResourceID, working_directory: str) -> TaskExecutorBootstrap:
        settings = self._settings
        assert self._leader is not None, "initialize comes first"
        return TaskExecutorBootstrap(
            application_id=settings.application_id,
            resource_id=resource_id,
            resource_manager_address=self._leader.address,
            resource_manager_id=ResourceManagerID(self._leader.leader_id),
            host=settings.host,
            bind_host=settings.bind_host,
            identity=self._issue_identity(f"taskexecutor {resource_id}"),
            data_secret=settings.data_secret,
            configuration=dict(settings.configuration),
            log_directory=settings.log_directory,
            working_directory=working_directory,
            slots=settings.slots_per_task_executor,
            max_message_bytes=settings.max_message_bytes,
            listen_tcp=settings.listen_tcp,
        )

    async def _end(self, child: _Child) -> None:
        """Closes the pipe, which asks the child to end; kills its whole session when it does not."""
        if child.process.stdin is not None:
            child.process.stdin.close()
        assert child.watcher is not None
        try:
            await asyncio.wait_for(asyncio.shield(child.watcher), self._settings.grace)
        except TimeoutError:
            _kill_session(child.process.pid)
            await child.watcher

    async def _watch(self, resource_id: ResourceID, child: _Child) -> None:
        status = await child.process.wait()
        # Whatever the child left in its session dies with it.
        _kill_session(child.process.pid)
        self._children.pop(resource_id, None)
        cause = await asyncio.to_thread(_describe_end, status, child)
        await asyncio.to_thread(shutil.rmtree, child.working_directory, ignore_errors=True)
        if not child.released:
            _log.warning("TaskExecutor %s ended: %s", resource_id, cause)
        if self._handler is not None:
            self._handler.on_task_executor_terminated(resource_id, cause)


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _describe_end(status: int, child: _Child) -> str:
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    if child.released:
        return f"released ({how})"
    try:
        tail = child.error_file.read_bytes()[-_QUOTED:].decode(errors="replace").strip()
    except OSError:
        tail = ""
    return f"its process ended: {how}" + (f"; the end of {child.error_file.name}:\n{tail}" if tail else "")
