"""The first template of a TaskExecutor process: a fork of that process, which then shares pages with its template.

Owner: the process's main thread, before it has a second thread, an event loop, gRPC or a secret. Must not import
what the template does without: the child keeps all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from typing import NoReturn

from yarrow.container.launch.process_start import (
    LaunchSettings,
    StartedTemplate,
    StartOptions,
    worker_environment,
)
from yarrow.runtime.common.clock import perf_counter

#: Modules that a TaskExecutor and its template both need. Nothing here starts a thread, or is slow to fork.
SHARED = (
    "hashlib",
    "ssl",
    "yarrow.container.protocol.framing",
    "yarrow.container.worker.current_call",
    "yarrow.runtime.config.settings",
    "yarrow.runtime.fs.hdfs_settings",
    "yarrow.runtime.graph.engine_specs",
    "yarrow.runtime.graph.job_graph",
    "yarrow.runtime.interpreters.interpreter",
    "yarrow.runtime.metrics.rate",
    "yarrow.runtime.rpc.bootstrap",
)
_TEMPLATE_MODULE = "yarrow.container.launch.template"
#: mallopt(3) has these numbers for settings that glibc reads from the environment only when a process starts.
_MALLOC_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_ARENA_MAX": -8}
#: Seconds between two looks at a process that is to end.
_LOOK_SECONDS = 0.01


class ForkedProcess:
    """A child of this process, with the methods of `subprocess.Popen` that a launcher calls."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: The exit status, or the negative number of the signal; None until `wait` has seen the end.
        self.returncode: int | None = None

    def kill(self) -> None:
        """Sends SIGKILL, unless the child has ended: its process id may be reused."""
        if self._status(os.WNOHANG) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Reaps the child. Raises subprocess.TimeoutExpired if it has not ended after `timeout` seconds."""
        import subprocess  # the template has no use for it

        until = None if timeout is None else perf_counter() + timeout
        while (status := self._status(0 if until is None else os.WNOHANG)) is None:
            if until is not None and perf_counter() >= until:
                raise subprocess.TimeoutExpired(_TEMPLATE_MODULE, timeout or 0)
            sleep(_LOOK_SECONDS)
        return status

    def _status(self, options: int) -> int | None:
        """Reaps the child if it has ended, and returns `returncode`; the options are those of waitpid(2)."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                # Where SIGCHLD is ignored, the kernel reaps, and nobody knows the status. Popen takes it for 0 too.
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def fork_template(entry: str) -> StartedTemplate | None:
    """Forks a template for the likely settings, one core a slot; its output goes where this process's errors go.

    None if the system refuses the fork: the launcher then executes a template, and reports what goes wrong.
    The process was started with -P or PYTHONSAFEPATH, as templates are: a file of the working directory may have the
    name of any module.
    """
    for name in SHARED:
        importlib.import_module(name)
    # Neither process looks at these objects again, so their pages stay shared.
    gc.freeze()
    parent = os.getpid()
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        return None
    # An interrupt would take the child back into the parent's code, which removes the parent's files.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    pid = None
    with contextlib.suppress(OSError):
        pid = os.fork()
    if pid == 0:
        # Their descriptors belong to the template, and not to these objects.
        ours.detach()
        _run_template(theirs.detach(), entry, parent, mask)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    if pid is None:
        ours.close()
        return None
    return StartedTemplate(ForkedProcess(pid), ours)


def _run_template(control_fd: int, entry: str, parent: int, mask: Iterable[int]) -> NoReturn:
    """Makes the child what an executed template is, with the parent's signal mask.

    It never returns to the parent's code.
    """
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        from yarrow.container.launch.template import serve_template
        from yarrow.container.launch.worker_process import close_other_descriptors, redirect_standard_streams

        redirect_standard_streams(2)
        close_other_descriptors(control_fd)
        settings = LaunchSettings(entry=entry)
        use_worker_environment(settings)
        # The template does its work under any name; not every system tells where the arguments lie.
        with contextlib.suppress(OSError, LookupError, ValueError):
            show_command_line([sys.executable, "-P", "-m", _TEMPLATE_MODULE])
        status = serve_template(StartOptions(control_fd, parent, entry, ""))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def use_worker_environment(settings: LaunchSettings) -> None:
    """Gives this process the variables of a worker, and the allocator what it reads only when a process starts."""
    variables = worker_environment(settings)
    with contextlib.suppress(AttributeError):  # only glibc has these settings
        set_parameter = ctypes.CDLL(None).mallopt
        for name, parameter in _MALLOC_PARAMETERS.items():
            # A value that the user exported has held since the start of the process.
            if name not in os.environ:
                set_parameter(parameter, int(variables[name]))
    os.environ.update(variables)


def show_command_line(command: list[str]) -> None:
    """Shows `command` as this process's command line, cut to the length of the one that started it."""
    # Behind the name in parentheses; arg_start and arg_end are the fields 48 and 49 of proc_pid_stat(5).
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"\0".join(os.fsencode(part) for part in command)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
