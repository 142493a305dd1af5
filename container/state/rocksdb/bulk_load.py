"""BulkDatabase: a database of one state, made of sorted files, which a native restore opens as it is.

Owner: the thread that writes a snapshot outside of a job. Nothing is compacted and no buffer is used: entries come in
the order of the database. It must not know where the files go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from yarrow.container.state.rocksdb.database import STATE_PREFIX
from yarrow.container.state.rocksdb.errors import RocksDBError
from yarrow.container.state.rocksdb.keys import DatabaseKeys
from yarrow.container.state.rocksdb.list_store import counter_entry, numbered
from yarrow.container.state.rocksdb.map_store import MapKeys
from yarrow.container.state.rocksdb.migration import type_of
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.key_group_form import StateForm

#: Bytes of a file before the next begins.
_FILE_BYTES: Final = 64 << 20
#: What RocksDB leaves beside the database: its lock, and what it tells.
_NOT_STORED: Final = ("LOCK", "LOG")

Entry = tuple[bytes, bytes]


class BulkDatabase:
    """A database that is being made: `add`, then `finish`."""

    def __init__(
        self, operator: str, form: StateForm, max_parallelism: int, path: str, options: Options
    ) -> None:
        """`path`: a folder that exists and is empty; the database is made below it. Raises RocksDBError."""
        self._operator = operator
        self._form = form
        self._values = StateValues(form.value, type_of(form.value.config()), form.ttl)
        map_key = form.map_key
        self._map_keys = None if map_key is None else MapKeys(map_key, type_of(map_key.config()))
        self._keys = DatabaseKeys(max_parallelism)
        self._options = options
        self._path = Path(path, "database")
        self._made = Path(path, "made")
        self._made.mkdir()
        self._writer: SstFileWriter | None = None
        self._finished: list[str] = []
        #: Of the next element of a list.
        self._number = 0

    def add(self, keys: Sequence[Any], contents: Sequence[Any]) -> None:
        """Adds the contents of canonical keys, each once, of key groups behind those added before.

        Raises StateSerializationError, RocksDBError.
        """
        encoded, order = self._keys.encode_sorted(keys)
        self._put(self._entries(encoded, [contents[position] for position in order]))

    def _entries(self, encoded: list[bytes], contents: list[Any]) -> Iterable[Entry]:
        """Entries in the order of the database."""
        match self._form.kind:
            case StateKind.LIST:
                return self._list_entries(encoded, contents)
            case StateKind.MAP:
                return self._map_entries(encoded, contents)
        return zip(encoded, self._values.dump_all(contents), strict=True)

    def _list_entries(self, encoded: list[bytes], contents: list[Any]) -> Iterator[Entry]:
        dump = self._values.dump
        for prefix, elements in zip(encoded, contents, strict=True):
            for element in elements:
                yield numbered(prefix, self._number), dump(element)
                self._number += 1

    def _map_entries(self, encoded: list[bytes], contents: list[Any]) -> Iterator[Entry]:
        assert self._map_keys is not None
        dump_key, dump = self._map_keys.dump, self._values.dump
        for prefix, entries in zip(encoded, contents, strict=True):
            yield from sorted((prefix + dump_key(key), dump(value)) for key, value in entries.items())

    def _put(self, entries: Iterable[Entry]) -> None:
        try:
            if self._writer is not None and self._writer.file_size() >= _FILE_BYTES:
                self._end_file()
            arriving = iter(entries)
            first = next(arriving, None)
            if first is not None:
                writer = self._writer or self._begin_file()
                # Without a step of Python for each entry.
                deque(starmap(writer.__setitem__, chain((first,), arriving)), maxlen=0)
        except YarrowError:
            raise
        except Exception as error:
            raise self._failure("write a file", error) from error

    def _begin_file(self) -> SstFileWriter:
        path = str(self._made / f"{len(self._finished)}.sst")
        writer = self._writer = SstFileWriter(self._options)
        writer.open(path)
        self._finished.append(path)
        return writer

    def _end_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.finish()

    def finish(self) -> list[Path]:
        """The files of the database, which is closed. Raises RocksDBError."""
        if self._number:
            self._put([counter_entry(self._number)])
        try:
            self._end_file()
            database = Rdict(str(self._path), self._options)
            try:
                family = database.create_column_family(STATE_PREFIX + self._form.name, self._options)
                if self._finished:
                    moved = IngestExternalFileOptions()
                    moved.set_move_files(True)
                    family.ingest_external_file(self._finished, moved)
                family.close()
            finally:
                database.close()
        except Exception as error:
            raise self._failure("take in the files", error) from error
        return [
            path
            for path in sorted(self._path.iterdir())
            if not path.name.startswith(_NOT_STORED) and path.stat().st_size
        ]

    def _failure(self, action: str, error: Exception) -> RocksDBError:
        return RocksDBError(self._operator, self._form.name, str(self._path), action, error)
