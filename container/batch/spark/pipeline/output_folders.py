"""Outputs of a stage as folders: written under a hidden name, and moved into place together when all are complete.

Owner: the thread of a stage. An output is there whole or not at all: a reader never sees a part. Must not know what is
written into a folder, nor Spark.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Sequence
from typing import Final

from yarrow.runtime.common.errors import FileSystemError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.common.paths import is_hidden, join, scheme_of
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.batch.pipeline_storage import OutputExistsError, exists_already
from yarrow.runtime.rpc.messages import OutputMove

_log = logging.getLogger(__name__)
_MARK: Final = "yarrow"
#: What a replaced folder is called until its successor is in place.
_OLD: Final = ".replaced"


class OutputLostError(YarrowError):
    """Neither the folder in which an output was written exists, nor the one under which it is to be found."""


def hidden_folder(target: str, job_id: JobID, attempt: str) -> str:
    """Where an attempt writes the output `target`: beside it, so that moving it is one step of the same storage."""
    parent, name = posixpath.split(target.rstrip("/"))
    return join(parent, f".{name}.{_MARK}-{job_id}-{attempt}")


def prepare(move: OutputMove, job_id: JobID) -> None:
    """Makes the parent of an output, and removes what earlier attempts of the job have left there.

    Raises OutputExistsError, OSError and FileSystemError.
    """
    files = file_system_for(move.target)
    if not move.replaces and exists(files, move.target):
        raise OutputExistsError(exists_already(move.target))
    parent, name = posixpath.split(move.target.rstrip("/"))
    files.make_dirs(parent)
    for found in files.list(parent):
        if found.name.startswith(f".{name}.{_MARK}-{job_id}-") and not found.name.endswith(_OLD):
            files.delete(found.path, recursive=True)


def commit(moves: Sequence[OutputMove]) -> None:
    """Moves all outputs into place, or none; what an earlier call has moved stays.

    Raises OutputLostError, OutputExistsError, OSError and FileSystemError.
    """
    moved: list[OutputMove] = []
    try:
        for move in moves:
            if _move(move):
                moved.append(move)
    except Exception:
        for move in reversed(moved):
            _move_back(move)
        raise
    for move in moves:
        if move.replaces:
            _remove_quietly(move.source + _OLD)


def _move(move: OutputMove) -> bool:
    """Moves one output; False if it is in place."""
    files = file_system_for(move.target)
    is_there = exists(files, move.target)
    if not exists(files, move.source):
        if is_there:
            return False
        raise OutputLostError(f"{move.source}, which a stage has written, does not exist any more")
    if is_there:
        if not move.replaces:
            raise OutputExistsError(exists_already(move.target))
        files.rename(move.target, move.source + _OLD)
    try:
        files.rename(move.source, move.target)
    except Exception:
        if is_there:
            files.rename(move.source + _OLD, move.target)
        raise
    return True


def _move_back(move: OutputMove) -> None:
    files = file_system_for(move.target)
    try:
        files.rename(move.target, move.source)
        if exists(files, move.source + _OLD):
            files.rename(move.source + _OLD, move.target)
    except (OSError, FileSystemError) as error:
        _log.warning("the output %s stays, though others of its stage are not there: %s", move.target, error)


def remove(moves: Sequence[OutputMove]) -> None:
    """Removes what an attempt has written that nobody commits; what cannot be removed is told in the log."""
    for move in moves:
        _remove_quietly(move.source)


def _remove_quietly(folder: str) -> None:
    try:
        file_system_for(folder).delete(folder, recursive=True)
    except (OSError, FileSystemError) as error:
        _log.warning("%s is left: %s", folder, error)


def lack_of(folder: str) -> str | None:
    """What has been done instead of a folder with a file that readers see; None = there is such a folder.

    Raises OSError and FileSystemError.
    """
    files = file_system_for(folder)
    try:
        if not files.status(folder).is_dir:
            return "written a plain file in place of the folder of"
        if any(not is_hidden(each.name) or each.name == "_metadata" for each in files.list(folder)):
            return None
    except FileNotFoundError:
        pass
    return "put nothing into the folder of"


def size_of(folder: str) -> int:
    """Bytes of all files below a folder. Raises OSError and FileSystemError."""
    files = file_system_for(folder)
    return sum(
        size_of(found.path) if found.is_dir else found.size
        for found in files.list(folder)
        if not found.name.startswith(".")
    )


def for_spark(path: str) -> str:
    """The path as Spark takes it, whose plain paths lie in whatever file system Hadoop's configuration names."""
    return path if scheme_of(path) != "file" or path.startswith("file:") else f"file://{path}"
