"""Full disks: says which disk is full, which folder lies there, and what to do; knows the errors that mean it.

Owner: any thread. It reads the sizes of disks and nothing else.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from typing import Final

import msgspec

from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.runtime.config.options import cluster
from yarrow.runtime.fs.retries import TransientError
from yarrow.runtime.rpc.messages import FailureCause

#: How Spark names a task's executor.
_EXECUTOR: Final = re.compile(r"\(TID \d+\) \((\S+) executor (\S+)\)")
#: What the system says; Java, too, says it so.
_WORDS: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))


def means_full(error: BaseException | None) -> bool:
    """Whether an error says that a disk is full, or that a user may write no more to it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def tells_of_full_disk(text: str) -> bool:
    """Whether the text of an error, perhaps Java's, says so."""
    return any(words in text for words in _WORDS)


def full_disk(folder: str | os.PathLike[str]) -> str:
    """The disk of a folder in which the engine works, and the remedy."""
    return (
        f"the disk of {os.fspath(folder)} is full ({_sizes(folder)}): free the disk, or name a folder on a larger one"
        f" ({cluster.WORKING_DIR.key})"
    )


def full_disk_of_executor(text: str) -> str:
    """The disk of the executor that Spark's error names, and the remedy; it may be on another host."""
    found = _EXECUTOR.search(text)
    where = f"executor {found[2]} on {found[1]}" if found else "an executor"
    return (
        f"the disk of {where} is full: free the disk, or let Spark's workers write to a larger one (SPARK_LOCAL_DIRS"
        " in their environment)"
    )


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
    name = error.filename
    known = isinstance(name, str) and os.path.isabs(name)
    where = f"the disk of {name} is full ({_sizes(name)})" if known else "a disk to which it writes is full"
    text = f"{where}: free the disk, or let the operator '{cause.operator_name}' write to another one"
    return msgspec.structs.replace(
        cause, message=f"{cause.message}; {text}", stacktrace=f"{cause.stacktrace}  {text}\n"
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those of which it was made."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def _sizes(folder: str | os.PathLike[str]) -> str:
    place = os.path.abspath(folder)
    # The folder itself may be gone with its task.
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    sizes = shutil.disk_usage(place)
    return f"mounted on {_mount_of(place)}, {sizes.total >> 20} MB, of which {sizes.free >> 20} are free now"


def _mount_of(folder: str) -> str:
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder
