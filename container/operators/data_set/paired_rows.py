"""PairedRows: the rows of two inputs by key: in tables, or sorted by key on disk once they exceed a budget.

Owner: the task thread. Keys are compared by their canonical form. On disk the rows of a key of the first input come
before those of the second one, so that a single key streams. Must not know what becomes of the rows.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.operators.data_set.replayed_rows import BLOCK_ROWS, ROW_OVERHEAD, ReplayedRows
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.data.keys import canonicalize, encode_key

#: Of a block on disk: its input, and the length of its encoded key.
_HEAD: Final = struct.Struct("<iI")
#: Encoded key, input, rows.
_Block = tuple[bytes, int, list[Any]]
_by_key_and_input: Callable[[_Block], Any] = itemgetter(0, 1)
_first: Callable[[_Block], Any] = itemgetter(0)

#: A key's rows of the first and of the second input; those of the second can be read once.
Sides = tuple[Iterable[Any], Iterable[Any]]


class PairedRows:
    """The rows of some keys; `clear` begins anew."""

    def __init__(
        self, operator: str, selectors: tuple[Callable[[Any], Any], ...], budget: int, directory: Path
    ) -> None:
        """`operator` is named if a selector fails. `budget`: estimated bytes of rows in memory."""
        self._operator = operator
        self._selectors = selectors
        self._budget = budget
        self._directory = directory
        self._size = 0
        #: By canonical key, of each input.
        self.tables: tuple[dict[Any, list[Any]], dict[Any, list[Any]]] = ({}, {})
        self._runs: SpilledRuns[_Block] | None = None

    @property
    def is_spilled(self) -> bool:
        """Whether rows lie on disk: then the tables hold only some of them."""
        return self._runs is not None

    def add(self, number: int, rows: list[Any]) -> None:
        """Adds rows of an input. Raises OperatorFailure if computing a key fails, SpillError for a full disk."""
        found, key_of = self.tables[number], self._selectors[number]
        row = None
        try:
            for row in rows:
                key = key_of(row)
                try:
                    found[key].append(row)
                except (KeyError, TypeError):
                    found.setdefault(canonicalize(key), []).append(row)
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self._operator, short_record(row), error) from error
        self._size += estimated_bytes(rows) + ROW_OVERHEAD * len(rows)
        if self._size > self._budget:
            self._spill()

    def key_of(self, number: int, row: Any) -> Any:
        """The canonical key of a row. Raises OperatorFailure if computing it fails."""
        try:
            return canonicalize(self._selectors[number](row))
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self._operator, short_record(row), error) from error

    def by_key(self) -> Iterator[Sides]:
        """The rows of each key that some input has; take those of one key before the next one."""
        if self._runs is None:
            first, second = self.tables
            for key, rows in first.items():
                yield rows, second.get(key, ())
            for key, rows in second.items():
                if key not in first:
                    yield (), rows
            return
        self._spill()
        for _, blocks in groupby(self._runs.merged(_by_key_and_input), key=_first):
            yield from self._sides(blocks)

    def _sides(self, blocks: Iterator[_Block]) -> Iterator[Sides]:
        """The rows of one key, from blocks in order of inputs."""
        lefts = ReplayedRows(self._budget, self._directory)
        try:
            block = next(blocks, None)
            while block is not None and block[1] == 0:
                lefts.add(block[2])
                block = next(blocks, None)
            yield lefts, _rows_of(block, blocks)
        finally:
            lefts.close()

    def _spill(self) -> None:
        if self._runs is None:
            self._runs = SpilledRuns(self._directory, _encode, _decode)
        blocks = [
            (encode_key(key), number, rows)
            for number, table in enumerate(self.tables)
            for key, rows in table.items()
        ]
        blocks.sort(key=_by_key_and_input)
        self._runs.add(_divided(blocks))
        for table in self.tables:
            table.clear()
        self._size = 0

    def clear(self) -> None:
        """Forgets all rows, and removes files."""
        for table in self.tables:
            table.clear()
        self._size = 0
        if self._runs is not None:
            self._runs.close()
            self._runs = None


def _rows_of(first: _Block | None, others: Iterator[_Block]) -> Iterator[Any]:
    if first is not None:
        yield from first[2]
        for _, _, rows in others:
            yield from rows


def _divided(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Blocks of a bounded number of rows."""
    for key, number, rows in blocks:
        following = iter(rows)
        while part := list(islice(following, BLOCK_ROWS)):
            yield key, number, part


def _encode(block: _Block) -> bytes:
    key, number, rows = block
    return b"".join((_HEAD.pack(number, len(key)), key, pickle.dumps(rows, 5)))


def _decode(data: bytes) -> _Block:
    number, length = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    return data[_HEAD.size : start], number, pickle.loads(memoryview(data)[start:])
