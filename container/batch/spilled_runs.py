"""SpilledRuns: sorted runs of records on disk, merged when they are read.

Owner: the task thread. Files have no name: they are gone with the process, however it ends. Must not know what
a record is.
"""

from __future__ import annotations

import contextlib
import heapq
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, TypeVar, cast

from yarrow.container.batch.full_disks import full_disk, means_full
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import execution

T = TypeVar("T")

#: Length and checksum of a record.
_HEAD: Final = struct.Struct("<II")
#: Bytes of a file that are read or written at once.
_BUFFER: Final = 256 * 1024


class SpillError(YarrowError):
    """Rows that do not fit into memory cannot be put on disk or read from there; the task fails."""


class SpilledRuns(Generic[T]):
    """Runs of records, each in order; `merged` gives all records in order."""

    def __init__(self, directory: Path, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._directory = directory
        self._encode = encode
        self._decode = decode
        self._files: list[BinaryIO] = []

    def __len__(self) -> int:
        return len(self._files)

    def add(self, records: Iterable[T]) -> None:
        """Writes a run: records in order. Raises SpillError if the disk does not take it."""
        self._write(records, is_new=True)

    def append(self, records: Iterable[T]) -> None:
        """Writes records behind those of the last run, if there is one. Raises SpillError as `add` does."""
        self._write(records, is_new=not self._files)

    def _write(self, records: Iterable[T], *, is_new: bool) -> None:
        try:
            if is_new:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened = tempfile.TemporaryFile(dir=self._directory, buffering=_BUFFER)  # noqa: SIM115 (`close` does)
                self._files.append(cast(BinaryIO, opened))
            file = self._files[-1]
            for record in records:
                data = self._encode(record)
                file.write(_HEAD.pack(len(data), zlib.crc32(data)))
                file.write(data)
            file.flush()
        except OSError as error:
            why = full_disk(self._directory) if means_full(error) else str(error.strerror or error)
            raise SpillError(
                f"rows that do not fit into memory cannot be written to {self._directory}: {why}; "
                f"or raise {execution.SORT_MEMORY.key}"
            ) from error

    def readers(self) -> list[Iterator[T]]:
        """The records of each run, in the order of `add`; each run is read by one reader at a time."""
        return [self._read(file) for file in self._files]

    def merged(self, order: Callable[[T], Any]) -> Iterator[T]:
        """All records by `order`; equal ones in order of their runs, and within a run in the order of `add`."""
        return heapq.merge(*self.readers(), key=order)

    def _read(self, file: BinaryIO) -> Iterator[T]:
        file.seek(0)
        while head := file.read(_HEAD.size):
            size, checksum = _HEAD.unpack(head)
            data = file.read(size)
            if len(data) != size or zlib.crc32(data) != checksum:
                raise SpillError(
                    f"rows that were written to {self._directory} have changed there: check the disk"
                )
            yield self._decode(data)

    def close(self) -> None:
        """Closes the files, which removes them."""
        for file in self._files:
            # A full disk has failed the task already; closing would try to write the rest once more.
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()
