"""WorkerProcess: the work of a forked or spawned child before `run_worker` gets its control socket.

Owner: the child's only thread. Must not import user code, or keep any descriptor but 0-2 and the control
socket. Must not return to the parent's code: `run_worker_process` ends the process.

`python -m yarrow.container.launch.worker_process --fd N` starts a worker without a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import logging
import os
import random
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn, cast

from yarrow.container.launch.process_start import StartOptions, set_process_name

WorkerMain = Callable[[socket.socket], int]
#: That of Python. A worker puts another in its place, which tells that user code has ended the process.
_exit: Final = os._exit

#: prctl(2): send this signal to the calling process when its parent has died.
_PR_SET_PDEATHSIG = 1


def load_entry(entry: str) -> WorkerMain:
    """The function that `module:function` names."""
    module, _, name = entry.partition(":")
    return cast(WorkerMain, getattr(importlib.import_module(module), name))


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends.

    That works even inside a call that holds the interpreter for ever.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def close_other_descriptors(keep: int) -> None:
    """Closes every descriptor above 2 but `keep`."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    highest = limit if limit != resource.RLIM_INFINITY else 1 << 20
    os.closerange(3, keep)
    os.closerange(keep + 1, highest)


def redirect_standard_streams(raw_output: int | None) -> None:
    """stdin from /dev/null; stdout and stderr, also of C code, to `raw_output` if there is one."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if raw_output is not None:
        os.dup2(raw_output, 1)
        os.dup2(raw_output, 2)


def prepare_process(control_fd: int, raw_output: int | None, process_name: str, parent: int) -> socket.socket:
    """Makes the child an independent process and returns its control socket."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Ctrl-C is for the client, which cancels the job; a worker ends when told to.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    redirect_standard_streams(raw_output)
    close_other_descriptors(control_fd)
    os.set_inheritable(control_fd, False)
    set_process_name(process_name)
    faulthandler.enable()
    reseed()
    gc.enable()
    return socket.socket(fileno=control_fd)


def reseed() -> None:
    """Reseeds random generators: forked children would otherwise draw the same numbers."""
    random.seed()
    # Not imported here: it seeds itself when a function imports it.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def run_worker_process(control: socket.socket, entry: str) -> NoReturn:
    """Runs the worker's main and ends the process with the returned status.

    An exception that escapes is status 1.
    """
    try:
        status = load_entry(entry)(control)
    except SystemExit as exit_request:
        status = (
            exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
        )
    except BaseException:
        traceback.print_exc()
        status = 1
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: a thread that user code left behind would keep the process alive.
    _exit(status & 0xFF)


def main(arguments: list[str]) -> NoReturn:
    """Starts without a fork: this process was executed for one worker."""
    options = StartOptions.of(arguments)
    control = prepare_process(options.fd, None, options.name, options.parent)
    run_worker_process(control, options.entry)


if __name__ == "__main__":
    main(sys.argv[1:])
