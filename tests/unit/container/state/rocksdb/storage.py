"""A checkpoint storage in a folder of the test, and contexts of RocksDB backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.container.state.contexts import context
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.container.state.rocksdb.backend import RocksDBKeyedStateBackend
from yarrow.container.state.rocksdb.store import StoreLimits
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.snapshot.handles import (
    FileStateHandle,
    InlineStateHandle,
    KeyedStateHandle,
    RocksDBSnapshot,
    StateHandle,
)

LOCATION = CheckpointLocation(directory="checkpoint", shared_directory="shared")
CHECKPOINT = CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=LOCATION)
SAVEPOINT = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, location=LOCATION)
INCREMENTAL = {"execution.checkpointing.incremental": "true"}
MEMORY = {"state.backend.rocksdb.memory.fixed-per-slot": "16 mb"}


class Storage:
    """A SnapshotOutput; files of a checkpoint can be deleted, and then cannot be read any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        #: Local names of the files uploaded since the last look.
        self.uploaded: list[str] = []

    def write(self, chunks: Iterable[bytes]) -> StateHandle:
        return InlineStateHandle(data=b"".join(chunks))

    def write_shared_file(self, local_path: str) -> FileStateHandle:
        self._count += 1
        data = Path(local_path).read_bytes()
        target = self._folder / f"{self._count}-{Path(local_path).name}"
        target.write_bytes(data)
        self.uploaded.append(Path(local_path).name)
        path = f"{LOCATION.shared_directory}/{target.name}"
        return FileStateHandle(path=path, offset=0, length=len(data), sha256=b"")

    def write_own_file(self, local_path: str) -> StateHandle:
        return InlineStateHandle(data=Path(local_path).read_bytes())

    def read(self, handle: StateHandle) -> bytes:
        if isinstance(handle, InlineStateHandle):
            return handle.data
        return (self._folder / Path(handle.path).name).read_bytes()

    def take_uploaded(self) -> list[str]:
        """The uploads since the last call."""
        taken, self.uploaded = self.uploaded, []
        return taken

    def delete_but(self, kept: Iterable[KeyedStateHandle]) -> None:
        """Deletes the shared files that none of these snapshots refers to."""
        names = {
            Path(file.handle.path).name
            for handle in kept
            if isinstance(handle, RocksDBSnapshot)
            for file in handle.shared
            if isinstance(file.handle, FileStateHandle)
        }
        for path in self._folder.iterdir():
            if path.name not in names:
                path.unlink()


class Worker:
    """Makes backends whose files lie below one folder."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.local = folder / "local"
        self.storage = Storage(folder / "storage")
        self._settings = MEMORY | INCREMENTAL | {key.replace("__", "."): v for key, v in settings.items()}
        self._backends: list[KeyedStateBackend] = []

    def context(self, restored: Sequence[KeyedStateHandle] = (), **changes: Any) -> KeyedBackendContext:
        settings = self._settings | changes.pop("settings", {})
        trusted = changes.pop("trusted", True)
        checkpoint_id = changes.pop("checkpoint_id", -1)
        made = context(restored=restored, settings=settings, **changes)
        made = msgspec.structs.replace(
            made, local_directory=str(self.local), read=self.storage.read, trusted=trusted
        )
        return msgspec.structs.replace(made, restored_checkpoint_id=checkpoint_id)

    def backend(
        self,
        restored: Sequence[KeyedStateHandle] = (),
        limits: StoreLimits | None = None,
        **changes: Any,
    ) -> RocksDBKeyedStateBackend:
        made = RocksDBKeyedStateBackend(
            self.context(restored, **changes), limits or StoreLimits(most_changes=8)
        )
        self._backends.append(made)
        return made

    def snapshot(
        self, backend: KeyedStateBackend, checkpoint_id: int = 1, options: CheckpointOptions = CHECKPOINT
    ) -> tuple[KeyedStateHandle, ...]:
        """A whole snapshot, made at once."""
        return backend.snapshot(checkpoint_id, options).write(self.storage)

    def dispose(self, backend: KeyedStateBackend) -> None:
        """Ends one backend."""
        self._backends.remove(backend)
        backend.dispose()

    def close(self) -> None:
        """Ends all that are left."""
        while self._backends:
            self._backends.pop().dispose()
