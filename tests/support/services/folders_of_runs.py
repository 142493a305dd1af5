"""Folders of services that test processes start for themselves: `<own>-<process id>` with any ending behind.

Owner: the caller's thread.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(own: str) -> Iterator[None]:
    """Waits for others that bring up theirs: they would take the same ports, and each other's time."""
    with open(f"{own}.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def abandoned(own: str) -> Iterator[Path]:
    """The folders of processes that were killed before they could take their service down."""
    begin = f"{os.path.basename(own)}-"
    for folder in Path(own).parent.glob(f"{begin}*"):
        owner = folder.name.removeprefix(begin).partition("-")[0]
        if folder.is_dir() and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            yield folder
