"""The files of a cluster id below high-availability.storageDir: how all but kept checkpoints are removed.

Owner: any thread; every call may block. The JobMaster marks the folder of a failed job whose checkpoints stay. Must not
know what is in the other folders.
"""

from __future__ import annotations

import logging
from typing import Final

from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.file_system import FileSystem, exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.ha.settings import CHECKPOINTS_FOLDER

_log = logging.getLogger(__name__)

#: A file beside the checkpoints of a failed job that says why they stay.
KEPT_FILE: Final = "_kept"


def mark_kept(job_folder: str, why: str) -> None:
    """Notes in the folder of a job's checkpoints that they stay. Raises OSError and FileSystemError."""
    path = join(job_folder, KEPT_FILE)
    files = file_system_for(path)
    # An earlier job of the same id may have left one.
    files.delete(path)
    with files.create(path) as stream:
        stream.write(f"{why}\n".encode())


def remove_stored_files(directory: str) -> None:
    """Removes the folder of a cluster id, without checkpoints that failed jobs keep.

    Raises OSError and FileSystemError.
    """
    files = file_system_for(directory)
    checkpoints = join(directory, CHECKPOINTS_FOLDER)
    kept = _jobs_that_keep(files, checkpoints)
    if not kept:
        files.delete(directory, recursive=True)
        return
    for folder, stays in ((directory, {CHECKPOINTS_FOLDER}), (checkpoints, kept)):
        for entry in files.list(folder):
            if entry.name not in stays:
                files.delete(entry.path, recursive=True)
    _log.info("checkpoints of failed jobs stay in %s: %s", checkpoints, ", ".join(sorted(kept)))


def _jobs_that_keep(files: FileSystem, checkpoints: str) -> set[str]:
    try:
        jobs = files.list(checkpoints)
    except FileNotFoundError:
        return set()
    return {job.name for job in jobs if _keeps(files, job.path)}


def _keeps(files: FileSystem, job_folder: str) -> bool:
    """Whether checkpoints of a failed job are still there: a later job may have claimed and deleted them."""
    if not exists(files, join(job_folder, KEPT_FILE)):
        return False
    return any(entry.name != KEPT_FILE for entry in files.list(job_folder))
