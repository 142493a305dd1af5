"""The lock of a service's folder: commands that change the same service wait for each other.

Owner: whoever holds the lock. The lock file lies beside the folder, since the service may remove the folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keeps other commands from changing the service in `root` meanwhile; waits for them."""
    lock = Path(f"{root}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(lock, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it may have removed the service, and this file with it.
            if lock.exists() and os.path.samestat(os.stat(lock), os.fstat(file.fileno())):
                try:
                    yield
                finally:
                    if not root.exists():
                        lock.unlink()
                return
