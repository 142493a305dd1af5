"""ControlPlaneLog: what the control plane of an embedded cluster logs, as a file that REST shows.

Owner: whoever starts the cluster. The control plane logs through the client's `logging`: its levels decide what there
is, and no level is changed here. Clusters of one process that run at one time have each other's lines as well.
"""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

from yarrow.client.client_logging import handlers_of

#: As the master of an application on YARN calls it.
FILE_NAME = "jobmanager.log"
_LOGGER = "yarrow"


class ControlPlaneLog(logging.FileHandler):
    """Writes from construction to `end`; the file is there with its first line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE_NAME, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-5s %(name)s - %(message)s"))
        logging.getLogger(_LOGGER).addHandler(self)

    def end(self) -> None:
        """Writes nothing more."""
        logging.getLogger(_LOGGER).removeHandler(self)
        self.close()

    def _open(self) -> io.TextIOWrapper:
        """Readable by nobody else: messages may name what users work on."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.baseFilename, flags, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding=self.encoding, write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        """A log that cannot be written costs its line alone.

        `logging` writes to stderr what finds no handler at all. This handler must not change that for the client.
        """
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)
        last_resort = logging.lastResort
        if last_resort is not None and record.levelno >= last_resort.level and self._is_alone(record.name):
            last_resort.handle(record)

    def _is_alone(self, name: str) -> bool:
        """Whether no handler of the client's gets records of a logger; True for one log only where several write."""
        handlers = handlers_of(logging.getLogger(name))
        return handlers[:1] == [self] and all(isinstance(handler, ControlPlaneLog) for handler in handlers)
