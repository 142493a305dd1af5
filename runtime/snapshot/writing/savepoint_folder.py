"""SavepointFolder: a savepoint that is being written; without its metadata it is none, and what fails is removed.

Other processes may write files into it (`ForeignFiles`), several attempts at the same file too. Owner: the calling
thread. It must not know the content.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
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
from yarrow.runtime.snapshot.opening import handles_of, is_complete, open_snapshot
from yarrow.runtime.snapshot.snapshot_folders import make_folder, write_metadata
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX, WorkerSnapshotFile

#: Hexadecimal digits of a file's name that are those of the writing to which the file belongs.
_DIGITS: Final = 16
#: The beginning of the name of metadata that are not in their place yet, before the digits.
_UNNAMED_METADATA: Final = f"{TEMPORARY_PREFIX}{METADATA_FILE}-"
#: The first of them are those of the owner of the writing, if it has named itself.
_OWNER_DIGITS: Final = 8


class SavepointExistsError(SnapshotStorageError):
    """The folder holds a savepoint already."""


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """The place of files that other processes write into the folder of one savepoint; it travels to them.

    A marker lies in the folder while the savepoint is written. Each process looks for it behind the end of its file,
    and `end` removes it before anybody looks for files. So one of both removes what a late attempt leaves.

    The metadata come into place while the marker is there, by one rename. Its writer looks for the marker before, and
    `give_up` removes the unnamed metadata behind the marker. So the rename fails, or the metadata name their files.
    """

    directory: str
    #: 16 hexadecimal digits with which the names of these files begin.
    writing: str

    @staticmethod
    def begin(directory: str, owner: str = "") -> ForeignFiles:
        """Puts the marker into the folder; `owner`: see `remove_unfinished`. Raises OSError or FileSystemError."""
        known = _owner_digits(owner) if owner else ""
        place = ForeignFiles(directory, (known + RandomIdFactory().hex_id())[:_DIGITS])
        file_system_for(directory).create(place.marker).close()
        return place

    @staticmethod
    def writings_in(directory: str) -> list[ForeignFiles]:
        """The writings of all owners that have a marker in a folder: each goes on, or its process was killed.

        Raises OSError or FileSystemError.
        """
        with contextlib.suppress(FileNotFoundError):
            marker = re.compile(f"{TEMPORARY_PREFIX}([0-9a-f]{{{_DIGITS}}})")
            found = [marker.fullmatch(entry.name) for entry in file_system_for(directory).list(directory)]
            return [ForeignFiles(directory, each[1]) for each in found if each is not None]
        return []

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

    def refuse_late(self) -> None:
        """Raises SnapshotStorageError if the writing has ended."""
        if not self.is_wanted:
            raise SnapshotStorageError(
                f"{self.directory}: this savepoint is complete or was given up, and takes no more files"
            )

    @staticmethod
    def remove_unfinished(directory: str, owner: str) -> None:
        """Ends all writings of an owner, all of which are lost: removes their files, and the folder if it is empty.

        Late processes find out by the lack of a marker. Writings of others stay, and so does all of a savepoint that is
        completed meanwhile. Files whose marker is gone already are removed too: a process was killed while it removed
        them. Does nothing where there is no folder. Raises OSError, FileSystemError or SnapshotError.
        """
        files = file_system_for(directory)
        digits = _DIGITS - _OWNER_DIGITS
        names = "|".join((TEMPORARY_PREFIX, _UNNAMED_METADATA, STATE_FILE_PREFIX))
        of_owner = re.compile(f"(?:{names})({_owner_digits(owner)}[0-9a-f]{{{digits}}})[0-9a-f]*")
        with contextlib.suppress(FileNotFoundError):
            found = [of_owner.fullmatch(entry.name) for entry in files.list(directory)]
            writings = {each[1] for each in found if each is not None}
            for writing in sorted(writings):
                ForeignFiles(directory, writing).give_up()
            if writings and not files.list(directory):
                files.delete(directory)

    def end(self) -> None:
        """Ends the writing: late processes remove what they have written."""
        file_system_for(self.directory).delete(self.marker)

    def give_up(self) -> None:
        """Ends the writing and removes its files, except for those of a savepoint that is complete.

        Raises OSError, FileSystemError or SnapshotError.
        """
        self.end()
        files = file_system_for(self.directory)
        for entry in files.list(self.directory):
            if entry.name.startswith(_UNNAMED_METADATA + self.writing):
                files.delete(entry.path)
        # From here on no metadata of this writing come into place.
        kept = self._named_files()
        for entry in files.list(self.directory):
            if entry.name.startswith(STATE_FILE_PREFIX + self.writing) and entry.name not in kept:
                files.delete(entry.path)

    def _named_files(self) -> Collection[str]:
        """The files that the metadata of the folder name; none without metadata."""
        if not is_complete(file_system_for(self.directory), self.directory):
            return ()
        metadata = open_snapshot(self.directory, verify=False).metadata
        handles = (handle for _, handle in handles_of(metadata))
        return {handle.path for handle in handles if isinstance(handle, FileStateHandle)}


def _owner_digits(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]


class ForeignOutput:
    """One attempt at a file. Use it as a context manager; an attempt that fails or comes late leaves no file."""

    def __init__(self, place: ForeignFiles) -> None:
        self._place = place
        #: Takes the state.
        self.file = WorkerSnapshotFile(CheckpointLocation(directory=place.directory), place)

    def __enter__(self) -> ForeignOutput:
        self._place.refuse_late()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.file.discard()
            return
        try:
            self.file.close()
            self._place.refuse_late()
        except BaseException:
            self.file.discard()
            raise


class SavepointFolder:
    """A new savepoint that is being written; a `with` block that ends without `complete` leaves nothing behind."""

    def __init__(self, path: str) -> None:
        """Raises SavepointExistsError where a savepoint is there already, SnapshotStorageError where none can be."""
        self._path = path.rstrip("/") or "/"
        self._files = file_system_for(self._path)
        if exists(self._files, join(self._path, METADATA_FILE)):
            raise SavepointExistsError(
                f"{path} holds a savepoint or checkpoint already: it is never overwritten. Name another folder."
            )
        self._made = not exists(self._files, self._path)
        make_folder(self._path)
        self._ids = RandomIdFactory()
        #: The folder of the state files.
        self.output = WorkerSnapshotFile(CheckpointLocation(directory=self._path), self._ids)
        self._foreign: ForeignFiles | None = None
        self._complete = False

    def foreign_files(self, owner: str = "") -> ForeignFiles:
        """The place of files that other processes write; those that the metadata do not name are removed.

        `owner`: the job that may be lost under the writing; "" = nobody removes what a killed process leaves.
        """
        if self._foreign is None:
            self._foreign = ForeignFiles.begin(self._path, owner)
        return self._foreign

    def complete(self, metadata: CheckpointMetadata, secret: bytes = b"") -> str:
        """Writes the metadata, sealed where there is a `secret`: from now on it is a savepoint.

        Raises SnapshotStorageError if somebody has given it up (`ForeignFiles.give_up`).
        """
        self.output.close()
        place = self._foreign
        if place is None:
            write_metadata(self._path, metadata, self._ids, secret)
        else:
            write_metadata(self._path, metadata, place, secret, place.refuse_late)
        self._complete = True
        if place is not None:
            with contextlib.suppress(OSError, YarrowError):
                # Files of attempts that nobody took. The savepoint is complete, whether storage removes them or not.
                place.give_up()
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
                self._foreign.give_up()
        if self._made:
            with contextlib.suppress(OSError, YarrowError):
                self._files.delete(self._path)
