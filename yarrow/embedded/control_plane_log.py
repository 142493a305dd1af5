"""ControlPlaneLog: an embedded cluster's control plane log, as a file that REST shows.

Owner: the code that starts the cluster. The control plane logs through the client's `logging`, whose levels
apply; no level is changed here. Concurrent clusters of one process also get each other's lines.
"""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

from yarrow.client.client_logging import handlers_of

#: The log name of a master on YARN.
FILE_NAME = "jobmanager.log"
_LOGGER = "yarrow"


class ControlPlaneLog(logging.FileHandler):
    """Writes from construction to `end`; the file is there with its first line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE_NAME, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-5s %(name)s - %(message)s"))
        logging.getLogger(_LOGGER).addHandler(self)

    def end(self) -> None:
        """Stops writing."""
        logging.getLogger(_LOGGER).removeHandler(self)
        self.close()

    def _open(self) -> io.TextIOWrapper:
        """Only this user can read it: messages may name users' data."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.baseFilename, flags, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding=self.encoding, write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record; an unwritable log costs its line alone.

        `logging` writes records without any handler to stderr. This handler must not change that for the
        client.
        """
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)
        last_resort = logging.lastResort
        if last_resort is not None and record.levelno >= last_resort.level and self._is_alone(record.name):
            last_resort.handle(record)

    def _is_alone(self, name: str) -> bool:
        """Whether no handler of the client gets a logger's records; with several logs, True for one only."""
        handlers = handlers_of(logging.getLogger(name))
        return handlers[:1] == [self] and all(isinstance(handler, ControlPlaneLog) for handler in handlers)
