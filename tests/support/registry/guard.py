"""Takes a registry down when the process that tests with it ends, however it ends.

Owner: a process of its own, started by the one that it watches: `python -m tests.support.registry.guard PID FOLDER`.
"""

from __future__ import annotations

import sys

from tests.support.registry.server import RegistryServer
from tests.support.services.watched_process import wait_until_gone


def main(pid: int, folder: str) -> None:
    """Wait for the end of the process `pid`, then take down the registry in `folder`."""
    wait_until_gone(pid)
    RegistryServer(folder).down()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
