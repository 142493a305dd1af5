"""A schema registry for one process that runs tests: it goes with this process, also when a signal kills it.

Owner: the caller's thread.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.registry.server import RegistryServer
from tests.support.services.folders_of_runs import abandoned, one_at_a_time
from tests.support.services.watched_process import guarded

_OWN = str(Path(tempfile.gettempdir()) / f"yarrow-registry-{getpass.getuser()}-tests")


@contextmanager
def registry_of_run() -> Iterator[RegistryServer]:
    """Serving. Raises MissingProgramError, which names the program, where one is missing."""
    registry = RegistryServer(f"{_OWN}-{os.getpid()}")
    with guarded("tests.support.registry.guard", registry.directory, registry.down):
        with one_at_a_time(_OWN):
            for folder in abandoned(_OWN):
                RegistryServer(folder).down()
            registry.up()
        yield registry
