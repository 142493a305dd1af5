"""A disk that is full soon: a file system in memory, for tests that may mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A folder on a disk of its own; the test is skipped where this process may mount none."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this process may not mount a file system")
    try:
        yield folder
    finally:
        # Lazily: a process may hold a file there for a moment.
        subprocess.run(["umount", "-l", str(folder)], check=True)
