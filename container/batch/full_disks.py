"""Full disks: says which disk is full, which folder lies there, and what to do; knows the errors that mean it.

Owner: any thread. It reads the sizes of disks and nothing else.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import Final

from yarrow.runtime.config.options import cluster

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


def _sizes(folder: str | os.PathLike[str]) -> str:
    place = os.path.abspath(folder)
    # The folder itself may be gone with its task.
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    sizes = shutil.disk_usage(place)
    return f"mounted on {_mount_of(place)}, {sizes.free >> 20} of {sizes.total >> 20} MB are free"


def _mount_of(folder: str) -> str:
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder
