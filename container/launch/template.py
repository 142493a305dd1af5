"""The template process: it has imported the modules of every worker, and forks workers on request.

Owner: its single thread. A child inherits everything that is here. So it must not call pyarrow or numpy, or import
polars, pandas, grpc or user code. It must not start a thread, or keep a worker's socket after the fork. It ends when
its control socket reaches EOF, and then kills its children.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys

import msgspec

from yarrow.container.launch.process_start import StartOptions, set_process_name
from yarrow.container.launch.worker_process import die_with_parent, prepare_process, run_worker_process
from yarrow.container.protocol.worker_protocol import (
    ForkWorker,
    TemplateReady,
    WorkerExited,
    WorkerForked,
    WorkerForkFailed,
)
from yarrow.runtime.common.ids import WorkerID

#: Modules that every worker has imported at birth. The module of the worker's main, and with it our own modules, comes
#: on top. Never grpc, polars or pandas (a child of a parent that used them hangs), nor fastapi (no worker needs it).
#: pyarrow takes 28 MB and stays out too: a worker imports it when its job has columns.
PRELOADED = ("numpy", "msgspec", "cloudpickle")

_PACKET_BYTES = 64 * 1024
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ForkWorker)


class Child(msgspec.Struct, frozen=True):
    """The result of `Template.serve` in a child: what the new process must become."""

    control_fd: int
    raw_output: int
    process_name: str
    parent: int


class Template:
    """The loop of a template: forks on request, reaps, reports."""

    def __init__(self, control_fd: int) -> None:
        self._control = socket.socket(fileno=control_fd)
        self._control.setblocking(True)
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._children: dict[int, WorkerID] = {}

    def serve(self) -> Child | None:
        """Serves until the supervisor is gone (None); in a forked child, returns what the child must become."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        try:
            self._send(TemplateReady(pid=os.getpid()))
            while True:
                ready = {fd for fd, _ in poll.poll()}
                if self._wake_read.fileno() in ready:
                    self._reap()
                if self._control.fileno() in ready:
                    request, fds = self._receive()
                    if request is None:
                        break
                    child = self._fork(request, fds)
                    if child is not None:
                        return child
        except BrokenPipeError:
            pass
        self._kill_children()
        return None

    def _receive(self) -> tuple[ForkWorker | None, list[int]]:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return None, []
        return (_DECODER.decode(data) if data else None), fds

    def _fork(self, request: ForkWorker, fds: list[int]) -> Child | None:
        worker_fd, raw_output = fds
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(worker_fd)
            os.close(raw_output)
            self._send(WorkerForkFailed(worker_id=request.worker_id, reason=str(error)))
            return None
        if pid == 0:
            self._forget_sockets()
            return Child(worker_fd, raw_output, request.process_name, parent)
        # A copy kept here would hide the supervisor's end from the worker, and the worker's from the
        # supervisor.
        os.close(worker_fd)
        os.close(raw_output)
        self._children[pid] = request.worker_id
        self._send(WorkerForked(worker_id=request.worker_id, pid=pid))
        return None

    def _forget_sockets(self) -> None:
        """Detaches sockets in the child: their descriptor numbers may belong to other files by now."""
        signal.set_wakeup_fd(-1)
        for sock in (self._control, self._wake_read, self._wake_write):
            os.close(sock.detach())
        self._children.clear()

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            worker_id = self._children.pop(pid, None)
            if worker_id is not None:
                self._send(exit_of(worker_id, pid, status))

    def _send(self, message: msgspec.Struct) -> None:
        self._control.send(_ENCODER.encode(message))

    def _kill_children(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


def exit_of(worker_id: WorkerID, pid: int, wait_status: int) -> WorkerExited:
    """The result of waitpid as a message."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        return WorkerExited(worker_id=worker_id, pid=pid, signal=-code)
    return WorkerExited(worker_id=worker_id, pid=pid, status=code)


def preload(entry: str) -> None:
    """Imports the workers' modules and excludes them from garbage collection, so that pages stay shared."""
    # Hundreds of modules leave next to no garbage: a search for it would find their own objects, time and again.
    gc.disable()
    for name in (*PRELOADED, entry.partition(":")[0]):
        importlib.import_module(name)
    from yarrow.container.operators.registry import import_row_operators  # one of the workers' modules

    import_row_operators()
    # The first call in a child would otherwise load the library there.
    library = ctypes.CDLL(None)
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError):
        # glibc keeps what imports have freed, and each child would hold a copy. Other libraries have no such call.
        library.malloc_trim(0)


def serve_template(options: StartOptions) -> int:
    """Serves as the template until the supervisor is gone; does not return in a child."""
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_process_name("yarrow-template")
    preload(options.entry)
    child = Template(options.fd).serve()
    if child is None:
        return 0
    control = prepare_process(child.control_fd, child.raw_output, child.process_name, child.parent)
    run_worker_process(control, options.entry)


if __name__ == "__main__":
    sys.exit(serve_template(StartOptions.of(sys.argv[1:])))
