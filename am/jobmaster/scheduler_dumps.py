"""SchedulerDumps: files in the log folder with a job's last decisions, written after an internal error of its master.

Owner: the JobMaster's loop; `write_dump` blocks and runs in a thread. Only the owner of a file can read it.
The size of a file is bounded, as are the number of files in a folder and of one JobMaster. Must not fail the
job itself.
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

#: Most files in a folder: the newest stay.
FILES_KEPT: Final = 10
#: Most files of one JobMaster: the first failures tell most.
_FILES_PER_MASTER: Final = 3
_NAME: Final = re.compile(r"scheduler-[0-9a-z]+-\d+\.json")
_log = logging.getLogger(__name__)


class SchedulerDumps:
    """The dumps of one JobMaster."""

    def __init__(
        self, folder: Path | None, clock: Clock, run_in_thread: Callable[[Callable[[], None]], object]
    ) -> None:
        """`folder` None = there is no folder, and nothing is written."""
        self._folder = folder
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._written = 0
        self._last_error: BaseException | None = None

    def failed(self, error: BaseException, job_id: JobID, events: SchedulerLog) -> None:
        """Writes the scheduler's decisions before an internal error, once for each error."""
        if self._folder is None or error is self._last_error or self._written >= _FILES_PER_MASTER:
            return
        self._last_error = error
        self._written += 1
        data = events.dump(f"{type(error).__name__}: {error}")
        if data is None:
            _log.warning(
                "the last decisions about the job %s are not written: the dump would have more than %d bytes",
                job_id,
                DUMP_BYTES,
            )
            return
        # An invalid job id must not become part of a file name.
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
        _log.error(
            "the last decisions of the job are in %s: run `yarrow replay %s` to repeat them", path, path
        )


def _remove_oldest(folder: Path) -> None:
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    # Names end with the time of writing.
    found.sort(key=lambda path: int(path.stem.rpartition("-")[2]))
    for path in found[:-FILES_KEPT]:
        path.unlink(missing_ok=True)
