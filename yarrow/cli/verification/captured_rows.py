"""CapturedRows: a Sink in place of a program's own, which keeps what reaches it for a comparison.

Owner: the task thread of each writer; the committer's thread only renames files. An entry says which key and row
it was, by digest and by text, and never holds the row itself. Entries lie in files of sorted runs, so that neither
writing nor comparing needs memory for all of them.
"""

from __future__ import annotations

import heapq
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from yarrow.cli.verification.row_digests import digest, text
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.datastream.connectors.base import Committer, Sink, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    import pyarrow as pa

#: Entries of a run, which is what a writer holds in memory.
RUN_ENTRIES: Final = 50_000
#: Runs that are open at a time when they are merged.
_OPEN_RUNS: Final = 64
#: Entries that are encoded together.
_BLOCK_ENTRIES: Final = 500
_LENGTH: Final = struct.Struct("<I")
_PREPARED = ".prepared"


class Entry(NamedTuple):
    """One row; entries of a sink are ordered by their fields.

    Digests come first, because equal keys may have other texts: a set shows its elements in any order.
    """

    key: bytes
    row: bytes
    key_text: str
    row_text: str


class KeyOfRows(msgspec.Struct, frozen=True):
    """How a row of a sink tells its key; without selector and columns a row is its own key."""

    #: cloudpickle of the key selector of the aggregate whose rows reach the sink.
    selector: bytes | None = None
    #: Number of leading columns that are the key.
    columns: int = 0

    @property
    def is_known(self) -> bool:
        """False where each row stands for itself."""
        return self.selector is not None or self.columns > 0

    def function(self, sink: str) -> Callable[[Any], Any] | None:
        """The key of a row; None where a row is its own key."""
        if self.selector is not None:
            return method_of(load_function(self.selector, sink), "get_key", sink)
        if self.columns == 1:
            return _first
        return self._leading if self.columns else None

    def _leading(self, row: Any) -> Any:
        return tuple(row[at] for at in range(self.columns))


def _first(row: Any) -> Any:
    return row[0]


class CapturedRows(Sink[Any]):
    """Writes entries of rows into a folder of this machine. Files appear there when they are committed."""

    def __init__(self, name: str, folder: str, key: KeyOfRows, *, columns: bool = False) -> None:
        """`name` is that of the program's sink, for errors; `columns`: that sink takes record batches."""
        self.accepts_columns = columns
        self._name = name
        self._folder = folder
        self._key = key

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[Any]:
        return _EntryWriter(
            self._name, self._folder, self._key, f"{context.subtask_index}-{context.attempt_number}"
        )

    def create_committer(self) -> Committer:
        return _EntryCommitter(self._folder)


class EntryRuns:
    """Sorts entries in memory and writes them as runs, each under a name of its own until `commit`."""

    def __init__(self, folder: str, prefix: str) -> None:
        """`prefix` tells the writers of a folder apart."""
        self._folder = folder
        self._prefix = prefix
        self._entries: list[Entry] = []
        self._runs: list[str] = []
        self._written = 0

    def add(self, key: Any, row: Any) -> None:
        """Adds a row of a key."""
        self._entries.append(Entry(digest(key), digest(row), text(key), text(row)))
        self._write_full()

    def add_alone(self, row: Any) -> None:
        """Adds a row that is its own key."""
        found, shown = digest(row), text(row)
        self._entries.append(Entry(found, found, shown, shown))
        self._write_full()

    def _write_full(self) -> None:
        if len(self._entries) >= RUN_ENTRIES:
            self._write_run()

    def _write_run(self) -> None:
        entries, self._entries = sorted(self._entries), []
        name = f"{self._prefix}-{self._written}"
        self._written += 1
        _write_entries(Path(self._folder, name + _PREPARED), entries)
        self._runs.append(name)

    def flush(self) -> None:
        """Writes what is in memory."""
        if self._entries:
            self._write_run()

    def take(self) -> list[str]:
        """The names of the runs since the last call, for `commit_runs`."""
        runs, self._runs = self._runs, []
        return runs


def commit_runs(folder: str, names: Sequence[str]) -> None:
    """Gives runs their final names; may be repeated."""
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            os.rename(path + _PREPARED, path)


class _EntryWriter(SinkWriter[Any]):
    """Writes the entries of a sink's rows."""

    def __init__(self, name: str, folder: str, key: KeyOfRows, prefix: str) -> None:
        self._runs = EntryRuns(folder, f"{prefix}-{os.getpid()}")
        self._key_of = key.function(name)

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        key_of = self._key_of
        for row in rows:
            if key_of is None:
                self._runs.add_alone(row)
                continue
            try:
                key = key_of(row)
            except (
                Exception
            ):  # user code: it takes records, and the aggregate may have made rows without the key
                self._runs.add_alone(row)
            else:
                self._runs.add(key, row)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [column.to_pylist() for column in batch.columns]
        self.write(list(zip(*columns, strict=True)), None)

    def flush(self, end_of_input: bool) -> None:
        self._runs.flush()

    def prepare_commit(self) -> list[Any]:
        return self._runs.take()


class _EntryCommitter(Committer):
    """Gives runs their final names."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def commit(self, committables: Sequence[Any]) -> None:
        commit_runs(self._folder, committables)

    def abort(self, committables: Sequence[Any]) -> None:
        for name in committables:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, name + _PREPARED))


def entries_in(folder: Path) -> Iterator[Entry]:
    """All committed entries of a sink in order. Many runs are replaced by fewer, longer ones first."""
    runs = sorted(path for path in folder.iterdir() if path.suffix != _PREPARED)
    while len(runs) > _OPEN_RUNS:
        several, runs = runs[:_OPEN_RUNS], runs[_OPEN_RUNS:]
        merged = folder / f"merged-{several[0].name}"
        _write_entries(merged, heapq.merge(*map(_entries_of, several)))
        for run in several:
            run.unlink()
        # Behind the others, so that each pass takes all runs once.
        runs.append(merged)
    return heapq.merge(*map(_entries_of, runs))


def _write_entries(path: Path, entries: Iterable[Entry]) -> None:
    with path.open("wb") as file:
        remaining = iter(entries)
        while block := list(islice(remaining, _BLOCK_ENTRIES)):
            encoded = msgspec.msgpack.encode(block)
            file.write(_LENGTH.pack(len(encoded)))
            file.write(encoded)


def _entries_of(path: Path) -> Iterator[Entry]:
    decode = msgspec.msgpack.Decoder(list[Entry]).decode
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield from decode(file.read(_LENGTH.unpack(head)[0]))
