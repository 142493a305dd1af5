"""LookupVersion: one version of a lookup table, read whole from a folder of Parquet files and never changed.

Owner: the thread that reads it; then any thread. A folder that changes while it is read gives no version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import yarrow.runtime.fs.file_search as file_search
from yarrow.common.types import Row
from yarrow.runtime.common.errors import FileSystemError, YarrowError
from yarrow.runtime.fs.registry import file_system_for

if TYPE_CHECKING:
    import pyarrow as pa

#: Path, bytes and time of change of each file: two versions differ in one of them.
Listing: TypeAlias = tuple[tuple[str, int, int], ...]


class LookupTableError(YarrowError):
    """A version of a lookup table is missing or cannot be read: the message names the folder and what is wrong."""


class LookupVersion:
    """The rows of a version by key."""

    def __init__(self, table: pa.Table, key: Sequence[str], listing: Listing, path: str) -> None:
        """Raises LookupTableError for a key column that is missing, and for a key that two rows have."""
        self.listing = listing
        self._names = table.column_names
        missing = [name for name in key if name not in self._names]
        if missing:
            raise LookupTableError(
                f"{path} has no column {missing[0]!r}, the key of the lookup table; it has {', '.join(self._names)}"
            )
        columns = [table.column(name).to_pylist() for name in key]
        keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        try:
            self._rows: dict[Any, int] = {found: number for number, found in enumerate(keys)}
        except TypeError as error:
            raise LookupTableError(f"{path}: {', '.join(key)} cannot be a key: {error}") from None
        if len(self._rows) < len(keys):
            twice = next(each for number, each in enumerate(keys) if self._rows[each] != number)
            raise LookupTableError(
                f"{path} has two rows of the key {twice!r} ({', '.join(key)}): a lookup table has one row for each key"
            )
        self._columns = [table.column(name).combine_chunks() for name in self._names]
        #: Bytes: the columns, the index, and the keys in it.
        self.memory = table.nbytes + sys.getsizeof(self._rows) + sum(map(sys.getsizeof, keys))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Any) -> Row | None:
        """The row of a key; None if there is none."""
        number = self._rows.get(key)
        if number is None:
            return None
        row = Row(*(column[number].as_py() for column in self._columns))
        row.set_field_names(self._names)
        return row


def listing_of(path: str) -> Listing:
    """The present files of a folder. Raises LookupTableError if there are none."""
    try:
        files = file_search.find_files(path)
    except FileNotFoundError:
        raise LookupTableError(
            f"there is no folder {path}: the stage that leaves it has not run yet"
        ) from None
    except (OSError, FileSystemError) as error:
        raise LookupTableError(f"{path} cannot be listed: {error}") from error
    if not files:
        raise LookupTableError(f"the folder {path} has no files")
    return tuple((file.path, file.size, file.modified_ms) for file in files)


def read_version(path: str, key: Sequence[str]) -> LookupVersion:
    """The version that lies in a folder. Raises LookupTableError if there is none, or if it changes meanwhile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    listing = listing_of(path)
    tables = []
    for file, _, _ in listing:
        try:
            with file_system_for(file).open(file) as stream:
                tables.append(pq.read_table(stream))
        except (OSError, FileSystemError, pa.ArrowException) as error:
            raise LookupTableError(f"{file} cannot be read as Parquet: {error}") from error
    try:
        table = pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise LookupTableError(f"the files of {path} have different columns: {error}") from error
    if listing_of(path) != listing:
        raise LookupTableError(f"{path} has changed while it was read")
    return LookupVersion(table, key, listing, path)
