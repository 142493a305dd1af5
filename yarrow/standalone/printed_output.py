"""PrintedOutput: what `print()` of bounded jobs writes on a standalone cluster: a file of the JobManager's log folder.

Owner: any thread; a call writes whole lines. Streams print into the files of their TaskExecutors instead.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from yarrow.runtime.common.private_files import private_opener

_log = logging.getLogger(__name__)


class PrintedOutput:
    """The file, which REST serves as the JobManager's stdout."""

    def __init__(self, log_directory: Path) -> None:
        self.path = log_directory / f"yarrow-standalonesession-{socket.gethostname()}.out"
        #: Why the last write failed; "" = it did not.
        self._refused = ""

    def write(self, text: str) -> None:
        """Appends the text. A full disk costs the text, not the job."""
        try:
            with open(self.path, "a", encoding="utf-8", opener=private_opener) as file:
                file.write(text)
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._refused:
                _log.warning("%s cannot be written: %s; what jobs print is lost until it can", self.path, why)
            self._refused = why
        else:
            self._refused = ""
