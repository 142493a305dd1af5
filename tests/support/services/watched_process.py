"""Guards of services: processes that outlive the one that tests, and take its service down when it has ended.

Owner: the process that tests starts and ends its guard; the guard waits for that process.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def guarded(module: str, folder: Path, take_down: Callable[[], object]) -> Iterator[None]:
    """Takes the service in a folder down at the end of this block, and at the end of this process.

    `module` is the guard's, whose arguments are the number of this process and the folder.
    """
    command = [sys.executable, "-m", module, str(os.getpid()), str(folder)]
    with subprocess.Popen(command, cwd=_ROOT, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.terminate()
            take_down()


def wait_until_gone(pid: int) -> None:
    """Waits for the end of a process that is no child."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([watched], [], [])
