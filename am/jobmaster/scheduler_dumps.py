"""SchedulerDumps: files in the log folder with the last decisions about a job, written when its master fails inside.

Owner: the JobMaster's loop; `write_dump` blocks and runs in a thread. Only the owner of a file can read it. The size of
a file is bounded, as are the files of a folder and of one JobMaster. Must not fail the job itself.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from yarrow.am.jobmaster.scheduling.scheduler_log import DUMP_BYTES, SchedulerLog
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobID, is_hex_id

#: Files that are kept in a folder: the newest.
FILES_KEPT: Final = 10
#: Files that one JobMaster writes: the first failures tell most.
_FILES_PER_MASTER: Final = 3
_NAME: Final = re.compile(r"scheduler-[0-9a-z]+-\d+\.json")
_log = logging.getLogger(__name__)


class SchedulerDumps:
    """The dumps of one JobMaster."""

    def __init__(
        self, folder: Path | None, clock: Clock, run_in_thread: Callable[[Callable[[], None]], object]
    ) -> None:
        """`folder` None = there is none, and nothing is written."""
        self._folder = folder
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._written = 0
        self._last_error: BaseException | None = None

    def failed(self, error: BaseException, job_id: JobID, events: SchedulerLog) -> None:
        """Writes what the scheduler decided before an internal error; once an error."""
        if self._folder is None or error is self._last_error or self._written >= _FILES_PER_MASTER:
            return
        self._last_error = error
        self._written += 1
        data = events.dump(f"{type(error).__name__}: {error}")
        if data is None:
            _log.warning(
                "the last decisions about the job %s are not written: they have more than %d bytes",
                job_id,
                DUMP_BYTES,
            )
            return
        # A job id that is none is not made part of a file's name.
        name = f"scheduler-{job_id if is_hex_id(job_id) else 'job'}-{self._clock.epoch_ms()}.json"
        path = self._folder / name
        self._run_in_thread(lambda: write_dump(path, data))


def write_dump(path: Path, data: bytes) -> None:
    """Writes a new file and removes the oldest of its kind. Blocking; a failure is logged."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
        _remove_oldest(path.parent)
    except OSError as error:
        _log.warning("the last decisions of a job could not be written to %s: %s", path, error)
    else:
        _log.error("the last decisions of the job are in %s: `yarrow replay %s` repeats them", path, path)


def _remove_oldest(folder: Path) -> None:
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    # Names end with the time of writing.
    found.sort(key=lambda path: int(path.stem.rpartition("-")[2]))
    for path in found[:-FILES_KEPT]:
        path.unlink(missing_ok=True)
