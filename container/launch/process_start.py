"""ProcessStart: the name, environment and command line of our processes, and the start of a template.

Owner: the main thread of the process that starts another. A TaskExecutor forks its first template before it imports
what is its own. So this module must import only what takes a few milliseconds: no asyncio, msgspec, logging.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from yarrow.runtime.interpreters.environment import INTERPRETER_VARIABLE, environment_for

#: `module:function` of the blocking main of a worker.
DEFAULT_ENTRY = "yarrow.container.worker.worker:run_worker"

#: Environment variables with thread counts, which libraries read when they are loaded.
_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
#: The kernel keeps 15 bytes of a process name.
_NAME_BYTES = 15


class LaunchSettings(NamedTuple):
    """The process settings of all workers of a TaskExecutor."""

    cpu_cores: float = 1.0
    #: `module:function` of the workers' main.
    entry: str = DEFAULT_ENTRY
    executable: str = sys.executable
    #: Added to the environment of template and workers.
    environment: Mapping[str, str] = MappingProxyType({})


class StartedProcess(Protocol):
    """The process of a template, as its parent sees it: what `subprocess.Popen` has of it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of the signal; None until `wait` has seen the end."""
        ...

    def kill(self) -> None:
        """Sends SIGKILL, unless the process is reaped."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Reaps the process. Raises subprocess.TimeoutExpired if it has not ended after `timeout` seconds."""
        ...


class StartedTemplate(NamedTuple):
    """A template process that imports the workers' modules, and our end of its control socket."""

    process: StartedProcess
    control: socket.socket


class StartOptions(NamedTuple):
    """What the command line of one of our processes says: the counterpart of `python_command`."""

    #: Descriptor of the control socket.
    fd: int
    #: Process id of the process that wrote the command line.
    parent: int
    #: `module:function` of the workers' main.
    entry: str
    name: str

    @staticmethod
    def of(arguments: list[str]) -> StartOptions:
        """Reads pairs of a flag and its value; argparse, made for people, takes 5 ms to import."""
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        return StartOptions(
            fd=int(given["--fd"]),
            parent=int(given["--parent"]),
            entry=given.get("--entry", DEFAULT_ENTRY),
            name=given.get("--name", "yarrow-worker"),
        )


def set_process_name(name: str) -> None:
    """Names the process in `ps` and `top`; if the kernel refuses, the name stays."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb") as comm:
        comm.write(name.encode()[:_NAME_BYTES])


def worker_environment(settings: LaunchSettings) -> dict[str, str]:
    """This process's environment with thread counts that follow the slot's cores.

    A value that the user exported wins, because it was set on purpose.
    """
    threads = str(max(1, math.ceil(settings.cpu_cores)))
    defaults = {name: threads for name in _THREAD_COUNTS}
    defaults["ARROW_IO_THREADS"] = threads
    defaults[INTERPRETER_VARIABLE] = settings.executable
    defaults["MALLOC_ARENA_MAX"] = str(2 * int(threads))
    # The arrays of batches are freed and allocated all the time. If their pages were returned and faulted in
    # again, numpy kernels would lose two thirds of their rate.
    defaults["MALLOC_TRIM_THRESHOLD_"] = str(64 << 20)
    defaults["MALLOC_MMAP_THRESHOLD_"] = str(32 << 20)
    return environment_for(settings.executable, {**defaults, **os.environ, **settings.environment})


def python_command(settings: LaunchSettings, module: str, control_fd: int) -> list[str]:
    """The command line of one of our processes; -P keeps the working directory out of the import path."""
    return [
        settings.executable,
        "-P",
        "-m",
        module,
        "--fd",
        str(control_fd),
        "--parent",
        str(os.getpid()),
        "--entry",
        settings.entry,
    ]


def execute_template(settings: LaunchSettings, raw_output: int) -> StartedTemplate:
    """Executes a template; its own output goes to the descriptor `raw_output`. Raises OSError."""
    import subprocess  # templates and workers use the rest of this module and execute nothing

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            process = subprocess.Popen(
                python_command(settings, "yarrow.container.launch.template", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=raw_output,
                stderr=raw_output,
                pass_fds=[theirs.fileno()],
                env=worker_environment(settings),
            )
        except OSError:
            ours.close()
            raise
    return StartedTemplate(process, ours)
