"""A SnapshotOutput that keeps everything inline, and the reader of its handles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from yarrow.runtime.snapshot.handles import FileStateHandle, InlineStateHandle, StateHandle


class MemoryOutput:
    """Every piece becomes an inline handle; shared files are read into memory by their names."""

    def __init__(self) -> None:
        self.shared: dict[str, bytes] = {}

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        return InlineStateHandle(data=b"".join(chunks))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        data = Path(local_path).read_bytes()
        name = f"shared/{len(self.shared)}"
        self.shared[name] = data
        return FileStateHandle(path=name, offset=0, length=len(data), sha256=b"")

    def write_own_file(self, local_path: str) -> StateHandle:
        return InlineStateHandle(data=Path(local_path).read_bytes())


def read_inline(handle: StateHandle) -> bytes:
    """The bytes of a handle that MemoryOutput gave."""
    assert isinstance(handle, InlineStateHandle)
    return handle.data
