"""Database: one RocksDB database: column families, bounded write batches, and checkpoints that block only writers.

Owner: the task thread; flush and checkpoint run on a helper thread of the process. From a cut until its
checkpoint is linked nothing is written (`held`). Writers keep their changes in caches meanwhile, so the task
goes on. It must not interpret keys and values.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from rocksdict import AccessType, Checkpoint, Options, Rdict, ReadOptions, WriteBatch

from yarrow.container.state.rocksdb.errors import RocksDBError
from yarrow.container.state.rocksdb.keys import end_of
from yarrow.container.state.rocksdb.options import write_options

#: Entries and bytes of a write batch: it holds the GIL while it is applied, about 0.5 us for each entry.
BATCH_ENTRIES: Final = 1024
BATCH_BYTES: Final = 1 << 20
#: Bytes. The cut's own checkpoint flushes a smaller write buffer within a few milliseconds, so it need not be
#: flushed before.
_WORTH_FLUSHING: Final = 4 << 20
#: RocksDB's message instead of waiting, and the seconds that the task then waits.
_STALLED: Final = "Write stall"
_STALL_SECONDS: Final = 0.001
#: Removed entries that `ColumnFamily.first_key` skips, in some tenths of a millisecond.
_MOST_SKIPPED: Final = 10_000
_DEFAULT: Final = "default"
#: RocksDB limits no name of a column family, but reserves one.
STATE_PREFIX: Final = "state:"

Entry = tuple[bytes, bytes]


class ColumnFamily:
    """The entries of one state."""

    def __init__(self, database: Database, name: str, handle: Rdict) -> None:
        self._database = database
        #: Name of the state.
        self.name = name
        self.handle = handle
        self.batch_handle = database.rdict.get_column_family_handle(STATE_PREFIX + name)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        try:
            found: bytes | None = self.handle.get(key)
            return found
        except Exception as error:
            raise self._database.failure(self.name, "read", error) from error

    def get_all(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, in one call that lets other threads run."""
        handle: Any = self.handle  # the binding's stubs want a list of a union
        try:
            found: list[bytes | None] = handle.get(keys)
            return found
        except Exception as error:
            raise self._database.failure(self.name, "read", error) from error

    def scan(self, start: bytes, end: bytes) -> Iterator[Entry]:
        """The present entries from `start` up to but without `end`, in order."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            yield from self.handle.items(from_key=start, read_opt=bounds)
        except Exception as error:
            raise self._database.failure(self.name, "read", error) from error

    def first_key(self, start: bytes, end: bytes) -> bytes | None:
        """The first key in that range; None if there is none.

        Also None if more than some thousand removed entries lie before it, because the call must be short.
        """
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        bounds.set_max_skippable_internal_keys(_MOST_SKIPPED)
        found = next(self.handle.keys(from_key=start, read_opt=bounds), None)
        return found if isinstance(found, bytes) else None

    def skip(self, start: bytes, end: bytes, behind: Callable[[bytes], bytes]) -> Iterator[bytes]:
        """The first key of that range, then the first from `behind` it on, and so forth."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            entries = self.handle.iter(bounds)
            entries.seek(start)
            while entries.valid():
                found: Any = entries.key()
                yield found
                entries.seek(behind(found))
            entries.status()
        except Exception as error:
            raise self._database.failure(self.name, "read", error) from error

    def scan_prefix(self, prefix: bytes) -> Iterator[Entry]:
        """The entries whose keys begin with `prefix`."""
        return self.scan(prefix, end_of(prefix))

    def put_all(self, entries: Iterable[Entry]) -> None:
        """Writes entries in batches; waits while a checkpoint holds writes."""
        self._database.write(self, entries, ())

    def delete_all(self, keys: Iterable[bytes]) -> None:
        """Removes entries in batches; waits while a checkpoint holds writes."""
        self._database.write(self, (), keys)

    @property
    def estimated_entries(self) -> int:
        """RocksDB's estimate."""
        return self.handle.property_int_value("rocksdb.estimate-num-keys") or 0

    @property
    def write_buffer_bytes(self) -> int:
        """Bytes that are not in files yet."""
        return self.handle.property_int_value("rocksdb.cur-size-all-mem-tables") or 0


class Database:
    """An open database."""

    def __init__(self, operator: str, path: str, options: Options, helper: Helper) -> None:
        self._operator = operator
        self._options = options
        self._helper = helper
        self.path = path
        self._families: dict[str, ColumnFamily] = {}
        self._released = threading.Event()
        self._released.set()
        #: Never set: for short waits.
        self._never = threading.Event()
        self._flush: Future[None] | None = None
        try:
            names = _column_families(path)
            self.rdict = Rdict(path, options, dict.fromkeys(names or [_DEFAULT], options))
            self.rdict.set_write_options(write_options())
        except Exception as error:
            raise self.failure(None, "open the database", error) from error
        for name in names:
            if name.startswith(STATE_PREFIX):
                self._add(name.removeprefix(STATE_PREFIX), self.rdict.get_column_family(name))

    def failure(self, state: str | None, action: str, error: BaseException) -> RocksDBError:
        """The error for a call that RocksDB refused."""
        return RocksDBError(self._operator, state, self.path, action, error)

    # ------------------------------------------------------------------ column families

    @property
    def families(self) -> dict[str, ColumnFamily]:
        """By state name."""
        return self._families

    def family(self, name: str) -> ColumnFamily:
        """The column family of a state, made on demand."""
        found = self._families.get(name)
        if found is None:
            self.wait_released()
            try:
                made = self.rdict.create_column_family(STATE_PREFIX + name, self._options)
            except Exception as error:
                raise self.failure(name, "make a column family", error) from error
            found = self._add(name, made)
        return found

    def _add(self, name: str, handle: Rdict) -> ColumnFamily:
        handle.set_write_options(write_options())
        self._families[name] = ColumnFamily(self, name, handle)
        return self._families[name]

    # ------------------------------------------------------------------ writes

    @property
    def held(self) -> bool:
        """True while a checkpoint is being linked: callers should keep changes to themselves if they can."""
        return not self._released.is_set()

    def wait_released(self) -> None:
        """Returns when writes are allowed.

        Only the snapshot handles a failed checkpoint, which leaves the database as it was. If RocksDB itself
        cannot continue (a flush met a full disk), it refuses the next write.
        """
        self._released.wait()

    def write(self, family: ColumnFamily, puts: Iterable[Entry], deletes: Iterable[bytes]) -> None:
        """Writes in small batches, one after the other. Raises RocksDBError."""
        self.wait_released()
        remaining, gone = iter(puts), iter(deletes)
        while entries := list(islice(remaining, BATCH_ENTRIES)):
            self._put([key for key, _ in entries], [value for _, value in entries], family)
        while keys := list(islice(gone, BATCH_ENTRIES)):
            self._apply(family, partial(_delete_into, keys=keys))

    def put_all(self, family: ColumnFamily, keys: list[bytes], data: list[bytes]) -> None:
        """Writes as many values as keys, in small batches. Raises RocksDBError."""
        self.wait_released()
        if len(keys) <= BATCH_ENTRIES:
            self._put(keys, data, family)
            return
        for start in range(0, len(keys), BATCH_ENTRIES):
            end = start + BATCH_ENTRIES
            self._put(keys[start:end], data[start:end], family)

    def _put(self, keys: list[bytes], data: list[bytes], family: ColumnFamily) -> None:
        for start, end in _parts(data):
            part = (keys, data) if end - start == len(keys) else (keys[start:end], data[start:end])
            self._apply(family, partial(_put_into, keys=part[0], data=part[1]))

    def delete_range(self, family: ColumnFamily, start: bytes, end: bytes) -> None:
        """Removes the entries from `start` up to but without `end`."""
        self.delete_ranges(family, [(start, end)])

    def delete_ranges(self, family: ColumnFamily, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """The same for several ranges, in one batch."""
        self.wait_released()
        # The binding's delete_range ignores the batch's default column family.
        handle = family.batch_handle

        def fill(batch: WriteBatch) -> None:
            for start, end in ranges:
                batch.delete_range(start, end, handle)

        self._apply(family, fill)

    def _apply(self, family: ColumnFamily, fill: Callable[[WriteBatch], None]) -> None:
        """Writes one batch. While RocksDB makes writers wait for flushes and compactions, waits without the GIL."""
        while True:
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(family.batch_handle)
            fill(batch)
            try:
                self.rdict.write(batch)
                return
            except Exception as error:
                if _STALLED not in str(error):
                    raise self.failure(family.name, "write", error) from error
            # The attempt has consumed the batch: the next one is filled again.
            self._never.wait(_STALL_SECONDS)

    # ------------------------------------------------------------------ checkpoints

    def flush_ahead(self) -> None:
        """Makes the helper flush large write buffers, so that a checkpoint soon after has little left to do."""
        large = [f for f in self._families.values() if f.write_buffer_bytes > _WORTH_FLUSHING]
        if large and not self.held and (self._flush is None or self._flush.done()):
            self._flush = self._helper.submit(lambda: self._flush_families(large))

    def begin_checkpoint(self, path: str) -> Future[None]:
        """Makes the helper link the present database to the folder `path`; holds writes until that is done."""
        self.wait_released()
        self._released.clear()
        try:
            return self._helper.submit(lambda: self._checkpoint(path))
        except BaseException:
            self._released.set()
            raise

    def _checkpoint(self, path: str) -> None:
        try:
            # A flush lets other threads run, the checkpoint itself does not: right after a flush it takes 1-3
            # ms.
            self._flush_families(list(self._families.values()))
            Checkpoint(self.rdict).create_checkpoint(path)
        except BaseException as error:
            raise self.failure(None, "write a checkpoint", error) from error
        finally:
            self._released.set()

    def _flush_families(self, families: list[ColumnFamily]) -> None:
        for family in families:
            family.handle.flush()

    def close(self) -> None:
        """Waits for the helper, and closes without writing buffered content: the files are not opened again."""
        self._released.wait()
        if self._flush is not None and not self._flush.cancel():
            self._flush.exception()
        self.rdict.cancel_all_background(True)
        handles = [*(family.handle for family in self._families.values()), self.rdict]
        for handle in handles:
            # Closing flushes, which may be refused, for instance on a full disk: dropping the object closes
            # it as well.
            with suppress(Exception):
                handle.close()
        for family in self._families.values():
            del family.handle, family.batch_handle
        self._families.clear()
        del self.rdict


def _put_into(batch: WriteBatch, keys: list[bytes], data: list[bytes]) -> None:
    # Without a line of Python for each entry.
    deque(map(batch.put, keys, data), maxlen=0)


def _delete_into(batch: WriteBatch, keys: list[bytes]) -> None:
    for key in keys:
        batch.delete(key)


def _parts(data: list[bytes]) -> Iterator[tuple[int, int]]:
    """The ranges of entries for each batch; large values need several batches."""
    if sum(map(len, data)) <= BATCH_BYTES:
        yield 0, len(data)
        return
    start, size = 0, 0
    for end, value in enumerate(data, 1):
        size += len(value)
        if size >= BATCH_BYTES:
            yield start, end
            start, size = end, 0
    if start < len(data):
        yield start, len(data)


def open_read_only(path: str, options: Options) -> tuple[Rdict, dict[str, Rdict]]:
    """A linked or downloaded database, and its column families by state name; raises rocksdict's errors."""
    names = _column_families(path)
    rdict = Rdict(
        path, options, dict.fromkeys(names, options), AccessType.read_only(error_if_log_file_exist=False)
    )
    states = {
        name.removeprefix(STATE_PREFIX): rdict.get_column_family(name)
        for name in names
        if name.startswith(STATE_PREFIX)
    }
    return rdict, states


def _column_families(path: str) -> list[str]:
    try:
        names: list[str] = Rdict.list_cf(path, Options(raw_mode=True))
        return names
    except Exception:  # there is no database yet
        return []


class Helper:
    """The process's thread for flushes and links. It starts with the first task and ends with the last database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._users = 0

    def acquire(self) -> None:
        """Counts one more database."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Counts one database less; the last one ends the thread."""
        with self._lock:
            self._users -= 1
            pool, self._pool = (self._pool, None) if not self._users else (None, self._pool)
        if pool is not None:
            pool.shutdown(wait=True)

    def submit(self, action: Any) -> Future[None]:
        """Runs an action behind those submitted before."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="rocksdb-helper")
            return self._pool.submit(action)


#: The helper of this process.
HELPER: Final = Helper()
