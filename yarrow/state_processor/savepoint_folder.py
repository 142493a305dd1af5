"""SavepointFolder: a savepoint that is being written; without its metadata it is none, and what fails is removed.

Other processes may write files into it (`ForeignFiles`), several attempts at the same file too. Owner: the calling
thread. It must not know the content.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import join
from yarrow.runtime.data.checkpoint_options import CheckpointLocation
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle
from yarrow.runtime.snapshot.metadata import METADATA_FILE
from yarrow.runtime.snapshot.opening import handles_of
from yarrow.runtime.snapshot.snapshot_folders import make_folder, write_metadata
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX, WorkerSnapshotFile
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.pickle_trust import PickleTrust

#: Hexadecimal digits of a file's name that are those of the writing to which the file belongs.
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """The place of files that other processes write into the folder of one savepoint; it travels to them.

    A marker lies in the folder while the savepoint is written. Each process looks for it behind the end of its file,
    and `remove_others` removes it before it looks for files. So one of both removes what a late attempt leaves.
    """

    directory: str
    #: 16 hexadecimal digits with which the names of these files begin.
    writing: str

    @staticmethod
    def begin(directory: str) -> ForeignFiles:
        """Puts the marker into the folder. Raises OSError or FileSystemError."""
        place = ForeignFiles(directory, RandomIdFactory().hex_id()[:_DIGITS])
        file_system_for(directory).create(place.marker).close()
        return place

    @property
    def marker(self) -> str:
        """The path of the marker."""
        return join(self.directory, TEMPORARY_PREFIX + self.writing)

    def open(self) -> ForeignOutput:
        """The output of one attempt, in the process that writes it."""
        return ForeignOutput(self)

    def hex_id(self) -> str:
        """The rest of a file's name: see IdFactory."""
        return self.writing + RandomIdFactory().hex_id()[_DIGITS:]

    @property
    def is_wanted(self) -> bool:
        """Whether the savepoint is still being written."""
        return exists(file_system_for(self.directory), self.marker)

    def remove_others(self, kept: Collection[str]) -> None:
        """Ends the writing: removes its files except for those of these names."""
        files = file_system_for(self.directory)
        files.delete(self.marker)
        for entry in files.list(self.directory):
            if entry.name.startswith(STATE_FILE_PREFIX + self.writing) and entry.name not in kept:
                files.delete(entry.path)


class ForeignOutput:
    """One attempt at a file. Use it as a context manager; an attempt that fails or comes late leaves no file."""

    def __init__(self, place: ForeignFiles) -> None:
        self._place = place
        #: Takes the state.
        self.file = WorkerSnapshotFile(CheckpointLocation(directory=place.directory), place)

    def __enter__(self) -> ForeignOutput:
        self._refuse_late()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.file.discard()
            return
        try:
            self.file.close()
            self._refuse_late()
        except BaseException:
            self.file.discard()
            raise

    def _refuse_late(self) -> None:
        if not self._place.is_wanted:
            raise SnapshotStorageError(
                f"{self._place.directory}: this savepoint is complete or was given up, and takes no more files"
            )


class SavepointFolder:
    """A new savepoint that is being written; a `with` block that ends without `complete` leaves nothing behind."""

    def __init__(self, path: str) -> None:
        """Raises StateProcessorError where a savepoint is there already, SnapshotStorageError where none can be."""
        self._path = path.rstrip("/") or "/"
        self._files = file_system_for(self._path)
        if exists(self._files, join(self._path, METADATA_FILE)):
            raise StateProcessorError(
                f"{path} holds a savepoint or checkpoint already: it is never overwritten. Name another folder."
            )
        self._made = not exists(self._files, self._path)
        make_folder(self._path)
        self._ids = RandomIdFactory()
        #: The folder of the state files.
        self.output = WorkerSnapshotFile(CheckpointLocation(directory=self._path), self._ids)
        self._foreign: ForeignFiles | None = None
        self._complete = False

    def foreign_files(self) -> ForeignFiles:
        """The place of files that other processes write; those that the metadata do not name are removed."""
        if self._foreign is None:
            self._foreign = ForeignFiles.begin(self._path)
        return self._foreign

    def complete(self, metadata: CheckpointMetadata, trust: PickleTrust) -> str:
        """Writes the metadata, sealed where there is a secret: from now on it is a savepoint."""
        self.output.close()
        if self._foreign is not None:
            handles = (handle for _, handle in handles_of(metadata))
            self._foreign.remove_others(
                {handle.path for handle in handles if isinstance(handle, FileStateHandle)}
            )
        write_metadata(self._path, metadata, self._ids, trust.secret)
        self._complete = True
        return self._path

    def __enter__(self) -> SavepointFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._complete:
            return
        self.output.discard()
        if self._foreign is not None:
            with contextlib.suppress(OSError, YarrowError):
                self._foreign.remove_others(())
        if self._made:
            with contextlib.suppress(OSError, YarrowError):
                self._files.delete(self._path)
