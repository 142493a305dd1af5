"""TemplateClient: the supervisor's side of the template process: starts it, requests forks, replaces a dead one.

Owner: the TaskExecutor's event loop. Must not fork itself: a supervisor has used gRPC, so its child may hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess

import msgspec

from yarrow.container.launch.process_start import (
    LaunchSettings,
    StartedProcess,
    StartedTemplate,
    execute_template,
    worker_environment,
)
from yarrow.container.launch.worker_launcher import RunningWorker, SpawnLauncher, WorkerExit, WorkerLauncher
from yarrow.container.protocol.errors import EngineNotImportedError, TemplateLostError, WorkerStartError
from yarrow.container.protocol.worker_protocol import (
    ForkWorker,
    MessageFromTemplate,
    TemplateReady,
    WorkerExited,
    WorkerForked,
    WorkerForkFailed,
)
from yarrow.runtime.common.ids import WorkerID

_PACKET_BYTES = 64 * 1024
#: Seconds between the end of the control socket and SIGKILL: the template has nothing to save.
_END_GRACE = 2.0
#: Most bytes of a template's output that an error tells.
_LONGEST_OUTPUT = 8_000
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[MessageFromTemplate] = msgspec.msgpack.Decoder(MessageFromTemplate)


class ForkedWorker:
    """A worker whose parent is the template."""

    def __init__(self, pid: int, exited: asyncio.Future[WorkerExit]) -> None:
        self.pid = pid
        self.exited = exited

    def kill(self) -> None:
        """Sends SIGKILL, unless the template has already reaped the worker: its process id may be reused."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Pending(msgspec.Struct):
    """A requested fork, or a running worker."""

    forked: asyncio.Future[int]
    exited: asyncio.Future[WorkerExit]


class _TemplateProcess:
    """One template process with its pending forks and running workers."""

    def __init__(self, process: StartedProcess, control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.workers: dict[WorkerID, _Pending] = {}
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ready = False
        asyncio.get_running_loop().add_reader(control.fileno(), self._readable)

    def fork(self, request: ForkWorker, fds: list[int]) -> _Pending:
        loop = asyncio.get_running_loop()
        pending = _Pending(loop.create_future(), loop.create_future())
        self.workers[request.worker_id] = pending
        try:
            # Blocks only while hundreds of requests wait unread.
            socket.send_fds(self.control, [_ENCODER.encode(request)], fds)
        except OSError as error:
            self._end(f"the template process took no request: {error}")
        return pending

    def close(self) -> None:
        """Closes its control socket: the template kills its children and ends."""
        self._end("the TaskExecutor asked the template process to end")

    def _readable(self) -> None:
        while not self.lost.done():
            try:
                data = self.control.recv(_PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._end("")
                return
            self._handle(_DECODER.decode(data))

    def _handle(self, message: MessageFromTemplate) -> None:
        if isinstance(message, TemplateReady):
            self.ready = True
        elif isinstance(message, WorkerForked):
            pending = self.workers[message.worker_id]
            if not pending.forked.done():
                pending.forked.set_result(message.pid)
        elif isinstance(message, WorkerForkFailed):
            self.workers.pop(message.worker_id).forked.set_exception(
                WorkerStartError(f"the worker {message.worker_id} could not be forked: {message.reason}")
            )
        elif isinstance(message, WorkerExited):
            pending = self.workers.pop(message.worker_id)
            pending.exited.set_result(WorkerExit(status=message.status, signal=message.signal))

    def _end(self, reason: str) -> None:
        if self.lost.done():
            return
        asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        self.lost.set_result(reason)
        for worker_id, pending in self.workers.items():
            # The kernel has killed the workers with their parent.
            pending.exited.set_result(WorkerExit(explanation="its template process has ended"))
            if not pending.forked.done():
                pending.forked.set_exception(
                    TemplateLostError(f"the template process ended before it forked the worker {worker_id}")
                )
        self.workers.clear()


class TemplateLauncher:
    """`taskmanager.worker.start: fork`: workers are forked from a template that is always kept warm."""

    def __init__(
        self, settings: LaunchSettings, raw_output: int, started: StartedTemplate | None = None
    ) -> None:
        """Starts templates.

        `raw_output` is the descriptor of the file for the template's own output; it stays the caller's.
        The launcher takes over a `started` one as its first.
        """
        self._settings = settings
        self._raw_output = raw_output
        #: Size of the file when the present template was started.
        self._raw_start = 0
        self._started = started
        self._template: _TemplateProcess | None = None
        self._closed = False

    async def start(self) -> None:
        """Takes over or executes the template; requests wait in its socket while it imports."""
        self._living_template()

    @property
    def template_pid(self) -> int | None:
        """The present template's process id."""
        return None if self._template is None else self._template.process.pid

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """Forks a worker; a template that dies during the request is replaced once."""
        try:
            return await self._fork(worker_id, process_name, raw_output)
        except TemplateLostError:
            pass
        try:
            return await self._fork(worker_id, process_name, raw_output)
        except TemplateLostError as lost:
            template = self._template
            if template is not None and not template.ready and await self._status_of(template) > 0:
                failed = EngineNotImportedError.told_by("the template process", self._output_since_start())
                if failed is not None:
                    raise failed from lost
            raise

    async def _status_of(self, template: _TemplateProcess) -> int:
        """The exit status of a template that has gone; below 0 = it was killed, or does not end."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, template.process.wait, _END_GRACE)
        except subprocess.TimeoutExpired:
            return -1

    def _output_since_start(self) -> str:
        """The end of what the present template has written."""
        try:
            with open(f"/dev/fd/{self._raw_output}", "rb") as file:
                size = os.fstat(self._raw_output).st_size
                file.seek(max(self._raw_start, size - _LONGEST_OUTPUT))
                return file.read(_LONGEST_OUTPUT).decode(errors="replace")
        except OSError as error:
            return f"its output cannot be read: {error}"

    async def _fork(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        template = self._living_template()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        request = ForkWorker(worker_id=worker_id, process_name=process_name)
        with theirs:
            pending = template.fork(request, [theirs.fileno(), raw_output])
        try:
            pid = await pending.forked
        except BaseException:
            ours.close()
            raise
        return ForkedWorker(pid, pending.exited), ours

    def _living_template(self) -> _TemplateProcess:
        if self._closed:
            # A running launch finds its template gone: nobody would end another one.
            raise WorkerStartError("the TaskExecutor ends and starts no more workers")
        if self._template is None or self._template.lost.done():
            if self._template is not None:
                self._reap(self._template)
            self._template = self._take_over_or_execute()
        return self._template

    def _take_over_or_execute(self) -> _TemplateProcess:
        started, self._started = self._started, None
        if started is None:
            self._raw_start = os.fstat(self._raw_output).st_size
        try:
            started = started or execute_template(self._settings, self._raw_output)
        except OSError as error:
            raise WorkerStartError(f"the template process could not be executed: {error}") from error
        return _TemplateProcess(started.process, started.control)

    @staticmethod
    def _reap(template: _TemplateProcess) -> None:
        template.process.kill()
        template.process.wait()

    def for_interpreter(self, executable: str) -> WorkerLauncher:
        """A launcher that executes workers: a second template for another interpreter would be too costly."""
        return SpawnLauncher(self._settings._replace(executable=executable))

    def environment(self) -> dict[str, str]:
        """The environment of the template."""
        return worker_environment(self._settings)

    async def close(self) -> None:
        """Ends the template, and with it every worker; returns when the template is reaped."""
        self._closed = True
        if self._started is not None:
            # The launcher has not been started.
            self._template = self._take_over_or_execute()
        template, self._template = self._template, None
        if template is None:
            return
        template.close()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, template.process.wait, _END_GRACE)
        except subprocess.TimeoutExpired:
            self._reap(template)

    def processes(self) -> tuple[tuple[str, int], ...]:
        """The template process."""
        pid = self.template_pid
        return () if pid is None else (("template", pid),)
