"""LocalProcessDriver: TaskExecutors as child processes of this one, each in its own session.

Owner: the ResourceManager's loop. A child gets everything through a pipe on its standard input, which stays
open. The end of the pipe tells the child that this process died. Must not put a secret into argv or the
environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.am.resourcemanager.driver import ResourceEventHandler, TaskExecutorStartError
from yarrow.runtime.common.child_process import ChildProcess
from yarrow.runtime.common.ids import IdFactory, ResourceID, ResourceManagerID
from yarrow.runtime.fs.client_folder import WORKING_DIRECTORY_PREFIX
from yarrow.runtime.rpc.bootstrap import (
    TASK_EXECUTOR_COMMAND,
    PemIdentity,
    TaskExecutorBootstrap,
    encode_bootstrap,
)
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.runtime.rpc.limits import DEFAULT_MAX_MESSAGE_BYTES
from yarrow.runtime.rpc.messages import DelegationTokens, ResourceProfile

_log = logging.getLogger(__name__)


class LocalProcessSettings(msgspec.Struct, frozen=True):
    """The processes that the driver starts."""

    application_id: str
    log_directory: str
    #: Parent of working directories; one of taskmanager.tmp.dirs.
    tmp_directory: str
    configuration: Mapping[str, str]
    data_secret: bytes
    host: str = "127.0.0.1"
    bind_host: str = "127.0.0.1"
    slots_per_task_executor: int = 1
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    listen_tcp: bool = False
    #: Arguments of the process; the interpreter is first.
    command: tuple[str, ...] = msgspec.field(default_factory=lambda: (sys.executable, *TASK_EXECUTOR_COMMAND))
    #: Seconds in which a child may end by itself before it is killed.
    grace: float = 3.0

    def bootstrap(
        self,
        resource_id: ResourceID,
        leader: LeaderInformation,
        identity: PemIdentity,
        working_directory: str,
        *,
        forward_output: bool = False,
    ) -> TaskExecutorBootstrap:
        """The bootstrap of one TaskExecutor."""
        return TaskExecutorBootstrap(
            application_id=self.application_id,
            resource_id=resource_id,
            resource_manager_address=leader.address,
            resource_manager_id=ResourceManagerID(leader.leader_id),
            host=self.host,
            bind_host=self.bind_host,
            identity=identity,
            data_secret=self.data_secret,
            configuration=dict(self.configuration),
            log_directory=self.log_directory,
            working_directory=working_directory,
            slots=self.slots_per_task_executor,
            max_message_bytes=self.max_message_bytes,
            listen_tcp=self.listen_tcp,
            forward_output=forward_output,
        )


class OutputReader(Protocol):
    """Reads the task output that TaskExecutors forward (runtime/rpc/output_stream.py)."""

    def attach(self, name: str, connection: socket.socket) -> None:
        """Takes over, and finally closes, the reading end of a TaskExecutor's standard output."""
        ...


class _Started(msgspec.Struct):
    """A process that waits for its bootstrap."""

    process: ChildProcess
    #: Reading end of its standard output; None if that goes to the error file.
    output: socket.socket | None = None


class _Child(msgspec.Struct):
    process: ChildProcess
    working_directory: str
    #: Tells the handler when it has ended.
    watcher: asyncio.Task[None] | None = None


class LocalProcessDriver:
    """Starts `python -P -m yarrow.container.process.task_executor_main` children."""

    def __init__(
        self,
        settings: LocalProcessSettings,
        issue_identity: Callable[[str], PemIdentity],
        ids: IdFactory,
        output: OutputReader | None = None,
    ) -> None:
        """`issue_identity(name)` makes the certificates of a child, in the role of TaskExecutors.

        With `output`, the children forward the output of their tasks.
        """
        self._settings = settings
        self._issue_identity = issue_identity
        self._ids = ids
        self._output = output
        self._warm: list[_Started] = []
        self._handler: ResourceEventHandler | None = None
        self._leader: LeaderInformation | None = None
        self._children: dict[ResourceID, _Child] = {}
        self._started = 0

    @property
    def can_request(self) -> bool:
        return True

    @property
    def living(self) -> tuple[ResourceID, ...]:
        return tuple(name for name, child in self._children.items() if not child.process.is_released)

    @property
    def tokens(self) -> DelegationTokens | None:
        """Returns none: processes of this host log in by themselves."""
        return None

    @property
    def processes(self) -> dict[ResourceID, int]:
        """Process id of each living child."""
        return {name: child.process.pid for name, child in self._children.items()}

    async def initialize(self, handler: ResourceEventHandler, leader: LeaderInformation) -> None:
        self._handler = handler
        self._leader = leader

    async def warm_up(self, count: int = 1) -> None:
        """Starts processes before `initialize`: they load their modules and wait for a bootstrap."""
        for _ in range(count):
            self._warm.append(await self._start())

    async def request_task_executor(self, profile: ResourceProfile) -> ResourceID:
        started = self._warm.pop() if self._warm else await self._start()
        resource_id = ResourceID(f"{self._settings.host}:{self._started}-{self._ids.hex_id()[-6:]}")
        try:
            working_directory = await asyncio.to_thread(self._make_directories)
        except BaseException:
            # A caller that is cancelled leaves the process to `terminate`.
            self._warm.append(started)
            raise
        if started.output is not None and self._output is not None:
            self._output.attach(resource_id, started.output)
        child = _Child(started.process, working_directory)
        self._children[resource_id] = child
        child.watcher = asyncio.get_running_loop().create_task(self._watch(resource_id, child))
        identity = self._issue_identity(f"taskexecutor {resource_id}")
        assert self._leader is not None, "initialize must be called before any other method"
        bootstrap = self._settings.bootstrap(
            resource_id, self._leader, identity, working_directory, forward_output=self._output is not None
        )
        await started.process.give(encode_bootstrap(bootstrap))
        return resource_id

    async def _start(self) -> _Started:
        self._started += 1
        settings = self._settings
        error_file = Path(settings.log_directory) / f"taskexecutor-{self._started}-{os.getpid()}.err"
        reading, writing = socket.socketpair() if self._output is not None else (None, None)
        try:
            output = None if writing is None else writing.fileno()
            process = await ChildProcess.start(settings.command, error_file, output)
        except OSError as error:
            if reading is not None:
                reading.close()
            command = " ".join(settings.command)
            raise TaskExecutorStartError(f"cannot start a TaskExecutor with {command!r}: {error}") from error
        finally:
            if writing is not None:
                writing.close()
        return _Started(process, reading)

    async def release_task_executor(self, resource_id: ResourceID) -> None:
        child = self._children.get(resource_id)
        if child is not None:
            await self._end(child)

    def refusal(self, resource_id: ResourceID) -> str:
        """Accepts every child: nobody else counts this driver's processes."""
        return ""

    async def await_end(self, resource_id: ResourceID) -> None:
        """Returns at once: the operating system will tell no more."""

    async def terminate(self) -> None:
        waiting, self._warm = self._warm, []
        await asyncio.gather(
            *(self._end(child) for child in list(self._children.values())),
            *(_discard(started) for started in waiting),
        )

    def _make_directories(self) -> str:
        return tempfile.mkdtemp(prefix=WORKING_DIRECTORY_PREFIX, dir=self._settings.tmp_directory)

    async def _end(self, child: _Child) -> None:
        await child.process.end(self._settings.grace)
        assert child.watcher is not None
        # A caller that is cancelled must not cancel the watcher: others wait for the same end.
        await asyncio.shield(child.watcher)

    async def _watch(self, resource_id: ResourceID, child: _Child) -> None:
        cause = await child.process.wait()
        self._children.pop(resource_id, None)
        await asyncio.to_thread(shutil.rmtree, child.working_directory, ignore_errors=True)
        if not child.process.is_released:
            _log.warning("TaskExecutor %s ended: %s", resource_id, cause)
        if self._handler is not None:
            self._handler.on_task_executor_terminated(resource_id, cause)


async def _discard(started: _Started) -> None:
    """Ends a process that got no bootstrap."""
    if started.output is not None:
        started.output.close()
    await started.process.end(0)
