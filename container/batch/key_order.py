"""KeyOrder: the rows of one key group, key by key, each key's rows in order of event time.

Owner: the task thread. Equal times keep the order in which the rows were added, a first input's rows come before
a second one's. Keys come in order of their encoding. Rows beyond a budget of memory are sorted in runs on disk,
and then even a single key streams. Must not know operators.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from yarrow.container.batch.chunk import Chunk
from yarrow.container.batch.chunk_channel import decode_batch
from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.container.network.element_codec import ElementCodec, estimated_bytes
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.data.elements import MIN_TIMESTAMP, RowBatch
from yarrow.runtime.data.keys import canonicalize, encode_key

#: Most rows of a piece, and of a block in a file.
PIECE_ROWS: Final = 1024
#: Estimated bytes of a row besides its values: places in lists and tuples.
_ROW_OVERHEAD: Final = 100
#: Of a block: edge, rows, length of the encoded key.
_BLOCK: Final = struct.Struct("<iiI")

_first: Callable[[Any], Any] = itemgetter(0)


class Piece(NamedTuple):
    """Some rows of an input, in order; timestamps are None if no row has one."""

    input: int
    rows: list[Any]
    timestamps: list[int | None] | None


class KeyedEdge(NamedTuple):
    """How the rows of one edge of a keyed input are read and keyed."""

    input: int
    #: Computes the raw key of a row.
    key: Callable[[Any], Any]
    codec: ElementCodec
    #: The operator to name if `key` fails.
    operator: str
    #: The class of the batches of the edge.
    batch: type[RowBatch] = RowBatch


class _Entry(NamedTuple):
    """A row with its order."""

    key: bytes
    time: int
    input: int
    edge: int
    timestamp: int | None
    row: Any


_by_order: Callable[[_Entry], Any] = itemgetter(0, 1, 2)
_by_time: Callable[[_Entry], Any] = itemgetter(0, 1)


class KeyOrder:
    """The rows of one key group; made anew for each."""

    def __init__(
        self,
        edges: Mapping[int, KeyedEdge],
        budget: int,
        directory: Path,
        *,
        by_time_alone: bool = False,
        timed: bool = True,
    ) -> None:
        """`timed`: rows may have timestamps.

        `by_time_alone`: rows of several keys and inputs may mix, as if all were of one key and input.

        `budget`: estimated bytes of rows in memory; more go to files in `directory`.
        """
        self._edges = edges
        self._budget = budget
        self._by_time_alone = by_time_alone
        self._size = 0
        #: The only edge, if its rows stay in the order in which they are added; None = rows have to be sorted.
        self._plain = next(iter(edges)) if len(edges) == 1 and not timed and not by_time_alone else None
        #: By canonical key: rows of the plain edge, or places of rows in `_arrived`.
        self._rows: dict[Any, list[Any]] = {}
        self._arrived = _ArrivedRows(edges, by_time_alone=by_time_alone)
        self._runs: SpilledRuns[bytes] = SpilledRuns(directory, bytes, bytes)

    @property
    def spilled_runs(self) -> int:
        """Number of runs on disk."""
        return len(self._runs)

    def add(self, edge: int, batch: RowBatch) -> None:
        """Adds rows of an edge, in their order. Raises OperatorFailure if computing a key fails."""
        rows = batch.rows
        if not rows:
            return
        entries: Iterable[Any] = rows
        if self._plain is None:
            entries = self._arrived.add(edge, rows, batch.timestamps)
        if self._by_time_alone:
            self._rows.setdefault(None, []).extend(entries)
        else:
            self._add_by_key(self._edges[edge], rows, entries)
        self._size += estimated_bytes(rows) + _ROW_OVERHEAD * len(rows)
        if self._size > self._budget:
            self._runs.add(self._blocks())
            self._forget()

    def _forget(self) -> None:
        self._rows.clear()
        self._arrived.clear()
        self._size = 0

    def _add_by_key(self, edge: KeyedEdge, rows: list[Any], entries: Iterable[Any]) -> None:
        found, key_of = self._rows, edge.key
        row = None
        try:
            for row, entry in zip(rows, entries, strict=True):
                key = key_of(row)
                try:
                    found[key].append(entry)
                except (KeyError, TypeError):
                    found.setdefault(canonicalize(key), []).append(entry)
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(edge.operator, short_record(row), error) from error

    def by_key(self) -> Iterator[Iterator[Piece]]:
        """For each key its rows; take the rows of one key before the next key. Nothing can be added meanwhile."""
        if len(self._runs):
            self._runs.add(self._blocks())
            self._forget()
            runs = [self._entries(blocks) for blocks in self._runs.readers()]
            order = _by_time if self._by_time_alone else _by_order
            for _, entries in groupby(heapq.merge(*runs, key=order), key=_first):
                yield _pieces((entry.timestamp, entry.input, entry.edge, entry.row) for entry in entries)
            return
        for _, key in self._ordered_keys():
            yield self._pieces_of(self._rows.pop(key))

    def _pieces_of(self, found: list[Any]) -> Iterator[Piece]:
        """The rows of a key in memory."""
        if self._plain is None:
            return self._arrived.pieces(self._arrived.in_order(found))
        number = self._edges[self._plain].input
        if len(found) <= PIECE_ROWS:
            return iter((Piece(number, found, None),))
        return (Piece(number, found[at : at + PIECE_ROWS], None) for at in range(0, len(found), PIECE_ROWS))

    def _ordered_keys(self) -> list[tuple[bytes, Any]]:
        if self._by_time_alone:
            return [(b"", key) for key in self._rows]
        return sorted(((encode_key(key), key) for key in self._rows), key=_first)

    # ------------------------------------------------------------------ runs

    def _blocks(self) -> Iterator[bytes]:
        """The rows in memory in order, as encoded blocks of one key and edge."""
        for encoded, key in self._ordered_keys():
            found = self._rows[key]
            if self._plain is not None:
                for piece in self._pieces_of(found):
                    yield self._block(encoded, self._plain, self._edges[self._plain].batch(piece.rows))
                continue
            for edge, batch in self._arrived.batches(self._arrived.in_order(found)):
                yield self._block(encoded, edge, batch)

    def _block(self, key: bytes, edge: int, batch: RowBatch) -> bytes:
        frame_type, parts, flags = self._edges[edge].codec.encode_batch(batch)
        head = _BLOCK.pack(edge, len(batch), len(key))
        return b"".join((head, key, bytes((frame_type, flags)), *parts))

    def _entries(self, blocks: Iterator[bytes]) -> Iterator[_Entry]:
        for data in blocks:
            edge, rows, length = _BLOCK.unpack_from(data)
            start = _BLOCK.size + length
            key = data[_BLOCK.size : start]
            number, codec = self._edges[edge].input, self._edges[edge].codec
            batch = decode_batch(codec, Chunk(edge, 0, 0, 0, rows, data[start:]))
            assert isinstance(batch, RowBatch)
            for row, stamp in zip(batch.rows, batch.timestamps or [None] * rows, strict=True):
                time = MIN_TIMESTAMP if stamp is None else stamp
                yield _Entry(key, time, number, edge, stamp, row)

    def close(self) -> None:
        """Removes files."""
        self._runs.close()


class _ArrivedRows:
    """Rows of all keys in the order in which they were added; a place is a position in that order.

    Columns of rows, times and edges, so that sorting and picking rows of a key calls no function a row.
    """

    def __init__(self, edges: Mapping[int, KeyedEdge], *, by_time_alone: bool) -> None:
        self._keyed_edges = edges
        self._by_time_alone = by_time_alone
        #: The only edge of which rows are there; None = there are several, or no row.
        self._only: int | None = None
        self._rows: list[Any] = []
        self._stamps: list[int | None] = []
        #: The same for sorting: a row without a time comes before the others.
        self._times: list[int] = []
        #: Of each row, if there are several edges.
        self._edges: list[int] = []
        self._inputs: list[int] = []

    def add(self, edge: int, rows: list[Any], stamps: list[int | None] | None) -> range:
        """Adds rows of an edge; returns their places."""
        start, many = len(self._rows), len(rows)
        self._rows += rows
        if stamps is None:
            self._stamps += [None] * many
            self._times += [MIN_TIMESTAMP] * many
        else:
            self._stamps += stamps
            self._times += [MIN_TIMESTAMP if stamp is None else stamp for stamp in stamps]
        if not start:
            self._only = edge
        elif self._only is not None and edge != self._only:
            self._note_edge(self._only, start)
            self._only = None
        if self._only is None:
            self._note_edge(edge, many)
        return range(start, start + many)

    def _note_edge(self, edge: int, many: int) -> None:
        self._edges += [edge] * many
        self._inputs += [self._keyed_edges[edge].input] * many

    def in_order(self, places: list[int]) -> list[int]:
        """Sorts places, which come in their own order, by time, then by input; equal ones stay."""
        if self._only is None and not self._by_time_alone:
            places.sort(key=self._inputs.__getitem__)
        places.sort(key=self._times.__getitem__)
        return places

    def pieces(self, places: list[int]) -> Iterator[Piece]:
        """The rows at these places as pieces of one input each."""
        if self._only is not None:
            return self._pieces_of(self._keyed_edges[self._only].input, places)
        parts = groupby(places, key=self._inputs.__getitem__)
        return chain.from_iterable(self._pieces_of(number, list(part)) for number, part in parts)

    def _pieces_of(self, number: int, places: list[int]) -> Iterator[Piece]:
        for rows, stamps in self._parts(places):
            yield _piece(number, rows, stamps)

    def batches(self, places: list[int]) -> Iterator[tuple[int, RowBatch]]:
        """The same as batches of one edge each."""
        if self._only is not None:
            edges: Iterable[tuple[int, Iterable[int]]] = ((self._only, places),)
        else:
            edges = groupby(places, key=self._edges.__getitem__)
        for edge, part in edges:
            for rows, stamps in self._parts(list(part)):
                yield edge, self._keyed_edges[edge].batch(rows, stamps)

    def _parts(self, places: list[int]) -> Iterator[tuple[list[Any], list[int | None]]]:
        row_at, stamp_at = self._rows.__getitem__, self._stamps.__getitem__
        for at in range(0, len(places), PIECE_ROWS):
            part = places[at : at + PIECE_ROWS]
            yield list(map(row_at, part)), list(map(stamp_at, part))

    def clear(self) -> None:
        """Forgets all rows."""
        for column in (self._rows, self._stamps, self._times, self._edges, self._inputs):
            column.clear()


def _pieces(entries: Iterable[tuple[int | None, int, int, Any]]) -> Iterator[Piece]:
    rows: list[Any] = []
    stamps: list[int | None] = []
    present = -1
    for stamp, number, _, row in entries:
        if number != present or len(rows) == PIECE_ROWS:
            if rows:
                yield _piece(present, rows, stamps)
                rows, stamps = [], []
            present = number
        rows.append(row)
        stamps.append(stamp)
    if rows:
        yield _piece(present, rows, stamps)


def _piece(number: int, rows: list[Any], stamps: list[int | None]) -> Piece:
    return Piece(number, rows, None if stamps.count(None) == len(stamps) else stamps)
