"""Full disks: says which disk is full, which folder lies there, and what to do; knows the errors that mean it.

Owner: any thread. It reads the sizes of disks, and where this process keeps its files, and nothing else.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.runtime.config.options import cluster
from yarrow.runtime.fs.retries import TransientError
from yarrow.runtime.rpc.messages import FailureCause

#: Spark's own variable: the folders of the executor above a Python process, or of the worker above an executor.
_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"
#: Where a NodeManager of YARN has the folders of containers.
_OF_YARN: Final = re.compile(r"/usercache/[^/]+/appcache/application_\d+_\d+\b")
#: How containers of YARN write to another disk, and how executors elsewhere do.
REMEDY_ON_YARN: Final = "let YARN's NodeManagers write to a larger one (yarn.nodemanager.local-dirs)"
REMEDY_OF_EXECUTORS: Final = (
    f"let Spark's workers write to a larger one ({_SPARK_FOLDERS} in their environment)"
)
#: What the system says; Java, too, says it so.
_WORDS: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))


def means_full(error: BaseException | None) -> bool:
    """Whether an error says that a disk is full, or that a user may write no more to it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def tells_of_full_disk(text: str) -> bool:
    """Whether the text of an error, perhaps Java's, says so."""
    return any(words in text for words in _WORDS)


def full_disk(folder: str | os.PathLike[str], otherwise: str = "") -> str:
    """The full disk of a folder, and what to do: `otherwise`, or the remedy of a folder in which the engine works."""
    other = otherwise or remedy(os.fspath(folder))
    return f"the disk of {os.fspath(folder)} is full ({_sizes(folder)}): free the disk, or {other}"


def remedy(folders: str) -> str:
    """How the engine writes to another disk than that of these folders, which may be on another host."""
    if _OF_YARN.search(folders):
        return REMEDY_ON_YARN
    if any(folders.startswith(own) for own in executor_folders()):
        return REMEDY_OF_EXECUTORS
    return f"name a folder on a larger one ({cluster.WORKING_DIR.key})"


def executor_folders() -> tuple[str, ...]:
    """Where the executor of Spark above this process keeps its files; none = Spark has not started the process."""
    return tuple(filter(None, os.environ.get(_SPARK_FOLDERS, "").split(",")))


@cache
def executor_disks() -> str:
    """The same with their disks, in words, for a driver that does not see them; "" = there are none."""
    return ", ".join(f"{folder} ({_disk(_existing(folder))})" for folder in executor_folders())


def failure_of_task(error: BaseException, where: str) -> FailureCause:
    """The cause of a task's failure, with disk and remedy if a function of the program has filled a disk.

    It is final, since the same records would fail again. If a disk is full or storage is away, it is not: another
    attempt may find room, or storage that is back.
    """
    cause = failure_cause(error, where)
    if isinstance(error, OperatorFailure):
        error = error.cause
    passes = any(means_full(each) or isinstance(each, TransientError) for each in _with_causes(error))
    cause = msgspec.structs.replace(cause, is_final=not passes)
    if not means_full(error):
        return cause
    assert isinstance(error, OSError)
    text = _full_disk_of_task(error, cause.operator_name)
    return msgspec.structs.replace(
        cause, message=f"{cause.message}; {text}", stacktrace=f"{cause.stacktrace}  {text}\n"
    )


def _full_disk_of_task(error: OSError, operator_name: str) -> str:
    """The disk that a function of the program has filled, or the engine if no operator is named; and the remedy."""
    name = error.filename if isinstance(error.filename, str) and os.path.isabs(error.filename) else ""
    if not operator_name and (name or executor_folders()):
        return full_disk(name or executor_folders()[0])
    where = f"the disk of {name} is full ({_sizes(name)})" if name else "a disk to which it writes is full"
    return f"{where}: free the disk, or let the operator '{operator_name}' write to another one"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those of which it was made."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def _sizes(folder: str | os.PathLike[str]) -> str:
    place = _existing(folder)
    return f"{_disk(place)}, of which {shutil.disk_usage(place).free >> 20} are free now"


def _disk(place: str) -> str:
    return f"mounted on {_mount_of(place)}, {shutil.disk_usage(place).total >> 20} MB"


def _existing(folder: str | os.PathLike[str]) -> str:
    """The folder, or the nearest above it: the folder itself may be gone with its task."""
    place = os.path.abspath(folder)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place


def _mount_of(folder: str) -> str:
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder
